"""What a search by measured steps gains when it learns costs from them.

Three searches measure equally many placements: as it is; without learning, which plans with the
costs as they stand; and with moves only, as it was before it planned. Each starts from nothing but
the problem.

    python benchmarks/measured_search.py --output docs/results/measured_search
    python benchmarks/measured_search.py --parts drawn --problems-of-family 2 --placements 40

Parts:

    drawn    generated problems (bench/generated.py) of seeds that nothing was trained or chosen
             on, whose steps are those of the same problem with other costs, drawn from the typical
             errors of measured and of estimated costs, and off by another 2% each time. The figure
             is the true step of the answer over that of a search by simulation that knows the
             costs.
    workers  two workers on this machine with a core each, the tasks of `hplacer bench cluster`.
             Each search begins with everything on one worker. The cuts that a person would try
             are measured, too, and told to no search. In the end all answers take turns.

Results are written to DIR/measured_search.json after every problem. What the file has is not run
again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.cluster_tasks import TASKS, ClusterTask, cuts_by_hand
from hplacer_optimizer.bench.generated import FAMILIES, generate
from hplacer_optimizer.bench.measured import Bench, calibrated_cluster
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.capture.loading import LoadedGraph
from hplacer_optimizer.measuring import Effort, MeasuredReward, Measurement, measured_search
from hplacer_optimizer.measuring.measurement import OUT_OF_MEMORY, failed
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.problem.cost_errors import (
    ESTIMATED_COSTS,
    MEASURED_COSTS,
    CostErrors,
    draw_problems,
)
from hplacer_optimizer.problem.simulator import simulate

sys.path.append(str(Path(__file__).resolve().parents[1]))
from benchmarks.rollout import step_ns

PARTS = ("drawn", "workers")
WITHOUT: dict[str, tuple[str, ...]] = {
    "learning": (),
    "without learning": ("learning",),
    "moves only": ("learning", "plans"),
}
ERRORS = {"measured": MEASURED_COSTS, "estimated": ESTIMATED_COSTS}
DEFAULT, BY_HAND = "one worker", "by hand"
DEFAULT_TASKS = ("two_tower", "nmt")
_FIRST_SEED = 1010  # those from 1000 to 1004 were looked at while the search was made
_NOISE = 0.02
_KNOWING = Budget(steps=10_000)
_CUT_ROUNDS = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the parts and prints what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--output", type=Path, default=Path("hplacer-measured"), metavar="DIR")
    parser.add_argument("--placements", type=int, default=40, help="of a search (default: 40)")
    parser.add_argument("--problems-of-family", type=int, default=6, metavar="N", help="default: 6")
    names = [task.name for task in TASKS]
    parser.add_argument("--tasks", nargs="+", choices=names, default=DEFAULT_TASKS, metavar="TASK")
    parser.add_argument("--seeds", type=int, default=1, help="of the workers' part (default: 1)")
    parser.add_argument("--planner", default="local_search", help="of the workers' starts")
    parser.add_argument("--time", type=float, default=40, metavar="S", help="of turns, per task")
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "measured_search.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for part in options.parts:
        found = results.setdefault(part, {})
        for name, row in _RUN[part](options, frozenset(found)):
            found[name] = row
            path.write_text(result_json(results) + "\n")
    print("\n".join(lines(results)))
    return 0


# ---- drawn costs ----


class _Drawn:
    """Measures by the simulator, with other costs."""

    def __init__(self, problem: Problem, errors: CostErrors, seed: int) -> None:
        (self.true,) = draw_problems(problem, errors, draws=1, seed=seed)
        self._rng = np.random.default_rng(seed)

    def measure(self, placement: NDArray[np.int32]) -> Measurement:
        trace = simulate(self.true, placement)
        if not trace.feasible or trace.makespan_ns is None:
            return failed(OUT_OF_MEMORY, trace.infeasible_because[0])
        factors = np.exp(_NOISE * self._rng.standard_normal(3))
        return Measurement(times_s=tuple(trace.makespan_ns / 1e9 * factors))

    def close(self) -> None:
        """There is nothing to end."""


def _drawn(
    options: argparse.Namespace, known: frozenset[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    jobs = [
        (f"{family}-{seed}, {costs}", family, seed, costs, options.placements)
        for seed in range(_FIRST_SEED, _FIRST_SEED + options.problems_of_family)
        for family in FAMILIES
        for costs in ERRORS
    ]
    jobs = [job for job in jobs if job[0] not in known]
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        yield from zip((job[0] for job in jobs), pool.map(_drawn_row, jobs), strict=True)


def _drawn_row(job: tuple[str, str, int, str, int]) -> dict[str, Any]:
    _, family, seed, costs, placements = job
    problem, errors = generate(family, seed), ERRORS[costs]
    planner = get_planner("local_search").plan
    true = _Drawn(problem, errors, seed).true
    row: dict[str, Any] = {
        "ops": problem.num_ops,
        "knowing": step_ns(true, planner(true, budget=_KNOWING).placement),
    }
    for name, without in WITHOUT.items():
        # All of them meet the same true costs, and the same noise in the same order.
        with MeasuredReward([_Drawn(problem, errors, seed)]) as reward:  # type: ignore[list-item]
            measured_search.search(
                problem,
                reward,
                planner,
                budget=Budget(steps=placements),
                errors=errors,
                without=without,
            )
            row[name] = step_ns(true, reward.best[0]) if reward.best else None
            row.setdefault("first", step_ns(true, reward.steps_s[0][0]) if reward.best else None)
    return row


# ---- two workers ----


def _workers(
    options: argparse.Namespace, known: frozenset[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    tasks = [task for task in TASKS if task.name in options.tasks and task.name not in known]
    if not tasks:
        return
    with calibrated_cluster(lambda what: print(what, flush=True)) as bench:
        for task in tasks:
            yield task.name, _task_row(bench, task, options)


def _task_row(bench: Bench, task: ClusterTask, options: argparse.Namespace) -> dict[str, Any]:
    loaded = bench.load(task)
    problem = loaded.problem
    cuts = dict(cuts_by_hand(problem, task.by_hand))
    tried = bench.measure(task, loaded, cuts, _CUT_ROUNDS)
    best_cut = min(cuts, key=lambda name: tried[name].step_s or math.inf)
    answers = {DEFAULT: on_device(problem, 0), BY_HAND: cuts[best_cut]}
    searches = {}
    for seed in range(options.seeds):
        for name, without in WITHOUT.items():
            label = f"{name}, seed {seed}"
            bench.on_start(f"{task.title}: {label}")
            answers[label], searches[label] = _searched(bench, loaded, options, seed, without)
    turns = bench.take_turns(loaded, answers, DEFAULT, options.time)
    return {
        "ops": problem.num_ops,
        "planner": options.planner,
        "by_hand": best_cut,
        "searches": searches,
        "answers": {
            name: {
                "step_ms": 1e3 * turns[name].step_s,
                "predicted_ms": (simulate(problem, placement).makespan_ns or 0) / 1e6,
                "speedup": turns[name].speedup,
                "interval": turns[name].interval,
            }
            for name, placement in answers.items()
        },
    }


def _searched(
    bench: Bench,
    loaded: LoadedGraph,
    options: argparse.Namespace,
    seed: int,
    without: Sequence[str],
) -> tuple[NDArray[np.int32], dict[str, Any]]:
    """The answer, and the best median so far after each measured placement."""
    begin_s = time.monotonic()
    with MeasuredReward([bench.measurer(loaded, Effort(steps=5))]) as reward:
        reward(on_device(loaded.problem, 0))
        measured_search.search(
            loaded.problem,
            reward,
            get_planner(options.planner).plan,
            budget=Budget(steps=options.placements),
            seed=seed,
            without=without,
        )
        assert reward.best is not None, "one worker alone ran"
        steps_ms = [1e3 * seconds for _, seconds in reward.steps_s]
        found = {
            "seconds": round(time.monotonic() - begin_s, 1),
            "measured": reward.measured,
            "failed": reward.failed,
            "best_ms": np.minimum.accumulate(steps_ms).round(3).tolist(),
        }
        return reward.best[0], found


# ---- what is printed ----


def lines(results: dict[str, Any]) -> list[str]:
    """Of all parts that were run."""
    found = []
    for costs in ERRORS if "drawn" in results else ():
        rows = [row for name, row in results["drawn"].items() if name.endswith(f", {costs}")]
        whole = [row for row in rows if all(row[name] for name in ("knowing", "first", *WITHOUT))]
        found.append(f"{costs} costs: {len(whole)} of {len(rows)} problems; all answers fit there")
        for name in ("first", *WITHOUT):
            ratio = statistics.geometric_mean(row[name] / row["knowing"] for row in whole)
            shorter = sum(row["learning"] < row[name] for row in whole)
            longer = sum(row["learning"] > row[name] for row in whole)
            found.append(
                f"  {name}: {ratio:.3f} of the step that knows the costs; "
                f"learning is shorter in {shorter}, longer in {longer}"
            )
    for task, row in results.get("workers", {}).items():
        found.append(f"{task} ({row['ops']} ops), times as fast as one worker:")
        for name, answer in row["answers"].items():
            low, high = answer["interval"]
            line = f"  {name}: {answer['speedup']:.3f} ({low:.3f} to {high:.3f})"
            if search := row["searches"].get(name):
                line += f", {search['measured']} placements in {search['seconds']} s"
            found.append(line)
    return found


_RUN = {"drawn": _drawn, "workers": _workers}

if __name__ == "__main__":
    raise SystemExit(main())
