"""Is the advice of `hplacer explain` right? Beside planning anew for each changed machine.

    python benchmarks/advice.py [--output FILE] [--problems DIR] [--tasks rnnlm mobilenet_v2-8xa100]

Each task is planned with `auto`. Then `explain` tells what every single change of the machine would
do, and `auto` plans anew for it with as much time as that change had. The ratio of the step times
is 1.00 where both are as good, and above 1 where the advice promises too little. By the simulator.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.bench.tasks import PAPER, modern_tasks
from hplacer_optimizer.inspection.what_if import UNCHANGED, changes, default_seconds, what_ifs
from hplacer_optimizer.planners import PLANNERS, Budget
from hplacer_optimizer.planners.host_offload import accelerators_first
from hplacer_optimizer.problem.simulator import simulate

TASKS = {task.name: task for task in (*PAPER, *modern_tasks())}
DEFAULT_TASKS = ("rnnlm", "inception_v3", "nmt_2")
NEAR = 1.05


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a line for each change, and how many are near."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the results (JSON)")
    parser.add_argument("--problems", type=Path, default=Path("hplacer-advice"), metavar="DIR")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=DEFAULT_TASKS, metavar="TASK")
    options = parser.parse_args(argv)
    options.problems.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "tasks": {}}
    for name in options.tasks:
        results["tasks"][name] = compare(name, prepare(TASKS[name], options.problems))
        if options.output is not None:
            options.output.write_text(result_json(results) + "\n")
    ratios = [row["ratio"] for task in results["tasks"].values() for row in task["changes"]]
    near = sum(ratio <= NEAR for ratio in ratios)
    print(f"{near} of {len(ratios)} within {NEAR - 1:.0%}, the largest ratio is {max(ratios):.3f}")
    return 0


def compare(name: str, problem: Problem) -> dict[str, Any]:
    """One row for the machine as it is and for each change."""
    problem = accelerators_first(problem)
    placement = PLANNERS["auto"].plan(problem).placement
    begin_s = time.monotonic()
    advice = what_ifs(problem, placement)
    took_s = time.monotonic() - begin_s
    print(f"{name}: {problem.num_ops} ops, {len(advice)} machines in {took_s:.1f} s", flush=True)
    machines = {UNCHANGED: problem, **dict(changes(problem))}
    budget = Budget(seconds=default_seconds(problem) / (1 + len(machines)))
    rows = []
    for tried in advice:
        machine = machines[tried.change]
        anew = simulate(machine, PLANNERS["auto"].plan(machine, budget=budget).placement)
        best_ns = tried.best_ns
        if not anew.feasible or anew.makespan_ns is None or best_ns is None:
            continue
        row = {"change": tried.change, "advice_ns": best_ns, "anew_ns": anew.makespan_ns}
        rows.append({**row, "ratio": best_ns / anew.makespan_ns})
        gains = [advice[0].best_ns / ns for ns in (best_ns, anew.makespan_ns) if advice[0].best_ns]
        print(
            f"  {rows[-1]['ratio']:.3f}  {gains[0]:.3f} times as fast, {gains[1]:.3f} anew: "
            f"{tried.change}",
            flush=True,
        )
    return {"ops": problem.num_ops, "seconds": round(took_s, 1), "changes": rows}


if __name__ == "__main__":
    sys.exit(main())
