"""How fast `local_search` scores placements, and how good it is after 1, 3, 10 and 30 seconds.

    hplacer bench paper            # writes problem files to docs/results/paper
    python benchmarks/search.py docs/results/paper/*.hplacer.json.gz
    python benchmarks/search.py GRAPH.hplacer.json.gz --seconds 1 10 --seeds 3 --json out.json

Scored: placements near the best one found (a row of units moved to one device, of all lengths up to
a quarter of them), each simulated to its end, and each only until it is certain to be no better,
with the same answers; on all cores. Quality: the best
step time at each moment, median of the seeds, over the best of the planners that do not search, and
over the proved lower bound.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hplacer_optimizer as hp
from hplacer_optimizer import _engine
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners import PLANNERS, Budget, Progress

BASELINES = ("cpu_only", "gpu_only", "human_expert", "topo", "etf", "heft", "metis", "mincut")
_THREADS = len(os.sched_getaffinity(0))
_CANDIDATES = 512


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="+", help="problem files, before the options")
    parser.add_argument("--planner", default="local_search", choices=("local_search", "auto"))
    parser.add_argument("--seconds", nargs="+", type=float, default=[1, 3, 10, 30])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", help="where to write all figures")
    options = parser.parse_args()
    rows = []
    for path in options.problems:
        rows.append(measure(hp.load_problem(path), options))
        print_row(rows[-1])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"cores": _THREADS, "rows": rows}, file, indent=1)
    return 0 if all(row["same_answers"] for row in rows) else 1


def measure(problem: hp.Problem, options: argparse.Namespace) -> dict[str, Any]:
    runs = [search(problem, options, seed) for seed in range(options.seeds)]
    baseline, baseline_ns = best_baseline(problem)
    return {
        "name": problem.name,
        "ops": problem.num_ops,
        "baseline": baseline,
        "baseline_ns": baseline_ns,
        "lower_bound_ns": _engine.lower_bound(problem).ns,
        "evaluations": statistics.median(run["evaluations"] for run in runs),
        "best_ns": {
            str(seconds): statistics.median(run["best_ns"][seconds] for run in runs)
            for seconds in options.seconds
        },
        **scoring_rate(problem, runs[0]["placement"]),
    }


def search(problem: hp.Problem, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    begin_s = time.perf_counter()
    calls: list[tuple[float, Progress]] = []
    placement = PLANNERS[options.planner](
        problem,
        budget=Budget(seconds=max(options.seconds)),
        seed=seed,
        on_progress=lambda progress: calls.append((time.perf_counter() - begin_s, progress)),
    )
    best_ns = {
        seconds: min(
            (call.best_ns for at_s, call in calls if at_s <= seconds and call.best_ns is not None),
            default=np.inf,
        )
        for seconds in options.seconds
    }
    best_ns[max(options.seconds)] = step_ns(problem, placement)
    return {"best_ns": best_ns, "evaluations": calls[-1][1].steps, "placement": placement}


def best_baseline(problem: hp.Problem) -> tuple[str, float]:
    times: dict[str, float] = {}
    for name in BASELINES:
        try:
            times[name] = step_ns(problem, PLANNERS[name](problem))
        except PlannerUnavailableError:
            continue
    best = min(times, key=lambda name: times[name])
    return best, times[best]


def step_ns(problem: hp.Problem, placement: NDArray[np.int32]) -> float:
    trace = hp.simulate(problem, placement)
    return trace.makespan_ns if trace.feasible and trace.makespan_ns is not None else np.inf


def scoring_rate(problem: hp.Problem, best: NDArray[np.int32]) -> dict[str, Any]:
    """Placements per second, whole and cut off at the step time of `best`."""
    rng = np.random.default_rng(0)
    placements = np.repeat(best[None], _CANDIDATES, axis=0)
    ptr = problem.candidate_ptr
    for placement in placements:
        size = int(np.exp(rng.uniform(0, np.log(max(2, problem.num_units / 4)))))
        first = rng.integers(0, problem.num_units)
        device = rng.choice(problem.candidates[ptr[first] : ptr[first + 1]])
        for unit in range(first, min(first + size, problem.num_units)):
            if device in problem.candidates[ptr[unit] : ptr[unit + 1]]:
                placement[problem.units == unit] = device
    cutoff_ns = int(step_ns(problem, best))
    begin_s = time.perf_counter()
    makespan_ns, feasible, _ = _engine.simulate_batch(problem, placements, _THREADS)
    whole_s = time.perf_counter() - begin_s
    begin_s = time.perf_counter()
    below_ns = _engine.simulate_below(problem, placements, cutoff_ns, _THREADS)
    below_s = time.perf_counter() - begin_s
    expected = np.where(feasible & (makespan_ns < cutoff_ns), makespan_ns, -1)
    return {
        "whole_per_s": _CANDIDATES / whole_s,
        "cut_off_per_s": _CANDIDATES / below_s,
        "same_answers": bool((below_ns == expected).all()),
    }


def print_row(row: dict[str, Any]) -> None:
    quality = ", ".join(
        f"{float(seconds):g} s {best_ns / row['baseline_ns']:.3f}"
        for seconds, best_ns in row["best_ns"].items()
    )
    last_ns = list(row["best_ns"].values())[-1]
    print(
        f"{row['name']} ({row['ops']:,} ops): {quality} of {row['baseline']} "
        f"({row['baseline_ns'] / 1e9:.4g} s), {last_ns / row['lower_bound_ns']:.2f} of the lower "
        f"bound, {row['evaluations']:,.0f} evaluations; scored per second "
        f"{row['whole_per_s']:,.0f} whole, {row['cut_off_per_s']:,.0f} cut off "
        f"({row['cut_off_per_s'] / row['whole_per_s']:.1f} times), "
        f"{'same answers' if row['same_answers'] else 'DIFFERENT ANSWERS'}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
