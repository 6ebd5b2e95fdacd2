"""How good the placements of `auto` are, how soon, and how fast the search scores them.

    python -m benchmarks.search [--output DIR] [--problems DIR] [--seeds 3]
    python -m benchmarks.search --parts quality time --tasks nmt_2 two_tower-8xa100

Parts, by the simulator, on the papers' six tasks and the modern workloads:

    quality  `auto` with its own budget (a second for 1,000 ops, 10 to 60), the median of the seeds,
             against the best planner that does not search and the proved lower bound. Two goals:
             (a) no seed worse than that planner, nor the median than that of what `hierarchical`
             learned (in --learned, the learning.json of benchmarks/learning.py); (b) at most 0.9
             times that planner, or at most 1.05 times the bound.
    time     the best step time of `auto`, `local_search` and `hierarchical` after 1, 3, 10, 30 and
             100 seconds, seed 0, as JSON and PNG; of --time-tasks.
    optimal  200 random problems of at most 3^10 placements (devices of several kinds, shared
             channels, memory limits, colocation; testbed/random_problems.py), each against all its
             placements, and problems whose optimum is known by construction
             (testbed/planted_problems.py): how many are solved, and the worst one; and how many
             packings of variables that fill 98% of all memory are found.
    parts    `auto` with all its parts, and without those that go on where local search stalls
             (planners/lineages.py), with one order of launches instead of the worst of several, or
             without rollouts that count launches, in --seconds each: the step times of all seeds,
             means over orders that no search scored. Kinds take turns, so that a busy machine is
             busy for all; processor seconds stand beside them.
    large    random graphs of 10,000 and 80,000 ops on 8 devices, each in a process of its own: wall
             time and peak memory of `auto` with its own budget (goals: 10 and 60 seconds, 4 GB).

Problem files are kept in --problems. Results are written to DIR/search.json after every part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.bench.tasks import PAPER, Task, modern_tasks
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners import PLANNERS, Budget, Progress, auto, lineages
from hplacer_optimizer.planners.launch_orders import mean_steps_ns
from hplacer_optimizer.problem.simulator import simulate
from testbed import planted_problems as planted
from testbed.documents import problem_from_dict
from testbed.large_problem import large_problem
from testbed.random_problems import every_placement, problems

PARTS = ("quality", "time", "optimal", "parts", "large")
BASELINES = (
    *("cpu_only", "gpu_only", "human_expert", "topo", "etf", "heft"),
    *("sct", "metis", "mincut", "scotch"),
)
TASKS = {task.name: task for task in (*PAPER, *modern_tasks())}
DEFAULT_TASKS = [name for name in TASKS if not name.endswith(("8xv100", "8xh200"))]
MOMENTS_S = (1, 3, 10, 30, 100)
SEARCHES = ("auto", "local_search", "hierarchical")
WITHOUT = {
    "auto": (),
    "no learner": ("learner",),
    "no race": ("race",),
    "neither": lineages.PARTS,
    "one order": ("launch_orders",),
    "one start": auto.PARTS,
}
JUDGING = range(5001, 5009)  # launch seeds
BASELINE_GOAL, BOUND_GOAL = 0.9, 1.05
LARGE_S, LARGE_BYTES = {10_000: 10, 80_000: 60}, 4 * 10**9
_THREADS = len(os.sched_getaffinity(0))
_RANDOM, _RANDOM_PLACEMENTS = 200, 3**10


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the parts and prints what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--output", type=Path, default=Path("hplacer-search"), metavar="DIR")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="default: DIR of --output")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=DEFAULT_TASKS, metavar="TASK")
    parser.add_argument(
        "--time-tasks", nargs="+", choices=TASKS, default=["inception_v3", "nmt_2"], metavar="TASK"
    )
    parser.add_argument("--learned", type=Path, metavar="FILE", help="for goal (a)")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument(
        "--seconds", nargs="+", type=float, default=[3, 10], help="of `parts` (default: 3 10)"
    )
    parser.add_argument("--large-ops", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.large_ops:
        print(json.dumps(plan_large(options.large_ops)))
        return 0
    options.problems = options.problems or options.output
    for directory in (options.output, options.problems):
        directory.mkdir(parents=True, exist_ok=True)
    path = options.output / "search.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for part in options.parts:
        results[part] = _RUN[part](options)
        results["cores"] = _THREADS
        path.write_text(result_json(results) + "\n")
    print(lines(results))
    return 0


def load(name: str, options: argparse.Namespace) -> Problem:
    return prepare(TASKS[name], options.problems)


def step_ns(problem: Problem, placement: NDArray[np.int32]) -> float:
    trace = simulate(problem, placement)
    return trace.makespan_ns if trace.feasible and trace.makespan_ns is not None else np.inf


# ---- quality ----


def quality(options: argparse.Namespace) -> dict[str, Any]:
    found = {}
    learned = learned_ns(options.learned) if options.learned else {}
    for name in options.tasks:
        problem = load(name, options)
        best_ns, seconds = [], []
        for seed in range(options.seeds):
            begin_s = time.monotonic()
            best_ns.append(step_ns(problem, PLANNERS["auto"].plan(problem, seed=seed).placement))
            seconds.append(time.monotonic() - begin_s)
        baselines = baselines_ns(problem)
        baseline = min(baselines, key=lambda planner: baselines[planner])
        median_ns, bound_ns = statistics.median(best_ns), _engine.lower_bound(problem).ns
        assert bound_ns is not None
        to_baseline, to_bound = median_ns / baselines[baseline], median_ns / bound_ns
        found[name] = {
            "ops": problem.num_ops,
            "auto_ns": best_ns,
            "seconds": seconds,
            "baselines_ns": baselines,
            "best_baseline": baseline,
            "learned_ns": learned.get(name),
            "lower_bound_ns": bound_ns,
            "to_baseline": to_baseline,
            "to_bound": to_bound,
        }
        print(_quality_line(name, found[name]), flush=True)
    return found


def goals_met(row: dict[str, Any]) -> list[str]:
    """Of a task."""
    never_worse = max(row["auto_ns"]) <= row["baselines_ns"][row["best_baseline"]]
    learned = row["learned_ns"] or np.inf
    met = {
        "a": never_worse and statistics.median(row["auto_ns"]) <= learned,
        "b": row["to_baseline"] <= BASELINE_GOAL or row["to_bound"] <= BOUND_GOAL,
    }
    return [goal for goal, is_met in met.items() if is_met]


def learned_ns(path: Path) -> dict[str, float]:
    """By task, the median of the seeds of `hierarchical`."""
    return {
        name: statistics.median(run["best_ns"] or np.inf for run in task["runs"]["hierarchical"])
        for name, task in json.loads(path.read_text()).items()
    }


def baselines_ns(problem: Problem) -> dict[str, float]:
    found = {}
    for name in BASELINES:
        try:
            found[name] = step_ns(problem, PLANNERS[name].plan(problem).placement)
        except PlannerUnavailableError:
            continue
    return {name: ns for name, ns in found.items() if np.isfinite(ns)}


# ---- time ----


def over_time(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in options.time_tasks:
        problem = load(name, options)
        found[name] = {planner: curve(problem, planner) for planner in SEARCHES}
        draw(TASKS[name], found[name], options.output / f"{name}-search.png")
    return found


def curve(problem: Problem, planner: str) -> dict[str, Any]:
    """Seconds and step times of the improvements, and the step times at the moments."""
    begin_s = time.monotonic()
    points: list[tuple[float, int]] = []

    def told(progress: Progress) -> None:
        if progress.best_ns is not None and (not points or progress.best_ns < points[-1][1]):
            points.append((time.monotonic() - begin_s, progress.best_ns))

    budget = Budget(seconds=MOMENTS_S[-1])
    placement = PLANNERS[planner].plan(problem, budget=budget, on_progress=told).placement
    last_ns = step_ns(problem, placement)
    if np.isfinite(last_ns) and (not points or last_ns < points[-1][1]):
        points.append((MOMENTS_S[-1], int(last_ns)))
    at = {
        str(moment): next((ns for s, ns in reversed(points) if s <= moment), None)
        for moment in MOMENTS_S
    }
    return {"at_ns": at, "points": points}


def draw(task: Task, curves: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for planner, found in curves.items():
        seconds = [s for s, _ in found["points"]]
        axes.step(
            [*seconds, MOMENTS_S[-1]],
            [ns / 1e6 for _, ns in [*found["points"], *found["points"][-1:]]],
            where="post",
            label=planner,
        )
    axes.set_xscale("log")
    axes.set_title(f"{task.title}: best placement found so far")
    axes.set_xlabel("seconds")
    axes.set_ylabel("simulated step time, ms")
    axes.legend()
    figure.savefig(path, dpi=100)


# ---- optimal ----


def optimal(_: argparse.Namespace) -> dict[str, Any]:
    return {
        "random": compared(random_problems()),
        "planted": compared(planted_problems()),
        "packed": packed(),
    }


def compared(cases: Iterator[tuple[Problem, float]]) -> dict[str, Any]:
    """What `auto` reaches, as shares of the optimum; of no feasible placement there is none."""
    ratios = [
        step_ns(problem, PLANNERS["auto"].plan(problem).placement) / best_ns
        for problem, best_ns in cases
    ]
    return {
        "problems": len(ratios),
        "solved": sum(ratio == 1 for ratio in ratios),
        "worst": max(ratios),
    }


def random_problems() -> Iterator[tuple[Problem, float]]:
    """With the best step time of all placements."""
    found: list[tuple[Problem, float]] = []

    @hypothesis.settings(
        max_examples=4 * _RANDOM,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.seed(0)
    @hypothesis.given(document=problems(placeable=True))
    def draw(document: dict[str, Any]) -> None:
        problem = problem_from_dict(document)
        counts = np.diff(problem.candidate_ptr)
        few = counts.all() and 1 < counts.prod() <= _RANDOM_PLACEMENTS
        if len(found) == _RANDOM or not problem.num_ops or not few:
            return
        placements = every_placement(problem)
        makespan_ns, feasible, _ = _engine.simulate_batch(problem, placements, _THREADS)
        if feasible.any() and makespan_ns[feasible].min() > 0:
            found.append((problem, float(makespan_ns[feasible].min())))

    draw()
    yield from found


def planted_problems() -> Iterator[tuple[Problem, float]]:
    for count, length, size_bytes in ((2, 8, 200), (3, 30, 10_000), (4, 30, 200), (8, 40, 500)):
        document, best_ns = planted.chains(count, length, cost_ns=100, size_bytes=size_bytes)
        yield problem_from_dict(document), best_ns
    for branch in (20, 60):
        document, best_ns = planted.fork_join(branch, 1000, cheap_bytes=10, dear_bytes=10**6)
        yield problem_from_dict(document), best_ns


def packed() -> dict[str, Any]:
    """Of variables that fill 98% of all memory, where a feasible placement is all that counts."""
    problems = [
        problem_from_dict(planted.tight_memory(devices, 12, fill=0.98, seed=seed))
        for devices in (2, 3, 4, 8)
        for seed in range(5)
    ]
    times = [step_ns(problem, PLANNERS["auto"].plan(problem).placement) for problem in problems]
    return {"problems": len(times), "feasible": int(np.isfinite(times).sum())}


# ---- parts ----


def without_parts(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in options.tasks:
        problem = load(name, options)
        row = found[name] = {
            f"{seconds:g}": {kind: [] for kind in WITHOUT} for seconds in options.seconds
        }
        for seconds in options.seconds:
            for seed in range(options.seeds):
                for kind, without in WITHOUT.items():
                    begin_s = time.process_time()
                    plan = auto.plan(
                        problem, budget=Budget(seconds=seconds), seed=seed, without=without
                    )
                    processor_s = round(time.process_time() - begin_s, 1)
                    (mean_ns,) = mean_steps_ns(problem, [plan.placement], JUDGING).tolist()
                    row[f"{seconds:g}"][kind].append([mean_ns, processor_s])
            print(_parts_line(name, f"{seconds:g}", row[f"{seconds:g}"]), flush=True)
    return found


def _parts_line(name: str, seconds: str, row: dict[str, Any]) -> str:
    told = []
    for kind, runs in row.items():
        steps_ms = [step_ns / 1e6 for step_ns, _ in runs]
        ratio = max(steps_ms) / min(steps_ms)
        told.append(f"{kind} {statistics.median(steps_ms):.4g} ms (seeds {ratio:.3f})")
    return f"{name}, {seconds} s: {', '.join(told)}"


def _means(rows: dict[str, Any]) -> list[str]:
    """Of the medians of all tasks, over those without either part."""
    told = []
    for seconds in next(iter(rows.values()), {}):
        medians = {
            kind: [statistics.median(ns for ns, _ in row[seconds][kind]) for row in rows.values()]
            for kind in WITHOUT
        }
        ratios = {
            kind: statistics.geometric_mean(
                ns / base for ns, base in zip(medians[kind], medians["neither"], strict=True)
            )
            for kind in WITHOUT
        }
        shares = ", ".join(f"{kind} {ratio:.4f}" for kind, ratio in ratios.items())
        told.append(f"{seconds} s, geometric mean over neither: {shares}")
    return told


# ---- large ----


def large(_: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for num_ops in LARGE_S:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.search", "--large-ops", str(num_ops)],
            capture_output=True,
            text=True,
            check=True,
        )
        found[str(num_ops)] = json.loads(done.stdout)
    return found


def plan_large(num_ops: int) -> dict[str, Any]:
    problem = large_problem(num_ops)
    etf_ns = step_ns(problem, PLANNERS["etf"].plan(problem).placement)
    begin_s = time.monotonic()
    placement = PLANNERS["auto"].plan(problem).placement
    return {
        "seconds": time.monotonic() - begin_s,
        "peak_bytes": peak_bytes(),
        "to_etf": step_ns(problem, placement) / etf_ns,
    }


def peak_bytes() -> int:
    """Of this process; getrusage would count the parent's before the fork."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


