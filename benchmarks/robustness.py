"""What making placements robust brings: the mean step over drawn costs that nobody has seen before.

    python benchmarks/robustness.py [--output docs/results/robustness] [--graphs "two towers" ...]

Small training graphs on two workers and on a CPU with four GPUs. `local_search` looks for a
placement of each; what follows in `auto` is tried with and without robustness. All placements meet
the same 100 draws, of other seeds than those that `auto` looks at, with the typical errors of
measured and of estimated costs. As shares of the mean step of what `local_search` found:

    settled  moves that do not pay are taken back, for the costs as they stand
    moved    as many moves as for a robust placement, for the costs as they stand
    robust   moves that shorten the mean step over draws of measured costs
    auto     and then those taken back that do not pay
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.bench.small_graphs import GRAPHS
from hplacer_optimizer.capture.loading import load_problem
from hplacer_optimizer.planners import Budget, local_search
from hplacer_optimizer.planners.robustness import MeanStep, make_robust
from hplacer_optimizer.planners.settling import settle
from hplacer_optimizer.problem.cost_errors import MEASURED_COSTS, drawn_steps_ns, typical_errors
from hplacer_optimizer.problem.simulator import simulate_batch

DEFAULT_GRAPHS = (
    *("two unequal towers", "two equal encoders", "attention heads", "branching convolutions"),
    *("images down and up", "layers of experts", "two-tower recommender", "four experts"),
    *("translation", "language model"),
)
MACHINES = {
    "two workers": Path(__file__).parents[1] / "testbed/two_cpus.yaml",
    "1cpu-4xk40": "1cpu-4xk40",
}
NAMES = ("settled", "moved", "robust", "auto")
SOURCES = ("measured", "analytic")
_BUDGET = Budget(seconds=5.0)
_SETTLING_S = 0.5
_DRAWS, _SEED = 100, 999
_WRITE = "import sys, pathlib; from hplacer_optimizer.bench.small_graphs import write; "
_WRITE += "write(sys.argv[1], pathlib.Path(sys.argv[2]))"


def main(argv: Sequence[str] | None = None) -> int:
    """Plans all graphs, prints a line for each and the means, and writes robustness.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--graphs", nargs="+", choices=GRAPHS, default=DEFAULT_GRAPHS, metavar="NAME"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="for robustness.json")
    options = parser.parse_args(argv)
    rows = []
    for graph in options.graphs:
        for machine, problem in problems(graph):
            rows.append({"graph": graph, "machine": machine, **compared(problem)})
            print(rows[-1], flush=True)
    means = {
        source: {
            name: {"mean": float(np.mean(of_name)), "worst": max(of_name)}
            for name in NAMES
            for of_name in [[row[source][name] for row in rows]]
        }
        for source in SOURCES
    }
    print(json.dumps(means, indent=1))
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        document = result_json({"means": means, "rows": rows})
        (options.output / "robustness.json").write_text(document + "\n")
    return 0


def problems(graph: str) -> list[tuple[str, Problem]]:
    """The graph on each machine; TensorFlow writes it in a process of its own."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "graph.meta"
        command = [sys.executable, "-c", _WRITE, graph, path]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return [(name, load_problem(path, machine=machine)) for name, machine in MACHINES.items()]


def compared(problem: Problem) -> dict[str, Any]:
    """Shares of the mean step of what was found, by the source of the costs, and what it costs."""
    home = problem.default_device
    assert home is not None
    budget = _BUDGET.or_default(local_search.default_budget(problem))
    found = local_search.plan(problem, budget=budget).placement
    moved, _ = moved_from(problem, found, 0)
    robust, mean_step = moved_from(problem, found, 1)
    settled = settle(problem, found, home, seconds=_SETTLING_S)
    auto = settle(
        problem,
        robust,
        home,
        seconds=_SETTLING_S,
        step_ns=mean_step.of,
        simulations=mean_step.simulations,
    )
    placements = np.stack([found, settled, moved, robust, auto])
    result: dict[str, Any] = {"ops": problem.num_ops}
    for source in SOURCES:
        steps_ns = drawn_steps_ns(
            problem, placements, typical_errors(source), draws=_DRAWS, seed=_SEED
        ).mean(axis=0)
        result[source] = shares(steps_ns)
    result["as the costs stand"] = shares(simulate_batch(problem, placements)[0])
    return result


def moved_from(
    problem: Problem, found: NDArray[np.int32], times: float
) -> tuple[NDArray[np.int32], MeanStep]:
    """A placement made robust against errors that are so many times as large as typical ones."""
    mean_step = MeanStep.over_draws(problem, [found], errors=MEASURED_COSTS.times(times))
    assert mean_step is not None
    return make_robust(problem, [found], mean_step), mean_step


def shares(steps_ns: NDArray[Any]) -> dict[str, float]:
    """Of the first step, rounded."""
    return {
        name: round(float(step_ns / steps_ns[0]), 4)
        for name, step_ns in zip(NAMES, steps_ns[1:], strict=True)
    }


if __name__ == "__main__":
    sys.exit(main())
