"""What size the inputs of a session's step have: steps of other batches are not compared.

The shapes of what is fed tell it. What an iterator yields often has no static size. It is known
then from the `batch` of its dataset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hplacer_optimizer.measuring.training_steps.step_observer import Call

_YIELDING = (
    "IteratorGetNext",
    "IteratorGetNextAsOptional",
    "IteratorGetNextSync",
    "MultiDeviceIteratorGetNextFromShard",
)
_BATCHING = ("BatchDataset", "PaddedBatchDataset", "ParallelBatchDataset")


def describe(call: Call) -> str | None:
    """The sizes of the inputs of this step of a session; None: they cannot be seen."""
    shapes, graph = _shapes_of_feeds(call), call.of.graph
    if not _is_open(op.node_def for op in graph.get_operations()):
        return "; ".join(shapes)
    sizes = _sizes_in_graph(graph)
    return "; ".join([*shapes, f"batches of {sizes}"]) if sizes else None


def _shapes_of_feeds(call: Call) -> list[str]:
    arguments, keywords = call.arguments
    if call.again is None:  # of `make_callable`
        feeds: Any = dict(enumerate(arguments))
    else:
        feeds = (arguments[0] if arguments else keywords.get("feed_dict")) or {}
    return sorted(f"{getattr(key, 'name', key)}: {np.shape(value)}" for key, value in feeds.items())


def _is_open(nodes: Iterable[Any]) -> bool:
    """Whether an iterator yields what has no static size."""
    for node in nodes:
        if node.op in _YIELDING:
            shapes = node.attr["output_shapes"].list.shape
            if any(s.unknown_rank or any(d.size < 0 for d in s.dim) for s in shapes):
                return True
    return False


def _sizes_in_graph(graph: Any) -> list[int]:
    """Of all `batch` in it, as far as they are known."""
    from tensorflow.python.framework import tensor_util

    ops = [op for op in graph.get_operations() if op.type.removesuffix("V2") in _BATCHING]
    values = (tensor_util.constant_value(op.inputs[1]) for op in ops)
    return [int(value) for value in values if value is not None]
