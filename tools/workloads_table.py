"""The sizes of all workloads, each built at its full size in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

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


def table() -> str:
    """The version of TensorFlow, and the Markdown table; takes 5 minutes."""
    import tensorflow as tf

    head = "| workload, parameters | ops | of these in the step | weights |\n|---|--:|--:|--:|\n"
    return f"\nTensorFlow {tf.__version__}:\n\n{head}{''.join(rows())}\n"


def rows(*names: str) -> list[str]:
    """Those of these workloads; without names of all."""
    variants = [variant for variant in VARIANTS if not names or variant[0] in names]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        return list(pool.map(_row, variants))


def _row(variant: tuple[str, dict[str, Any]]) -> str:
    from hplacer_optimizer.workloads.graphs import build_graph, parameters

    name, overrides = variant
    built = build_graph(name, **overrides)
    trained = built.graph.get_collection("trainable_variables")
    weights = sum(variable.shape.num_elements() for variable in trained)
    sizes = {key: value for key, value in parameters(name).items() if key != "seed"} | overrides
    listed = ", ".join(f"{key} {json.dumps(value)}" for key, value in sizes.items())
    ops = len(built.graph.get_operations())
    return f"| `{name}`: {listed} | {ops:,} | {_ops_of_the_step(built):,} | {weights:,} |\n"


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
