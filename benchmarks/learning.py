"""Does the Hierarchical Planner learn, and is it the learning? By draws, not by time.

    python benchmarks/learning.py [--output DIR] [--tasks TASK ...] [--seeds 3] [--placements 20000]
    python benchmarks/learning.py --kinds hierarchical frozen uniform

On the papers' six tasks and five modern ones, by the simulator. Each kind of KINDS draws and scores
--placements: `hierarchical` with each seed, the others, of which each lacks a part, with the first
one. The same seed gives the same figures on any machine, however busy it is:

    best_ns    the best draw
    last_ns    the mean of the last tenth of the draws that fit, and `infeasible` of them do not
    fresh_ns   the mean of 1,000 more draws of the final policy, with another seed

Beside them stand planners that do not search. DIR/learning.json is written after every run, and a
run goes on with what it has not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.result_json import result_json
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("hplacer-learning"), metavar="DIR")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument("--placements", type=int, default=20_000, help="default: 20,000")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="default: DIR of --output")
    options = parser.parse_args(argv)
    path = options.output / "learning.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
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
                if seed and kind != "hierarchical":
                    continue
                runs = row["runs"].setdefault(kind, [])
                wanted = {"seed": seed, "placements": options.placements}
                if any(run | wanted == run for run in runs):
                    continue
                runs.append(wanted | _run(problem, kind, seed, options.placements))
                path.write_text(result_json(found) + "\n")
                print(name, kind, runs[-1], flush=True)
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
    means: list[float | None] = []
    shares = []

    def tell(progress: Any) -> None:
        means.append(progress.mean_ns)
        shares.append(progress.infeasible)

    learned = learn(
        problem, model=model, settings=settings, budget=budget, seed=seed, on_progress=tell
    )
    seconds = time.process_time() - begin_s
    last = len(means) - len(means) // 10
    return {
        "best_ns": learned.makespan_ns,
        "last_ns": _mean(means[last:]),
        "infeasible": round(float(np.mean(shares[last:])), 4),
        "fresh_ns": _fresh_ns(problem, learned.policy, seed),
        "processor_s": round(seconds, 1),
    }


def _fresh_ns(problem: Problem, policy: Any, seed: int) -> float | None:
    assert isinstance(policy, HierarchicalPolicy)
    seeds = np.random.SeedSequence([seed, 1]).generate_state(
        _FRESH // PRESETS["default"].batch + 1, np.uint64
    )
    placements = np.concatenate([policy.sample(int(other)) for other in seeds])[:_FRESH]
    makespan_ns, feasible, _ = simulate_batch(problem, placements, threads=whole_cores())
    return _mean(makespan_ns[feasible].tolist())


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known))) if known else None


if __name__ == "__main__":
    sys.exit(main())
