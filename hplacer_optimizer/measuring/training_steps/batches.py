"""What size the inputs of a step have: steps of other batches are not compared.

The shapes of what a function is called with, or a session fed, tell it. What an iterator yields
often has no static size. It is known then from the `batch` of its dataset, and from Keras.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from hplacer_optimizer.measuring.training_steps.step_observer import Call

_SIZES_ATTRIBUTE = "_hplacer_batch_sizes"
_YIELDING = (
    "IteratorGetNext",
    "IteratorGetNextAsOptional",
    "IteratorGetNextSync",
    "MultiDeviceIteratorGetNextFromShard",
)
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
            with contextlib.suppress(Exception):  # then the size is not known; training goes on
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
        _of_keras.clear()
        with contextlib.suppress(Exception):  # an adapter of one's own need not have it
            if isinstance(size := self.data_adapter.batch_size, int):
                _of_keras.append(size)

    init._hplacer_original = original  # type: ignore[attr-defined]
    loop_class.__init__ = init


def describe(call: Call) -> str | None:
    """The sizes of this step's inputs; None: they cannot be seen."""
    from tensorflow.python.client import session

    graph = call.of.graph
    if isinstance(call.of, session.BaseSession):
        shapes = _shapes_of_feeds(call)
        is_open = _is_open(op.node_def for op in graph.get_operations())
        sizes = _sizes_in_graph(graph) if is_open else []
    else:
        flat = call.arguments[0] if call.arguments else ()
        shapes = [str(value.shape) for value in flat if hasattr(value, "shape")]
        definition = graph.as_graph_def()
        functions = definition.library.function
        is_open = _is_open(itertools.chain(definition.node, *(f.node_def for f in functions)))
        sizes = (_sizes_of_iterators(call.of, flat) or _of_keras) if is_open else []
    if is_open and not sizes:
        return None
    return "; ".join([*shapes, f"batches of {sizes}"] if is_open else shapes)


def _shapes_of_feeds(call: Call) -> list[str]:
    arguments, keywords = call.arguments
    if call.again is None:  # of `make_callable`
        feeds: Any = dict(enumerate(arguments))
    else:
        feeds = (arguments[0] if arguments else keywords.get("feed_dict")) or {}
    return sorted(f"{getattr(key, 'name', key)}: {np.shape(value)}" for key, value in feeds.items())


def _sizes_of_iterators(function: Any, flat: Iterable[Any]) -> list[int]:
    captured = (value for value, _ in getattr(function.graph, "captures", ()))
    known = (getattr(value, _SIZES_ATTRIBUTE, None) for value in (*flat, *captured))
    return [size for found in known if found for size in found]


def _is_open(nodes: Iterable[Any]) -> bool:
    """Whether an iterator yields what has no static size."""
    for node in nodes:
        if node.op in _YIELDING:
            shapes = node.attr["output_shapes"].list.shape
            if any(s.unknown_rank or any(d.size < 0 for d in s.dim) for s in shapes):
                return True
    return False


def _sizes_of_dataset(dataset: Any) -> list[int]:
    """Of all `batch` in it, as far as they are known."""
    todo, sizes = [dataset], []
    for _ in range(_MOST_DATASETS):
        if not todo:
            break
        one = todo.pop()
        sizes.append(getattr(one, "_batch_size", None))
        todo += one._inputs()
    return _constants(sizes)


def _sizes_in_graph(graph: Any) -> list[int]:
    ops = [op for op in graph.get_operations() if op.type.removesuffix("V2") in _BATCHING]
    return _constants([op.inputs[1] for op in ops])


def _constants(tensors: Iterable[Any]) -> list[int]:
    """The values of those that are known."""
    from tensorflow.python.framework import tensor_util

    values = (None if tensor is None else tensor_util.constant_value(tensor) for tensor in tensors)
    return [int(value) for value in values if value is not None]
