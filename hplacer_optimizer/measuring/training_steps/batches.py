"""What size the inputs of a step have: steps of other batches are not compared.

The shapes of what a function is called with, or a session fed, tell it. What an iterator yields
often has no static size. It is known then from the `batch` of its dataset, and from Keras.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from typing import Any

from hplacer_optimizer.measuring.training_steps.watch import Call

_SIZES_ATTRIBUTE = "_hplacer_batch_sizes"
_BATCHING = ("BatchDataset", "PaddedBatchDataset", "ParallelBatchDataset")
_MOST_DATASETS = 1_000

_of_keras: list[int] = []  # the batch size of the latest loop, if it is known


def install() -> None:
    """Lets iterators remember the batch sizes of their dataset; call it once."""
    install_keras()
    from tensorflow.python.data.ops import iterator_ops

    iterator_class: Any = iterator_ops.OwnedIterator
    original = iterator_class.__init__

    @functools.wraps(original)
    def init(self: Any, dataset: Any = None, *arguments: Any, **keywords: Any) -> None:
        original(self, dataset, *arguments, **keywords)
        if dataset is not None:
            setattr(self._iterator_resource, _SIZES_ATTRIBUTE, _sizes_of_dataset(dataset))

    iterator_class.__init__ = init


def install_keras() -> None:
    """The same for the loops of Keras 3, whose datasets do not show it; nothing without Keras."""
    module = sys.modules.get("keras.src.trainers.epoch_iterator")
    loop_class: Any = getattr(module, "EpochIterator", None)
    if loop_class is None or hasattr(loop_class.__init__, "_hplacer_original"):
        return
    original = loop_class.__init__

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        size = getattr(getattr(self, "data_adapter", None), "batch_size", None)
        _of_keras[:] = [size] if isinstance(size, int) else []

    init._hplacer_original = original  # type: ignore[attr-defined]
    loop_class.__init__ = init


def describe(call: Call) -> str | None:
    """The sizes of this step's inputs; None: they cannot be seen."""
    if hasattr(call.of, "graph") and hasattr(call.of, "list_devices"):
        return _of_session(call)
    return _of_function(call)


def _of_function(call: Call) -> str | None:
    flat = call.arguments[0] if call.arguments else ()
    shapes = [str(value.shape) for value in flat if hasattr(value, "shape")]
    definition = call.of.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    if not _is_open(nodes):
        return "; ".join(shapes)
    captured = [value for value, _ in getattr(call.of.graph, "captures", ())]
    known = [getattr(value, _SIZES_ATTRIBUTE, None) for value in (*flat, *captured)]
    sizes = [size for found in known if found for size in found] or _of_keras
    return "; ".join([*shapes, f"batches of {sizes}"]) if sizes else None


def _of_session(call: Call) -> str | None:
    if not call.arguments or not isinstance(call.arguments[0], tuple):  # of `make_callable`
        feeds: Any = dict(enumerate(call.arguments))
    else:
        arguments, keywords = call.arguments
        feeds = (arguments[0] if arguments else keywords.get("feed_dict")) or {}
    shapes = sorted(f"{getattr(k, 'name', k)}: {_shape(value)}" for k, value in feeds.items())
    graph = call.of.graph
    if not _is_open(op.node_def for op in graph.get_operations()):
        return "; ".join(shapes)
    sizes = _sizes_in_graph(graph)
    return "; ".join([*shapes, f"batches of {sizes}"]) if sizes else None


def _shape(value: Any) -> Any:
    import numpy as np

    return np.shape(value)


def _is_open(nodes: Iterable[Any]) -> bool:
    """Whether an iterator yields what has no static size."""
    for node in nodes:
        if node.op in ("IteratorGetNext", "IteratorGetNextSync", "MultiDeviceIteratorGetNext"):
            shapes = node.attr["output_shapes"].list.shape
            if any(s.unknown_rank or any(d.size < 0 for d in s.dim) for s in shapes):
                return True
    return False


def _sizes_of_dataset(dataset: Any) -> list[int]:
    """Of all `batch` in it, as far as they are known."""
    from tensorflow.python.framework import tensor_util

    todo, sizes = [dataset], []
    for _ in range(_MOST_DATASETS):
        if not todo:
            break
        one = todo.pop()
        size = getattr(one, "_batch_size", None)
        value = None if size is None else tensor_util.constant_value(size)
        sizes += [] if value is None else [int(value)]
        todo += one._inputs()
    return sizes


def _sizes_in_graph(graph: Any) -> list[int]:
    from tensorflow.python.framework import tensor_util

    sizes = []
    for op in graph.get_operations():
        if op.type.removesuffix("V2") in _BATCHING:
            value = tensor_util.constant_value(op.inputs[1])
            sizes += [] if value is None else [int(value)]
    return sizes
