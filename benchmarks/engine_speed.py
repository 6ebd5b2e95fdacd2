"""How many placements a second this build of the engine scores, beside another build of it.

    python -m benchmarks.engine_speed --against ~/before [--output DIR] [--problems DIR]
    python -m benchmarks.engine_speed --against ~/before --tasks nmt_2 two_tower-8xa100 --turns 8

`~/before` is another checkout of the repository with its native modules built (`make build`). Each
build has a process of its own, pinned to one core. Both run the same `local_search` in turns: for
each seed the same number of placements, one after the other. So both meet the same machine, however
unsteady it is. Told for each task: placements per second of processor time (the medians of the
turns), the median and the quartiles of the ratio within the turns, and whether both found the same
placements. They do unless the search itself differs. Exit code 1: they differ on a task.

Problem files of the tasks are kept in --problems.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hplacer_optimizer as hp
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.bench.tasks import PAPER, modern_tasks

_ROOT = Path(__file__).resolve().parents[1]
TASKS = {task.name: task for task in (*PAPER, *modern_tasks(("8xa100",)))}
# Of the build that is first on its path; the seed of each turn comes by its input.
_BUILD = """
import hashlib, json, os, sys, time
root, path, placements = sys.argv[1:]
sys.path.insert(0, root)
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
import hplacer_optimizer as hp
from hplacer_optimizer.planners import PLANNERS, Budget
assert hp.__file__.startswith(root + os.sep), hp.__file__
problem = hp.load_problem(path)
for seed in sys.stdin:
    begin_s = time.process_time()
    budget = Budget(steps=int(placements))
    found = PLANNERS["local_search"].plan(problem, budget=budget, seed=int(seed))
    seconds = time.process_time() - begin_s
    print(json.dumps([seconds, hashlib.sha256(found.placement.tobytes()).hexdigest()]), flush=True)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a line for each task. Exit code 1: the builds find other placements on one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, required=True, metavar="DIR", help="a checkout")
    parser.add_argument("--output", type=Path, default=Path("hplacer-engine-speed"), metavar="DIR")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="default: DIR of --output")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--placements", type=int, default=250, help="of a turn; default: 250")
    parser.add_argument("--turns", type=int, default=24, help="default: 24")
    options = parser.parse_args(argv)
    if options.turns < 2:
        parser.error("--turns: at least 2, for a spread")
    problems = options.problems or options.output
    for directory in (options.output, problems):
        directory.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for name in options.tasks:
        path = options.output / f"{name}.hplacer.json.gz"
        hp.save_problem(prepare(TASKS[name], problems), path)
        roots = (options.against.resolve(), _ROOT)
        found[name] = compare(roots, path, options.placements, options.turns)
        path.unlink()
        (options.output / "engine_speed.json").write_text(result_json(found) + "\n")
        print_row(name, found[name])
    ratios = [row["ratio"] for row in found.values()]
    print(f"in the geometric mean {statistics.geometric_mean(ratios):.2f} times as many")
    return 0 if all(row["same"] for row in found.values()) else 1


def compare(roots: Sequence[Path], path: Path, placements: int, turns: int) -> dict[str, Any]:
    """The other build, then this one, in turns; who begins a turn changes."""
    builds = [_start(root, path, placements) for root in roots]
    per_s: list[list[float]] = [[], []]
    is_same = True
    try:
        for turn in range(turns):
            placed = ["", ""]
            for i in (0, 1) if turn % 2 else (1, 0):
                seconds, placed[i] = _take_turn(builds[i], turn)
                per_s[i].append(placements / seconds)
            is_same = is_same and placed[0] == placed[1]
    finally:
        for build in builds:
            build.communicate()  # its input ends, and so does it
    ratios = [new / old for old, new in zip(*per_s, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return {
        "before_per_s": statistics.median(per_s[0]),
        "now_per_s": statistics.median(per_s[1]),
        "ratio": statistics.median(ratios),
        "quartiles": [low, high],
        "same": is_same,
    }


def _start(root: Path, path: Path, placements: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _BUILD, str(root), str(path), str(placements)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""},
    )


def _take_turn(build: subprocess.Popen[str], seed: int) -> tuple[float, str]:
    assert build.stdin is not None
    assert build.stdout is not None
    build.stdin.write(f"{seed}\n")
    build.stdin.flush()
    line = build.stdout.readline()
    if not line:
        raise SystemExit("engine_speed: a build's search failed, see above")
    seconds, placed = json.loads(line)
    return seconds, placed


def print_row(name: str, row: dict[str, Any]) -> None:
    low, high = row["quartiles"]
    print(
        f"{name:24} {row['before_per_s']:7.0f} placements/s before, {row['now_per_s']:7.0f} now: "
        f"{row['ratio']:.2f} times as many ({low:.2f} to {high:.2f})"
        f"{'' if row['same'] else '; OTHER PLACEMENTS'}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
