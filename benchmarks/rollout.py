"""What rollouts give, what each part of them gives, and what `auto` gains from them.

    python benchmarks/rollout.py [--output DIR] [--problems DIR] [--seeds 3]
    python benchmarks/rollout.py --parts rollout --tasks nmt_2 --generated 5

The papers' six tasks, the modern workloads, and generated problems (hplacer_optimizer/bench/
generated.py) of seeds from 1000 on, which nobody looked at when weights and searches were designed:
five families, 2 to 16 accelerators, half of them with tight memory. By the simulator. Parts:

    rollout  `rollout` for one second for 10,000 ops, on one core, seeds 0 to --seeds - 1; and with
             one pass, units alone, no sweeps, earliest finish alone. Beside the best planner that
             does not search.
    auto     `auto` for one second and one more for 10,000 ops, and with its own budget, on all
             cores, seeds 0 to --seeds - 1.
    without  the same without rollouts: `local_search` from the expert and the partitioners, seed 0.
    search   `local_search` for the same times, on all cores, from what `rollout` finds in a quarter
             of the short one: as it is, and without each of its parts. For the short time seeds 0
             to --seeds - 1, for its own budget seed 0 and the parts that pay late.
    busy     `auto` with its own budget, seed 0, while each core runs another process.

Problem files of the tasks are kept in --problems. Results are written to DIR/rollout.json after
every problem, and problems that it has are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import ROLLOUT_ITEMS, Problem
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.generated import FAMILIES, generate
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.bench.tasks import PAPER, modern_tasks
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners import (
    PLANNERS,
    Budget,
    PlannerResult,
    local_search,
    rollout,
)
from hplacer_optimizer.planners.policies import BY_HAND, Policy, Portfolio
from hplacer_optimizer.problem.simulator import simulate

PARTS = ("rollout", "auto", "without", "search", "busy")
TASKS = {task.name: task for task in (*PAPER, *modern_tasks())}
DEFAULT_TASKS = [name for name in TASKS if not name.endswith(("8xv100", "8xh200"))]
QUICK = (
    *("cpu_only", "gpu_only", "human_expert", "topo", "etf", "heft"),
    *("metis", "mincut", "scotch"),
)
FIRST_SEED = 1000
_OTHER_STARTS = ("human_expert", "metis", "mincut", "scotch")


def every_chain(*policies: Policy) -> Portfolio:
    """Each policy with each kind of items, all with units first."""
    chains = [(i, items) for items in ROLLOUT_ITEMS for i in range(len(policies))]
    return Portfolio(policies=policies, chains=tuple(chains))


VARIANTS: dict[str, dict[str, Any]] = {
    "rollout": {},
    "one pass": {"passes": 1},
    "units alone": {"portfolio": replace(BY_HAND, chains=[(i, "units") for i in range(4)])},
    "all chains": {"portfolio": every_chain(*BY_HAND.policies)},
    "no sweeps": {"sweeps": False},
    "earliest finish alone": {  # HEFT's rule: no other reason counts
        "portfolio": every_chain(Policy(weights={"wait": 1, "late": 1, "work": 1}))
    },
}
SEARCH = {
    "search": set(),
    "without screening of moves": {"screen"},
    "without other starts": {"other_starts"},
}
_LONG_SEARCH = ("search", "without screening of moves", "without other starts")
_START_SHARE = 0.25  # of the short time


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
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
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
            path.write_text(result_json(results) + "\n")
            print(part, name, found[name], flush=True)
    for line in summary(results):
        if not line.endswith(": none"):
            print(line)
    return 0


def problems(options: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    for name in options.tasks:
        yield name, prepare(TASKS[name], options.problems)
    families = sorted(FAMILIES)
    for i in range(options.generated):
        family, seed = families[i % len(families)], FIRST_SEED + i // len(families)
        yield f"{family}-{seed}", generate(family, seed)


def step_ns(problem: Problem, placement: NDArray[np.int32]) -> int | None:
    trace = simulate(problem, placement)
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
            found[variant].append(step_ns(problem, result.placement))
    return found


@contextmanager
def one_core() -> Iterator[None]:
    """Within, this thread and the threads that it starts run on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def quick_ns(problem: Problem) -> dict[str, int | None]:
    found = {}
    for name in QUICK:
        try:
            found[name] = step_ns(problem, PLANNERS[name].plan(problem).placement)
        except PlannerUnavailableError:
            continue
    return found


