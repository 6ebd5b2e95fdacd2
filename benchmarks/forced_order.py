"""What would a plan's steps gain if TensorFlow launched ops in the order of the plan's schedule?

TensorFlow's executor launches what is ready in an order of its own. Here a plan of `auto` that
benchmarks/agreement.py has kept is executed twice on emulated GPUs: as it is, and with a control
edge from each op of a GPU to the next one in the simulated schedule. The edges stay on a device, so
that nothing more is sent. Simulated starts rise along edges, so that no cycle can arise.

    python -m benchmarks.forced_order --tasks rnnlm nmt_2 transformer-8xa100
    python -m benchmarks.forced_order --tasks nmt_2 --executed docs/results/emulation
    python -m benchmarks.forced_order --tasks nmt_2 --placement "rollout 0"
    python -m benchmarks.forced_order --tasks nmt_2 --small --placement "2 stripes"

An option of the plugin would be worth it if steps got 5% shorter on at least three tasks. Every
task runs in a process of its own.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.agreement import BUILD, kept_labels, kept_of
from benchmarks.emulation import (
    SMALL,
    gpus_of,
    load_data_sheet_task,
    measure,
    print_row,
    rows_told,
    simple_placements,
    step_runner_of,
    task_parser,
)
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture.loading import LoadedGraph
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.problem.simulator import simulate

STEPS = 5
FREE, FORCED = "free", "forced"


def chains(problem: Problem, placement: NDArray[np.int32]) -> Iterator[list[int]]:
    """The ops of each GPU that take time there, in the order of their simulated starts."""
    trace = simulate(problem, placement)
    start_ns, finish_ns = np.asarray(trace.start_ns), np.asarray(trace.finish_ns)
    for gpu in gpus_of(problem):
        ops = np.flatnonzero((placement == gpu) & (finish_ns > start_ns))
        yield ops[np.argsort(start_ns[ops], kind="stable")].tolist()


def with_order(loaded: LoadedGraph, placement: NDArray[np.int32]) -> tuple[LoadedGraph, int]:
    """The task with the edges in its step; how many there are."""
    from tensorflow.core.framework import graph_pb2

    assert loaded.step is not None
    graph_def = graph_pb2.GraphDef.FromString(loaded.step.graph_def)
    nodes = {node.name: node for node in graph_def.node}
    nodes_of_op = defaultdict(list)  # several of a loop
    for name, op in zip(loaded.step.node_names, loaded.step.node_op, strict=True):
        nodes_of_op[int(op)].append(name)
    added = 0
    for chain in chains(loaded.problem, placement):
        names = [nodes_of_op[op][0] for op in chain if len(nodes_of_op[op]) == 1]
        for before, after in itertools.pairwise(names):
            nodes[after].input.append(f"^{before}")
            added += 1
    step = replace(loaded.step, graph_def=graph_def.SerializeToString())
    return replace(loaded, step=step), added


def run_task(name: str, sizes: dict[str, Any], label: str, executed: Path) -> None:
    """Prints a line of JSON for either."""
    loaded = load_data_sheet_task(name, sizes)
    made = simple_placements(loaded.problem)
    if label not in made and label not in kept_labels(name, executed):
        raise HPlacerError(
            f"{name}: there is no placement '{label}'; run benchmarks.agreement with --plan first"
        )
    placement = made[label] if label in made else kept_of(name, loaded.problem, executed)[label]
    problem = loaded.problem
    print_row(measure(step_runner_of(loaded), problem, FREE, placement, steps=STEPS))
    forced, edges = with_order(loaded, placement)
    row = measure(step_runner_of(forced), problem, FORCED, placement, steps=STEPS)
    print_row(row | {"edges": edges})


def line_of(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """Both steps beside the simulated one."""
    by_label = {row["placement"]: row for row in rows}
    free, forced = (float(np.median(by_label[label]["steps_ns"])) for label in (FREE, FORCED))
    simulated = by_label[FREE]["simulated_ns"]
    return (
        f"| {name} | {simulated / 1e6:.1f} | {free / 1e6:.1f} | {forced / 1e6:.1f} | "
        f"{forced / free - 1:+.1%} | {by_label[FORCED]['edges']} |"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a table."""
    parser = task_parser(__doc__)
    parser.add_argument("--placement", default="auto 0", metavar="NAME", help="default: auto 0")
    parser.add_argument("--executed", type=Path, default=BUILD, metavar="DIR", help="its output")
    options = parser.parse_args(argv)
    if options.task:
        sizes = SMALL.get(options.task, {}) if options.small else {}
        run_task(options.task, sizes, options.placement, options.executed)
        return 0
    print("| task | simulated, ms | executed | in the simulated order | difference | edges |")
    print("|---|---|---|---|---|---|")
    for name in options.tasks:
        arguments = ["benchmarks.forced_order", "--task", name, "--placement", options.placement]
        arguments += ["--executed", str(options.executed)]
        arguments += ["--small"] * options.small
        rows = list(rows_told(arguments))
        if len(rows) < len((FREE, FORCED)):
            rows.append({"error": "its process failed"})
        failed = [row["error"] for row in rows if "error" in row]
        print(f"| {name} | {failed[0]} |" if failed else line_of(name, rows), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
