"""Does the Hierarchical Planner learn, and is it the learning? By draws, not by time.

    python benchmarks/learning.py [--output DIR] [--tasks TASK ...] [--seeds 3] [--placements 20000]
    python benchmarks/learning.py --kinds hierarchical frozen uniform [--seeds 1]
    python benchmarks/learning.py --markdown [--output DIR]

On the papers' six tasks and five modern ones, by the simulator. Each kind of KINDS draws and scores
--placements; the same seed gives the same figures on any machine, however busy it is:

    best_ns    the best draw
    last_ns    the mean of the last tenth of the draws that fit, and `infeasible` of them do not
    fresh_ns   the mean of 1,000 more draws of the final policy, with another seed
    curve      up to 100 points of [placements, best, mean]

Beside them stand planners that do not search. DIR/learning.json is written after every run, and a
run goes on with what it has not. --markdown prints the tables of docs/results/learning.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.tasks import PAPER, modern_tasks
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.machines.host import whole_cores
from hplacer_optimizer.planners import PLANNERS, Budget
from hplacer_optimizer.planners.learning import PRESETS, learn
from hplacer_optimizer.planners.learning.hierarchical import HierarchicalPolicy
from hplacer_optimizer.problem.simulator import simulate, simulate_batch

TASKS = {task.name: task for task in (*PAPER, *modern_tasks(("8xa100",)))}
RIVALS = ("gpu_only", "human_expert", "scotch", "mincut", "metis", "etf", "heft")
_NEVER = {"learning_rate": 0.0}
# (model, settings in place of the default ones)
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "hierarchical": ("hierarchical", {}),
    "frozen": ("hierarchical", _NEVER),  # the first logits, of the best kind of groups
    "uniform": ("hierarchical", {**_NEVER, "uniform": True, "moved_items": 0.0}),
    "no Grouper": ("hierarchical", {"neighbours": 0}),
    "Grouper not learned": ("hierarchical", {"learns_groups": False}),
    "neighbours at random": ("hierarchical", {"near": False}),
    "no z-score": ("hierarchical", {"z_score": False}),
    "no Rao-Blackwell": ("hierarchical", {"rao_blackwell": False}),
    "no race": ("hierarchical", {"race": False}),
    "no finer groups": ("hierarchical", {"finer": False}),
    "hierarchical_no_grouping": ("hierarchical_no_grouping", {}),
    "hierarchical_random_grouping": ("hierarchical_random_grouping", {}),
    "colocrl": ("colocrl", {}),
}
_FRESH = 1_000
_POINTS = 100


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is missing, or prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("hplacer-learning"), metavar="DIR")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["hierarchical"])
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument("--placements", type=int, default=20_000, help="default: 20,000")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="default: DIR of --output")
    parser.add_argument("--markdown", action="store_true", help="print tables, run nothing")
    options = parser.parse_args(argv)
    path = options.output / "learning.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if options.markdown:
        print("\n".join([*_table(found), "", *_ablation_table(found)]))
        return 0
    problems = options.problems or options.output
    for directory in (options.output, problems):
        directory.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):  # so that a run that is stopped has something of all tasks
        for name in options.tasks:
            problem = prepare(TASKS[name], problems)
            row = found.setdefault(name, {"ops": problem.num_ops, "runs": {}})
            if "rivals" not in row:
                row["rivals"] = {rival: _rival_ns(problem, rival) for rival in RIVALS}
            for kind in options.kinds:
                runs = row["runs"].setdefault(kind, [])
                wanted = {"seed": seed, "placements": options.placements}
                if any(run | wanted == run for run in runs):
                    continue
                runs.append(wanted | _run(problem, kind, seed, options.placements))
                path.write_text(json.dumps(found) + "\n")
                print(name, kind, {k: v for k, v in runs[-1].items() if k != "curve"}, flush=True)
    return 0


def _rival_ns(problem: Problem, planner: str) -> int | None:
    """None: it does not fit."""
    try:
        trace = simulate(problem, PLANNERS[planner].plan(problem, seed=0).placement)
    except HPlacerError as error:
        print(f"{planner}: {error}", file=sys.stderr)
        return None
    return trace.makespan_ns if trace.feasible else None


def _run(problem: Problem, kind: str, seed: int, placements: int) -> dict[str, Any]:
    model, settings = KINDS[kind]
    begin_s = time.process_time()
    budget = Budget(steps=placements // PRESETS["default"].batch)
    told: list[list[float | None]] = []
    shares = []

    def tell(progress: Any) -> None:
        told.append([progress.placements, progress.best_ns, progress.mean_ns])
        shares.append(progress.infeasible)

    learned = learn(
        problem, model=model, settings=settings, budget=budget, seed=seed, on_progress=tell
    )
    seconds = time.process_time() - begin_s
    last = len(told) - len(told) // 10
    return {
        "best_ns": learned.makespan_ns,
        "last_ns": _mean([mean for _, _, mean in told[last:]]),
        "infeasible": round(float(np.mean(shares[last:])), 4),
        "fresh_ns": _fresh_ns(problem, learned.policy, seed),
        "processor_s": round(seconds, 1),
        "curve": _thinned(told),
    }


def _fresh_ns(problem: Problem, policy: Any, seed: int) -> float | None:
    assert isinstance(policy, HierarchicalPolicy)
    seeds = np.random.SeedSequence([seed, 1]).generate_state(
        _FRESH // PRESETS["default"].batch + 1, np.uint64
    )
    placements = np.concatenate([policy.sample(int(other)) for other in seeds])[:_FRESH]
    makespan_ns, feasible, _ = simulate_batch(problem, placements, threads=whole_cores())
    return _mean(makespan_ns[feasible].tolist())


def _thinned(told: list[list[float | None]]) -> list[list[float | None]]:
    points = []
    for part in np.array_split(np.arange(len(told)), min(_POINTS, len(told))):
        mean = _mean([told[i][2] for i in part])
        points.append([*told[part[-1]][:2], mean])
    return points


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known))) if known else None


# ---- tables ----


def _table(found: dict[str, Any]) -> list[str]:
    """Of medians in ms, and how far they are from the best planner that does not search."""
    lines = [
        "| task | one GPU | expert | best of 7 | best draw | last tenth | fresh draws | "
        "best draw / best of 7 | last tenth / best of 7 | fresh / best draw | "
        "seeds: highest / lowest |",
        "|---" * 11 + "|",
    ]
    for name, row in found.items():
        runs = row["runs"].get("hierarchical", [])
        if not runs:
            continue
        best, last, fresh = (
            statistics.median(run[key] for run in runs)
            for key in ("best_ns", "last_ns", "fresh_ns")
        )
        rival = min(ns for ns in row["rivals"].values() if ns is not None)
        of_seeds = [run["best_ns"] for run in runs]
        off = max(run["fresh_ns"] / run["best_ns"] for run in runs)
        cells = [_ms(row["rivals"][name]) for name in ("gpu_only", "human_expert")]
        cells += [_ms(ns) for ns in (rival, best, last, fresh)]
        ratios = (best / rival, last / rival, off, max(of_seeds) / min(of_seeds))
        cells += [f"{ratio:.3f}" for ratio in ratios]
        lines.append(f"| {TASKS[name].title} | {' | '.join(cells)} |")
    return lines


def _ablation_table(found: dict[str, Any]) -> list[str]:
    """Best draw and mean of the last tenth of each kind, over those of `hierarchical`."""
    names = [name for name, row in found.items() if len(row["runs"]) > 1]
    lines = [
        f"| best draw, last tenth | {' | '.join(TASKS[name].title for name in names)} |",
        "|---" * (1 + len(names)) + "|",
    ]
    for kind in KINDS:
        cells = []
        for name in names:
            runs = {run["seed"]: run for run in found[name]["runs"].get(kind, [])}
            base = {run["seed"]: run for run in found[name]["runs"]["hierarchical"]}
            ratios = [
                statistics.mean(runs[seed][key] / base[seed][key] for seed in runs)
                for key in ("best_ns", "last_ns")
                if runs and all(run[key] for run in runs.values())
            ]
            cells.append(", ".join(f"{ratio:.3f}" for ratio in ratios) or "–")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def _ms(ns: float | None) -> str:
    return "does not fit" if ns is None else f"{ns / 1e6:.4g}"


if __name__ == "__main__":
    sys.exit(main())