# ---- what is printed ----


def lines(results: dict[str, Any]) -> str:
    told = []
    rows = results.get("quality", {})
    told += [_quality_line(name, row) for name, row in rows.items()]
    if rows:
        for goal in ("a", "b"):
            met = sum(goal in goals_met(row) for row in rows.values())
            told.append(f"({goal}) is met by {met} of {len(rows)} tasks")
    for name, curves in results.get("time", {}).items():
        for planner, found in curves.items():
            at = ", ".join(
                f"{moment} s {'-' if ns is None else f'{ns / 1e6:.4g} ms'}"
                for moment, ns in found["at_ns"].items()
            )
            told.append(f"{name}, {planner}: {at}")
    parts = results.get("parts", {})
    told += [_parts_line(name, s, row) for name, rows in parts.items() for s, row in rows.items()]
    told += _means(parts)
    if "optimal" in results:
        for name in ("random", "planted"):
            row = results["optimal"][name]
            told.append(
                f"{name} problems: {row['solved']} of {row['problems']} solved to the optimum, "
                f"the worst at {row['worst']:.3f} of it"
            )
        row = results["optimal"]["packed"]
        told.append(f"memory filled to 98%: {row['feasible']} of {row['problems']} packed")
    for num_ops, row in results.get("large", {}).items():
        told.append(
            f"{int(num_ops):,} ops: {row['seconds']:.1f} s (goal {LARGE_S[int(num_ops)]}), "
            f"{row['peak_bytes'] / 1e9:.2f} GB (goal {LARGE_BYTES / 1e9:.0f}), "
            f"{row['to_etf']:.3f} of etf"
        )
    return "\n".join(told)


def _quality_line(name: str, row: dict[str, Any]) -> str:
    met = goals_met(row)
    learned = ""
    if row["learned_ns"] is not None:
        learned = (
            f"{statistics.median(row['auto_ns']) / row['learned_ns']:.3f} of what was learned, "
        )
    return (
        f"{name} ({row['ops']:,} ops): {statistics.median(row['auto_ns']) / 1e6:.4g} ms "
        f"({min(row['auto_ns']) / 1e6:.4g} to {max(row['auto_ns']) / 1e6:.4g}) in "
        f"{max(row['seconds']):.1f} s, {row['to_baseline']:.3f} of {row['best_baseline']}, "
        f"{learned}{row['to_bound']:.3f} of the lower bound; meets {', '.join(met) or 'neither'}"
    )


_RUN: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "quality": quality,
    "time": over_time,
    "optimal": optimal,
    "parts": without_parts,
    "large": large,
}

if __name__ == "__main__":
    raise SystemExit(main())
