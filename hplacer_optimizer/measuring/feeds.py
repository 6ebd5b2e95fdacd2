"""Random values for what a step is fed with, in ranges that its ops accept.

Integers are mostly indices or labels: what consumes them, also behind ops that only move values,
tells how large they may be. Where nothing does, they are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.errors import GraphError

_DEFAULT_BOUND = 2


def random_value(tensor: Any, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    """Numbers in [0, 1), booleans, or integers that all consumers accept.

    Raises GraphError, which names the op, for a type that no random value can stand for.
    """
    dtype = tensor.dtype
    if dtype.is_integer:
        return rng.integers(0, integer_bound(tensor), shape).astype(dtype.as_numpy_dtype)
    if dtype.is_floating or dtype.is_complex:
        return rng.random(shape, np.float32).astype(dtype.as_numpy_dtype)
    if dtype.is_bool:
        return rng.random(shape) < 0.5
    raise GraphError(
        f"op '{tensor.op.name}' is fed with {dtype.name} values: give them as "
        f"feeds={{'{tensor.op.name}': ...}}"
    )


def integer_bound(tensor: Any) -> int:
    """The least bound that a consumer sets: values are less; 2 if none does."""
    bounds = [
        bound
        for op, index in _consumers(tensor)
        if op.type in _BOUNDS
        for bound in [_BOUNDS[op.type](op, index)]
        if bound is not None and bound > 0
    ]
    return min(bounds, default=_DEFAULT_BOUND)


def _consumers(tensor: Any) -> Iterator[tuple[Any, int]]:
    """Ops that see the tensor's values, and as which input."""
    seen = {tensor.name}
    waiting = [tensor]
    while waiting:
        current = waiting.pop()
        for op in current.consumers():
            for index, source in enumerate(op.inputs):
                if source is not current:
                    continue
                yield op, index
                for output in op.outputs if _moves_values(op, index) else ():
                    if output.name not in seen:
                        seen.add(output.name)
                        waiting.append(output)


# Inputs whose values appear in the outputs; None: all.
_MOVERS: dict[str, tuple[int, ...] | None] = {
    "BroadcastTo": (0,),
    "Cast": (0,),
    "ConcatV2": None,
    "Enter": (0,),
    "Exit": (0,),
    "ExpandDims": (0,),
    "Gather": (0,),
    "GatherV2": (0,),
    "Identity": (0,),
    "IdentityN": None,
    "Merge": None,
    "NextIteration": (0,),
    "Pack": None,
    "Pad": (0,),
    "PlaceholderWithDefault": (0,),
    "Reshape": (0,),
    "ReverseSequence": (0,),
    "ReverseV2": (0,),
    "Select": (1, 2),
    "SelectV2": (1, 2),
    "Slice": (0,),
    "Split": (1,),
    "SplitV": (0,),
    "Squeeze": (0,),
    "StopGradient": (0,),
    "StridedSlice": (0,),
    "Switch": (0,),
    "TensorArrayReadV3": (2,),
    "TensorArrayScatterV3": (2,),
    "TensorListFromTensor": (0,),
    "TensorListGetItem": (0,),
    "TensorListStack": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Unique": (0,),
    "UniqueV2": (0,),
    "Unpack": (0,),
}


def _moves_values(op: Any, index: int) -> bool:
    if op.type == "Cast" and not op.outputs[0].dtype.is_integer:
        return False
    inputs = _MOVERS.get(op.type, ())
    return inputs is None or index in inputs


def _size(tensor: Any, axis: int) -> int | None:
    shape = tensor.shape
    if shape.rank is None or not -shape.rank <= axis < shape.rank:
        return None
    size: int | None = shape[axis]
    return size


def _rows(handle: Any) -> int | None:
    """Of the variable behind a handle."""
    from tensorflow.python.ops import handle_data_util

    data = handle_data_util.get_resource_handle_data(handle)
    if data is None or not data.is_set or not data.shape_and_type[0].shape.dim:
        return None
    rows: int = data.shape_and_type[0].shape.dim[0].size
    return rows


def _constant(tensor: Any) -> Any:
    import tensorflow as tf

    return tf.get_static_value(tensor)


def _smallest(values: Any) -> int | None:
    return None if values is None or not np.size(values) else int(np.min(values))


def _of_gather(op: Any, index: int) -> int | None:
    axis = _constant(op.inputs[2])
    return _size(op.inputs[0], int(axis)) if index == 1 and axis is not None else None


def _of_gather_nd(op: Any, index: int) -> int | None:
    depth = _size(op.inputs[1], -1)
    sizes = [_size(op.inputs[0], axis) for axis in range(depth or 0)]
    return min((size for size in sizes if size), default=None) if index == 1 else None


def _at(position: int, bound: Callable[[Any], int | None]) -> Callable[[Any, int], int | None]:
    """What bounds one input of an op."""
    return lambda op, index: bound(op) if index == position else None


_SORTED = _at(1, lambda op: 1)  # segments in order: all zero
_SEGMENTS = _at(1, lambda op: _smallest(_constant(op.inputs[2])))
_ROWS_OF_HANDLE = _at(1, lambda op: _rows(op.inputs[0]))
_CLASSES = _at(1, lambda op: _size(op.inputs[0], -1))


def _of_sparse_segments(op: Any, index: int) -> int | None:
    return {1: _size(op.inputs[0], 0), 2: 1}.get(index)


_BOUNDS: dict[str, Callable[[Any, int], int | None]] = {
    "DynamicPartition": _at(1, lambda op: int(op.get_attr("num_partitions"))),
    "Gather": _at(1, lambda op: _size(op.inputs[0], 0)),
    "GatherNd": _of_gather_nd,
    "GatherV2": _of_gather,
    "InTopK": _CLASSES,
    "InTopKV2": _CLASSES,
    "OneHot": _at(0, lambda op: _smallest(_constant(op.inputs[1]))),
    "ResourceGather": _ROWS_OF_HANDLE,
    "ResourceScatterAdd": _ROWS_OF_HANDLE,
    "ResourceScatterSub": _ROWS_OF_HANDLE,
    "ResourceScatterUpdate": _ROWS_OF_HANDLE,
    "ReverseSequence": _at(1, lambda op: _size(op.inputs[0], op.get_attr("seq_dim"))),
    "ScatterNd": _at(0, lambda op: _smallest(_constant(op.inputs[2]))),
    "SegmentMax": _SORTED,
    "SegmentMean": _SORTED,
    "SegmentSum": _SORTED,
    "SparseSegmentMean": _of_sparse_segments,
    "SparseSegmentSqrtN": _of_sparse_segments,
    "SparseSegmentSum": _of_sparse_segments,
    "SparseSoftmaxCrossEntropyWithLogits": _CLASSES,
    "UnsortedSegmentMax": _SEGMENTS,
    "UnsortedSegmentSum": _SEGMENTS,
}
