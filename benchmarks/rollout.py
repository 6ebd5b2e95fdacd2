"""What rollouts give, what each part of them gives, and what `auto` gains from them.

    python benchmarks/rollout.py [--output DIR] [--problems DIR] [--seeds 3] [--auto-seeds 1]
    python benchmarks/rollout.py --parts rollout --tasks nmt_2 --generated 5

The papers' six tasks, the modern workloads, and generated problems (hplacer_optimizer/bench/
generated.py) of seeds from 1000 on, which nobody looked at when weights and searches were designed:
five families, 2 to 16 accelerators, half of them with tight memory. By the simulator. Parts:

    rollout  `rollout` for one second for 10,000 ops, on one core, seeds 0 to --seeds - 1; and with
             one pass, units alone, no sweeps, earliest finish alone. Beside the best planner that
             does not search.
    auto     `auto` for one second and one more for 10,000 ops, and with its own budget, on all
             cores; and in the same times what it was before it had rollouts: `local_search` from
             the expert and the partitioners; and that with its budget of then (10 seconds, 60 above
             10,000 ops). Seeds 0 to --auto-seeds - 1. How the steps of the tasks fall over time
             with and without rollouts is a picture.

Problem files of the tasks are kept in --problems. Results are written to DIR/rollout.json after
every problem, and problems that it has are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.generated import FAMILIES, generate
from hplacer_optimizer.bench.tasks import PAPER, modern_tasks
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners import (
    PLANNERS,
    Budget,
    PlannerResult,
    Progress,
    local_search,
    rollout,
)
from hplacer_optimizer.planners.policies import BY_HAND, EARLIEST_FINISH, Portfolio, trained
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.training.evaluation import one_core

PARTS = ("rollout", "auto")
TASKS = {task.name: task for task in (*PAPER, *modern_tasks())}
DEFAULT_TASKS = [name for name in TASKS if not name.endswith(("8xv100", "8xh200"))]
QUICK = (
    *("cpu_only", "gpu_only", "human_expert", "topo", "etf", "heft"),
    *("metis", "mincut", "scotch"),
)
FIRST_SEED = 1000
BEFORE_S, BEFORE_LARGE_S, BEFORE_LARGE_OPS = 10.0, 60.0, 10_000
_STARTS_BEFORE = ("human_expert", "metis", "mincut", "scotch")

VARIANTS: dict[str, dict[str, Any]] = {
    "rollout": {},
    "one pass": {"passes": 1},
    "units alone": {"portfolio": replace(BY_HAND, chains=[(i, "units") for i in range(4)])},
    "all chains": {"portfolio": Portfolio.of_all(*BY_HAND.policies)},
    "no sweeps": {"sweeps": False},
    "trained": {"portfolio": trained()},
    "earliest finish alone": {"portfolio": EARLIEST_FINISH},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the parts, prints a line for each problem, and the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--output", type=Path, default=Path("hplacer-rollout"), metavar="DIR")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="default: DIR of --output")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=DEFAULT_TASKS, metavar="TASK")
    parser.add_argument("--generated", type=int, default=30, help="problems, default: 30")
    parser.add_argument("--seeds", type=int, default=3, help="of `rollout`, default: 3")
    parser.add_argument("--auto-seeds", type=int, default=1, help="of `auto`, default: 1")
    options = parser.parse_args(argv)
    options.problems = options.problems or options.output
    for directory in (options.output, options.problems):
        directory.mkdir(parents=True, exist_ok=True)
    path = options.output / "rollout.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results["cores"] = len(os.sched_getaffinity(0))
    for part in options.parts:
        found = results.setdefault(part, {})
        for name, problem in problems(options):
            if name in found:
                continue
            found[name] = {"ops": problem.num_ops, **_RUN[part](problem, options)}
            path.write_text(json.dumps(results, indent=1) + "\n")
            print(part, name, found[name], flush=True)
    if "auto" in results:
        draw(results["auto"], options.output / "rollout.png")
    for line in summary(results):
        print(line)
    return 0


def problems(options: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    for name in options.tasks:
        yield name, prepare(TASKS[name], options.problems)
    families = sorted(FAMILIES)
    for i in range(options.generated):
        family, seed = families[i % len(families)], FIRST_SEED + i // len(families)
        yield f"{family}-{seed}", generate(family, seed)


def step_ns(problem: Problem, found: PlannerResult) -> int | None:
    trace = simulate(problem, found.placement)
    return trace.makespan_ns if trace.feasible else None


# ---- rollout ----


def rollouts(problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    budget = Budget(seconds=1e-4 * problem.num_ops)
    found: dict[str, Any] = {"quick": quick_ns(problem)}
    for variant, without in VARIANTS.items():
        found[variant], found[f"{variant}, s"] = [], []
        for seed in range(options.seeds):
            with one_core():
                begin_s = time.monotonic()
                result = rollout.search(problem, budget=budget, seed=seed, **without)
                found[f"{variant}, s"].append(time.monotonic() - begin_s)
            found[variant].append(step_ns(problem, result))
    return found


def quick_ns(problem: Problem) -> dict[str, int | None]:
    found = {}
    for name in QUICK:
        try:
            found[name] = step_ns(problem, PLANNERS[name].plan(problem))
        except PlannerUnavailableError:
            continue
    return found


# ---- auto ----


def autos(problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    short = Budget(seconds=1 + 1e-4 * problem.num_ops)
    own, before = local_search.default_budget(problem), before_budget(problem)
    searches = {
        "auto, short": (PLANNERS["auto"].plan, short),
        "before, short": (without_rollouts, short),
        "auto": (PLANNERS["auto"].plan, own),
        "before, in the same time": (without_rollouts, own),
    }
    if own != before:
        searches["before"] = (without_rollouts, before)
    found: dict[str, Any] = {}
    for name, (search, budget) in searches.items():
        found[name], found[f"{name}, s"], found[f"{name}, curve"] = [], [], []
        for seed in range(options.auto_seeds):
            curve = Curve()
            result = search(problem, budget=budget, seed=seed, on_progress=curve)
            found[f"{name}, s"].append(curve.seconds())
            found[name].append(step_ns(problem, result))
            found[f"{name}, curve"].append(curve.points)
    found.setdefault("before", found["before, in the same time"])
    return found


class Curve:
    """Seconds and step times of the improvements of a search."""

    def __init__(self) -> None:
        self._begin_s = time.monotonic()
        self.points: list[tuple[float, int]] = []

    def seconds(self) -> float:
        return round(time.monotonic() - self._begin_s, 3)

    def __call__(self, progress: Progress) -> None:
        best_ns = progress.best_ns
        if best_ns is not None and (not self.points or best_ns < self.points[-1][1]):
            self.points.append((self.seconds(), best_ns))


def before_budget(problem: Problem) -> Budget:
    seconds = BEFORE_LARGE_S if problem.num_ops > BEFORE_LARGE_OPS else BEFORE_S
    return Budget(seconds=seconds, patience=local_search.patience(problem.num_ops))


def without_rollouts(
    problem: Problem,
    *,
    budget: Budget,
    seed: int,
    on_progress: Callable[[Progress], None],
) -> PlannerResult:
    """What `auto` was: `local_search` from planners that do not search."""
    begin_s = time.monotonic()
    starts = []
    for name in _STARTS_BEFORE:
        try:
            starts.append(PLANNERS[name].plan(problem, seed=seed).placement)
        except PlannerUnavailableError:
            continue
    return local_search.search(
        problem, starts, budget=budget.left(begin_s), seed=seed, on_progress=on_progress
    )


def draw(found: dict[str, Any], path: Path) -> None:
    """The first seed of each task."""
    from matplotlib.figure import Figure

    columns, tasks = 4, [name for name in TASKS if name in found]
    figure = Figure(figsize=(14, 9), layout="constrained")
    for i, name in enumerate(tasks):
        axes = figure.add_subplot(-(-len(tasks) // columns), columns, i + 1)
        lowest = np.inf
        for row, label in (("before, in the same time", "without rollouts"), ("auto", "auto")):
            points = found[name][f"{row}, curve"][0]
            seconds = [s for s, _ in points] + [found[name][f"{row}, s"][0]]
            steps = [ns / 1e6 for _, ns in points] + [points[-1][1] / 1e6]
            lowest = min(lowest, steps[-1])
            axes.step(seconds, steps, where="post", label=label)
        axes.set(xscale="log", title=name, xlabel="seconds", ylabel="ms per step")
        axes.set_ylim(0.97 * lowest, 1.6 * lowest)
    figure.axes[0].legend()
    figure.savefig(path, dpi=80)


# ---- summary ----


def summary(results: dict[str, Any]) -> Iterator[str]:
    """Geometric means of ratios, and in how many problems a row is at or below another."""
    rows, autos_of = results.get("rollout", {}), results.get("auto", {})
    for kind, names in (
        ("tasks", set(TASKS)),
        ("generated", set(rows) | set(autos_of) - set(TASKS)),
    ):
        names -= set(TASKS) if kind == "generated" else set()
        for variant in VARIANTS:
            mine = {name: median(row[variant]) for name, row in rows.items() if name in names}
            quick = {name: least(rows[name]["quick"].values()) for name in mine}
            yield f"{kind}: {variant} / best quick: {compared(mine, quick)}"
            before = {name: median(row["before"]) for name, row in autos_of.items()}
            yield f"{kind}: {variant} / auto before: {compared(mine, before)}"
        for variant in ("auto, short", "before, short", "auto", "before, in the same time"):
            mine = {name: median(row[variant]) for name, row in autos_of.items() if name in names}
            before = {name: median(autos_of[name]["before"]) for name in mine}
            yield f"{kind}: {variant} / auto before: {compared(mine, before)}"


def median(steps: Sequence[int | None]) -> float:
    return float(np.median([np.inf if ns is None else ns for ns in steps]))


def least(steps: Iterator[int | None]) -> float:
    return min((ns for ns in steps if ns is not None), default=np.inf)


def compared(mine: dict[str, float], theirs: dict[str, float]) -> str:
    both = [name for name in mine if name in theirs]
    finite = [name for name in both if np.isfinite(mine[name]) and np.isfinite(theirs[name])]
    if not finite:
        return "none"
    ratios = np.array([mine[name] / theirs[name] for name in finite])
    at_or_below = sum(mine[name] <= theirs[name] for name in both)
    lost = [name for name in both if np.isfinite(theirs[name]) and not np.isfinite(mine[name])]
    return (
        f"geometric mean {np.exp(np.log(ratios).mean()):.3f}, worst {ratios.max():.3f}, at or "
        f"below in {at_or_below} of {len(both)}" + (f", not feasible: {lost}" if lost else "")
    )


_RUN: dict[str, Callable[[Problem, argparse.Namespace], dict[str, Any]]] = {
    "rollout": rollouts,
    "auto": autos,
}

if __name__ == "__main__":
    sys.exit(main())
