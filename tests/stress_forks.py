"""Forks at random moments of planned programs: `python -m tests.stress_forks --help`.

Each program switches the optimizer on, plans, trains and forks in a random order, in one or two
threads, and its children do the same. TensorFlow itself cannot be forked once it has run ops, so
what hangs is run again with HPLACER_DISABLE=1: what ends then, in three of three runs, hung
because of the optimizer.

Exits with 1 and tells the seeds if a program did that, or ended with an error.

    python -m tests.stress_forks --count 200
    python -m tests.stress_forks --seed 17 --count 1
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.processes import OWN_PLANNERS, PRELUDE, clean_environment, run_script

_LIMIT_S = 25.0
_DISABLED_LIMIT_S = 12.0
_TRIES = 3

_HELPERS = """
import signal
signal.alarm(60)
thread = None

def train(name):
    losses(trainer(name))

def in_thread(function, *arguments):
    global thread
    thread = threading.Thread(target=function, args=arguments)
    thread.start()

def plan():
    hp.plan("example", "local_search", budget_s=0.05)

def fork(child):
    "Runs the child, which has a while for it; returns its process."
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(60)
    try:
        child()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

def wait(pid):
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"a child ended with status {status}"
"""


def program(seed: int) -> str:
    """A random one; most of them fork before TensorFlow has run an op."""
    chance = random.Random(seed)
    planner = chance.choice(["own:spread", "local_search", "etf", "own:climb"])
    on_miss = chance.choice(["plan", "plan", "learn", "background"])
    options = f"planner={planner!r}, on_miss={on_miss!r}, budget_s=0.3, timeout_s=10.0"
    body = _acts(chance, depth=0)
    return _HELPERS + f"on({options})\n" + "\n".join(body) + "\nif thread: thread.join()\n"


def _acts(chance: random.Random, depth: int) -> list[str]:
    lines = []
    if chance.random() < 0.3:
        before = ["plan()", "plugin.history()", f"in_thread(plan)\n{_pause(chance)}"]
        lines.append(chance.choice(before))
    if chance.random() < 0.06:  # TensorFlow may not bear this
        name = f"early_{depth}"
        lines.append(
            chance.choice([f"train('{name}')", f"in_thread(train, '{name}')\n{_pause(chance)}"])
        )
    if depth < 2 and (depth == 0 or chance.random() < 0.3):
        for number in range(chance.choice([1, 1, 2])):
            inner = _acts(chance, depth + 1)
            lines.append(f"def child_{number}():\n" + _indented(inner))
            lines.append(f"pid_{number} = fork(child_{number})")
            if chance.random() < 0.5:
                lines.append(f"train('between_{depth}_{number}')")
            lines.append(f"wait(pid_{number})")
    if depth or chance.random() < 0.5:
        lines.append(f"train('late_{depth}')")
        lines.append("assert plugin.history() or os.environ.get('HPLACER_DISABLE')")
    return lines


def _pause(chance: random.Random) -> str:
    return f"time.sleep({chance.uniform(0, 0.4):.3f})"


def _indented(lines: Sequence[str]) -> str:
    return "".join(f"    {line}\n" for text in lines for line in text.split("\n"))


def ends(code: str, directory: Path, limit_s: float, **environment: str) -> str | None:
    """None: it hung. "": it ended well; else what it wrote."""
    (directory / "own.py").write_text(OWN_PLANNERS)
    (directory / "script.py").write_text(PRELUDE + code)
    try:
        done = run_script(
            [str(directory / "script.py")],
            cwd=directory,
            environment=clean_environment(directory) | {"HPLACER_LOG": "off"} | environment,
            timeout_s=limit_s,
        )
    except subprocess.TimeoutExpired:
        return None
    return "" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stderr[-2000:]}"


def _ends_without(code: str) -> bool:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        return ends(code, Path(name), _DISABLED_LIMIT_S, HPLACER_DISABLE="1") == ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if the optimizer made a program hang or fail."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    options = parser.parse_args(arguments)
    well, excused, wrong = 0, 0, []
    for seed in range(options.seed, options.seed + options.count):
        code = program(seed)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            ending = ends(code, Path(name), _LIMIT_S)
        if ending == "":
            well += 1
            continue
        if not all(_ends_without(code) for _ in range(_TRIES)):
            excused += 1
            continue
        wrong.append(seed)
        print(f"seed {seed}: {'hangs' if ending is None else ending}\n{code}", flush=True)
    print(
        f"{options.count} programs: {well} ended well, {excused} that do not without the optimizer "
        f"either, {len(wrong)} hung or failed because of it: {wrong}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