# ---- auto ----


def autos(problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    short = Budget(seconds=1 + 1e-4 * problem.num_ops)
    plan = PLANNERS["auto"].plan
    return {
        **searched("auto, short", problem, plan, short, options.seeds),
        **searched("auto", problem, plan, local_search.default_budget(problem), options.seeds),
    }


def without(problem: Problem, _: argparse.Namespace) -> dict[str, Any]:
    short = Budget(seconds=1 + 1e-4 * problem.num_ops)
    return {
        **searched("without, short", problem, without_rollouts, short, 1),
        **searched("without", problem, without_rollouts, local_search.default_budget(problem), 1),
    }


def parts_of_search(problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    short = Budget(seconds=1 + 1e-4 * problem.num_ops)
    long = local_search.default_budget(problem)
    starts = [
        rollout.search(
            problem, budget=Budget(seconds=_START_SHARE * (short.seconds or 0)), seed=seed
        ).placement
        for seed in range(options.seeds)
    ]
    found: dict[str, Any] = {"start": [step_ns(problem, start) for start in starts]}
    for variant, without in SEARCH.items():
        found[f"{variant}, short"] = [
            step_ns(
                problem,
                local_search.search(
                    problem, [start], budget=short, seed=seed, on_progress=None, without=without
                ).placement,
            )
            for seed, start in enumerate(starts)
        ]
        if variant in _LONG_SEARCH:
            result = local_search.search(
                problem, starts[:1], budget=long, seed=0, on_progress=None, without=without
            )
            found[variant] = [step_ns(problem, result.placement)]
    return found


def busy(problem: Problem, _: argparse.Namespace) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in cores]
    try:
        for other, core in zip(others, cores, strict=True):
            os.sched_setaffinity(other.pid, {core})
        plan, budget = PLANNERS["auto"].plan, local_search.default_budget(problem)
        return searched("busy", problem, plan, budget, 1)
    finally:
        for other in others:
            other.kill()
            other.wait()


def searched(
    name: str, problem: Problem, plan: Callable[..., PlannerResult], budget: Budget, seeds: int
) -> dict[str, Any]:
    """Steps and seconds of seeds 0 to `seeds` - 1."""
    found: dict[str, Any] = {name: [], f"{name}, s": []}
    for seed in range(seeds):
        begin_s = time.monotonic()
        result = plan(problem, budget=budget, seed=seed)
        found[f"{name}, s"].append(round(time.monotonic() - begin_s, 3))
        found[name].append(step_ns(problem, result.placement))
    return found


def without_rollouts(problem: Problem, *, budget: Budget, seed: int) -> PlannerResult:
    """`local_search` from planners that do not search."""
    begin_s = time.monotonic()
    starts = []
    for name in _OTHER_STARTS:
        try:
            starts.append(PLANNERS[name].plan(problem, seed=seed).placement)
        except PlannerUnavailableError:
            continue
    return local_search.search(
        problem, starts, budget=budget.left(begin_s), seed=seed, on_progress=None
    )


# ---- summary ----


def summary(results: dict[str, Any]) -> Iterator[str]:
    """Geometric means of ratios, and in how many problems a row is at or below another."""
    for kind in ("tasks", "generated"):

        def of(part: str, row: str, kind: str = kind) -> dict[str, float]:
            return {
                name: median(found[row])
                for name, found in results.get(part, {}).items()
                if (name in TASKS) == (kind == "tasks") and row in found
            }

        quick = {
            name: least(row["quick"].values()) for name, row in results.get("rollout", {}).items()
        }
        for variant in VARIANTS:
            yield f"{kind}: {variant} / best quick: {compared(of('rollout', variant), quick)}"
        for row in ("auto, short", "auto"):
            yield f"{kind}: {row} / best quick: {compared(of('auto', row), quick)}"
        for variant in SEARCH:
            for row in (f"{variant}, short", variant):
                whole = of("search", row.replace(variant, "search"))
                yield f"{kind}: {row} / search: {compared(of('search', row), whole)}"


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
    "without": without,
    "search": parts_of_search,
    "busy": busy,
}

if __name__ == "__main__":
    sys.exit(main())
