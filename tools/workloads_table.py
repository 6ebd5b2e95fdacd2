"""Builds every workload at its full size and writes the table of docs/reference/workloads.md.

    python tools/workloads_table.py              all rows, into the document; about 5 minutes
    python tools/workloads_table.py nmt rnnlm    their rows only, printed

Every row is built in a process of its own.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "reference" / "workloads.md"
BEGIN, END = "<!-- table: python tools/workloads_table.py -->", "<!-- end of the table -->"
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("inception_v3", {}),
    ("resnet", {}),
    ("rnnlm", {}),
    ("nmt", {}),
    ("nmt", {"layers": 4}),
    ("nmt", {"layers": 8}),
    ("transformer", {}),
    ("bert_base", {}),
    ("efficientnet_b0", {}),
    ("mobilenet_v2", {}),
    ("two_tower", {}),
]


def main(names: list[str]) -> None:
    """Prints the rows of these workloads; without names writes the document."""
    variants = [variant for variant in VARIANTS if not names or variant[0] in names]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        rows = list(pool.map(_row, variants))
    if names:
        print("\n".join(rows))
        return
    text = DOCUMENT.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    head = ["| workload, parameters | ops | of these in the step | weights |", "|---|--:|--:|--:|"]
    table = "\n".join([*head, *rows])
    DOCUMENT.write_text(f"{text[:start]}\n\n{_tensorflow()}\n\n{table}\n\n{text[end:]}")


def _row(variant: tuple[str, dict[str, Any]]) -> str:
    from hplacer_optimizer.workloads.graphs import build_graph, parameters

    name, overrides = variant
    built = build_graph(name, **overrides)
    trained = built.graph.get_collection("trainable_variables")
    weights = sum(variable.shape.num_elements() for variable in trained)
    sizes = {key: value for key, value in parameters(name).items() if key != "seed"} | overrides
    listed = ", ".join(f"{key} {json.dumps(value)}" for key, value in sizes.items())
    ops = len(built.graph.get_operations())
    return f"| `{name}`: {listed} | {ops:,} | {_ops_of_the_step(built):,} | {weights:,} |"


def _ops_of_the_step(built: Any) -> int:
    """Ops that a run of the loss and the update needs."""
    found = set()
    waiting = [built.train_op, built.loss.op]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return len(found)


def _tensorflow() -> str:
    import tensorflow as tf

    return f"TensorFlow {tf.__version__}:"


if __name__ == "__main__":
    main(sys.argv[1:])
