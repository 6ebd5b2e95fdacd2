"""What trained policies of rollouts give on families of graphs that they never saw.

    hplacer policy train -o fold.yaml --budget 20m --leave-out recurrent
    python benchmarks/policies.py fold.yaml=recurrent [FILE=FAMILY,FAMILY ...]

A policy file stands for a fold: it was trained without the families beside it. On generated
problems of these families (seeds from 1000 on) and on the tasks of `hplacer bench` that belong to
them, portfolios at equal effort: trained, the same without gains, set by hand, earliest finish
alone, random weights. The chains of the last three are chosen on problems of the other families.
Efforts: one rollout, the best of 16, and sweeps for one second for 10,000 ops on one core (median
of --seeds). Beside them the best planner that does not search. By the simulator.

    python benchmarks/policies.py --seconds 0.3 1 3 10 --output DIR FOLD ...

With --seconds it is `auto` in so many seconds on all cores instead, whose rollouts use the trained
policies of the fold, or those set by hand as it does: the median of --seeds, the two in turn. Needs
quiet cores.

Results are written to DIR/policies.json, or auto.json, after every problem, and problems that it
has are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.generated import generate
from hplacer_optimizer.planners import Budget, auto
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.planners.policies import BY_HAND, Portfolio, load_portfolio
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.training import evaluation, problems

sys.path.append(str(Path(__file__).resolve().parents[1]))
from benchmarks.rollout import TASKS, least, quick_ns, step_ns

FIRST_SEED = 1000
QUICK_ROW = "best that does not search"

Problems = Sequence[tuple[str, Problem]]
Steps = dict[str, dict[str, float]]  # ns by row, then by effort


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the folds, and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folds", nargs="+", metavar="FILE=FAMILY,...")
    parser.add_argument("--output", type=Path, default=Path("hplacer-policies"), metavar="DIR")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="default: DIR of --output")
    parser.add_argument("--generated", type=int, default=6, metavar="N", help="of each family")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", nargs="+", type=float, default=[], metavar="S", help="`auto`")
    options = parser.parse_args(argv)
    options.problems = options.problems or options.output
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / ("auto.json" if options.seconds else "policies.json")
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for fold in options.folds:
        file, _, families = fold.rpartition("=")
        run_fold(Path(file), families.split(","), options, results, path)
    for line in summary(results):
        print(line)
    return 0


def run_fold(
    file: Path,
    families: list[str],
    options: argparse.Namespace,
    results: dict[str, Any],
    path: Path,
) -> None:
    todo = [(n, p) for n, p in unseen(families, options) if n not in results]
    if not todo:
        return
    trained = load_portfolio(file)
    compare = compare_in_auto if options.seconds else compare_rollouts
    for name, found in compare(todo, trained, families, options):
        results[name] = evaluation.as_json(found)
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(name, results[name], flush=True)


def compare_rollouts(
    todo: Problems, trained: Portfolio, families: list[str], options: argparse.Namespace
) -> Iterator[tuple[str, Steps]]:
    plain = tuple(replace(policy, gains={}) for policy in trained.policies)
    portfolios = {"trained": trained, "without gains": replace(trained, policies=plain)}
    portfolios |= evaluation.rivals(
        problems.training_set(options.problems, generated=3, leave_out=families)
    )
    for name, problem in todo:
        found = evaluation.compare(problem, portfolios, seeds=range(options.seeds))
        found[QUICK_ROW] = dict.fromkeys(
            evaluation.EFFORTS, float(least(iter(quick_ns(problem).values())))
        )
        yield name, found


def compare_in_auto(
    todo: Problems, trained: Portfolio, _: list[str], options: argparse.Namespace
) -> Iterator[tuple[str, Steps]]:
    portfolios = {"trained": trained, "by hand": BY_HAND}
    for name, problem in todo:
        found: Steps = {row: {} for row in portfolios}
        for seconds in options.seconds:
            steps: dict[str, list[float]] = {row: [] for row in portfolios}
            for seed in range(options.seeds):
                for row, portfolio in portfolios.items():
                    budget = Budget(seconds=seconds)
                    result = auto.plan(problem, budget=budget, seed=seed, portfolio=portfolio)
                    steps[row].append(float(step_ns(problem, result.placement) or np.inf))
            for row in portfolios:
                found[row][f"auto, {seconds:g} s"] = float(np.median(steps[row]))
        yield name, found


def unseen(families: list[str], options: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    for family in families:
        generated, workloads = problems.FAMILIES[family]
        for seed in range(FIRST_SEED, FIRST_SEED + options.generated):
            yield f"{family}-{seed}", generate(generated, seed)
        for name in options.tasks:
            if TASKS[name].workload in workloads and not name.endswith(("8xv100", "8xh200")):
                yield name, prepare(TASKS[name], options.problems)


def machines_like(name: str) -> Iterator[str]:
    """What the machine of a generated problem is like."""
    family, _, seed = name.rpartition("-")
    problem = generate(problems.FAMILIES[family][0], int(seed))
    most = next((most for most in (2, 4, 8) if problem.num_devices <= most), None)
    yield f"{most} devices or fewer" if most else "more than 8 devices"
    alone = [simulate(problem, on_device(problem, d)) for d in range(problem.num_devices)]
    yield "ample memory" if all(trace.feasible for trace in alone) else "tight memory"


def summary(results: dict[str, Any]) -> Iterator[str]:
    """Geometric means of trained over each row, and in how many problems it is at or below."""
    generated = [name for name in results if name not in TASKS]
    kinds = {"tasks": [name for name in results if name in TASKS], "generated": generated}
    for name in generated:
        for machine in machines_like(name):
            kinds.setdefault(f"generated, {machine}", []).append(name)
    for kind, names in sorted(kinds.items()):
        rows = next(iter(results.values()))
        for effort in rows["trained"]:
            for row in rows:
                if row == "trained":
                    continue
                mine = [results[name]["trained"][effort] or np.inf for name in names]
                other = [results[name][row][effort] or np.inf for name in names]
                at_or_below = sum(a <= b for a, b in zip(mine, other, strict=True))
                yield (
                    f"{kind}, {effort}: trained / {row} {evaluation.mean_ratio(mine, other):.3f}, "
                    f"at or below in {at_or_below} of {len(names)}"
                )


if __name__ == "__main__":
    sys.exit(main())
