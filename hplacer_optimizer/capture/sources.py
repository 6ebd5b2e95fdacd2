"""What can be loaded, as seen from the process that asks: files by name, live objects in bytes.

This module imports TensorFlow only to serialise its live objects, which exist only where it has
been imported already.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture.runnable_step import Argument, Variable
from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.machines import host

MAX_BYTES = 2**31 - 1  # of one serialised protocol buffer
_PEEK_BYTES = 4096
_NOT_IN_JSON = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class GraphSource:
    """A graph for another process to capture: either a file (or directory) or a serialised one."""

    name: str  # for people
    path: str = ""
    graph_def: bytes = b""
    function: str = ""  # in the graph's library; "": the graph itself
    arguments: tuple[Argument, ...] = ()
    targets: tuple[str, ...] = ()
    devices: tuple[dict[str, Any], ...] = ()  # of this process, as `_tf.SessionDevice` takes them
    threads: tuple[int, int] = (0, 0)  # of this process: inter-op and intra-op, 0: as many as cores
    tf32: bool = True  # whether products of float32 may run in TF32

    @property
    def num_bytes(self) -> int:
        """Of the serialised graph; a directory counts the files directly in it."""
        if not self.path:
            return len(self.graph_def)
        path = Path(self.path)
        files = [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
        return sum(file.stat().st_size for file in files)


def is_problem_file(source: object) -> bool:
    """Whether a path leads to a problem file: JSON, or anything that is gzip-compressed."""
    if not isinstance(source, (str, os.PathLike)) or not Path(source).is_file():
        return False
    with open(source, "rb") as stream:
        start = stream.read(_PEEK_BYTES)
    # A graph that begins with a node of 123 bytes looks like "\n{" and what follows.
    is_json = start.lstrip().startswith(b"{") and not _NOT_IN_JSON.search(start)
    is_json = is_json or Path(source).suffix == ".json"
    return start.startswith(_GZIP_MAGIC) or is_json


def describe(
    source: object, targets: Sequence[object] = (), *, is_elsewhere: bool = False
) -> GraphSource:
    """What has to be captured; `is_elsewhere`: for another machine than the one that runs it.

    What was described already stays as it is.

    Raises GraphError if the source is none of the kinds that can be loaded.
    """
    if isinstance(source, GraphSource):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _describe_path(source, targets)
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        if isinstance(source, tf.types.experimental.ConcreteFunction):
            return _describe_function(source, targets, is_elsewhere)
        if isinstance(source, tf.types.experimental.GenericFunction):
            raise GraphError(
                f"{source!r} has a graph per signature: pass one of them, "
                "function.get_concrete_function(*example_arguments)"
            )
        if isinstance(source, tf.Graph):
            return _describe_graph(source, targets)
    raise GraphError(
        f"cannot load a {type(source).__name__}: pass a path (MetaGraphDef, GraphDef, SavedModel "
        "directory or problem file), a tf.Graph or a ConcreteFunction"
    )


def _describe_path(path: str | os.PathLike[str], targets: Sequence[object]) -> GraphSource:
    source = GraphSource(
        name=os.fspath(path),
        path=os.path.abspath(path),
        targets=_names(targets),
        threads=host.tensorflow_threads(),
    )
    if not os.path.exists(path):
        raise GraphError(f"{source.name}: no such file or directory")
    if os.path.isfile(path) and source.num_bytes > MAX_BYTES:
        raise GraphError(
            f"{source.name}: has {source.num_bytes} bytes; a protocol buffer ends at 2 GiB. "
            "Save the variables beside the graph, not as constants in it"
        )
    return source


def _names(targets: Sequence[object]) -> tuple[str, ...]:
    """Op names of ops, tensors or names."""
    if isinstance(targets, str):
        raise GraphError(f"targets: pass a list of op names, such as [{targets!r}]")
    named = [
        target if isinstance(target, str) else getattr(target, "name", "") for target in targets
    ]
    if not all(isinstance(name, str) and name for name in named):
        raise GraphError(f"targets: {targets!r} holds something other than ops and op names")
    return tuple(map(str, named))


def _describe_graph(graph: Any, targets: Sequence[object]) -> GraphSource:
    if hasattr(graph, "captures"):
        raise GraphError(f"{graph!r} is the inside of a function: pass the ConcreteFunction")
    return GraphSource(
        name="the graph",
        graph_def=_serialise(graph.as_graph_def()),
        targets=_names(targets),
        devices=session_devices(),
        threads=_threads(),
        tf32=_computes_in_tf32(),
    )


def _describe_function(function: Any, targets: Sequence[object], is_elsewhere: bool) -> GraphSource:
    if targets:
        raise GraphError("targets: a function has none, its whole body runs")
    devices = _eager_devices()
    # On another machine, what is on the default device here will be on the default device there.
    movable = _default_device(devices) if is_elsewhere else ""
    definition = function.function_def
    graph_def = function.graph.as_graph_def()
    del graph_def.node[:]  # the body is in the definition
    graph_def.library.function.append(definition)
    return GraphSource(
        name=f"function {definition.signature.name}",
        graph_def=_serialise(graph_def),
        function=definition.signature.name,
        arguments=_arguments(function, movable),
        devices=devices,
        threads=_threads(),
        tf32=_computes_in_tf32(),
    )


def _arguments(function: Any, movable: str) -> tuple[Argument, ...]:
    captured = list(function.captured_inputs)
    placeholders = list(function.inputs)
    devices = [""] * (len(placeholders) - len(captured))
    devices += [getattr(tensor, "device", "") or "" for tensor in captured]
    return tuple(
        Argument(device="" if device == movable else device, variable=_variable(placeholder))
        for placeholder, device in zip(placeholders, devices, strict=True)
    )


def _variable(placeholder: Any) -> Variable | None:
    import tensorflow as tf
    from tensorflow.python.ops import handle_data_util

    if placeholder.dtype != tf.resource:
        return None
    data = handle_data_util.get_resource_handle_data(placeholder)
    if not data.is_set or len(data.shape_and_type) != 1:
        return None
    (held,) = data.shape_and_type
    unknown = held.shape.unknown_rank
    shape = None if unknown else [dimension.size for dimension in held.shape.dim]
    return Variable(dtype=held.dtype, shape=shape)


def _serialise(graph_def: Any) -> bytes:
    try:
        return bytes(graph_def.SerializeToString())
    except Exception as error:  # protobuf's own classes differ from version to version
        raise GraphError(f"the graph cannot be serialised: {error}") from None


def _eager_devices() -> tuple[dict[str, Any], ...]:
    """The devices that functions of this process run on."""
    from tensorflow.python.eager import context

    context.ensure_initialized()
    return _local_devices(context.context().config)


def _default_device(devices: Sequence[dict[str, Any]]) -> str:
    """Where TensorFlow 2 creates variables."""
    by_type = {device["type"]: str(device["name"]) for device in reversed(devices)}
    return by_type.get("GPU") or by_type["CPU"]


def _threads() -> tuple[int, int]:
    import tensorflow as tf

    threading = tf.config.threading
    return host.tensorflow_threads(
        threading.get_inter_op_parallelism_threads(),
        threading.get_intra_op_parallelism_threads(),
    )


def _computes_in_tf32() -> bool:
    import tensorflow as tf

    return bool(tf.config.experimental.tensor_float_32_execution_enabled())


def session_devices() -> tuple[dict[str, Any], ...]:
    """The devices of a session without a configuration of its own."""
    return _local_devices(None)


def _local_devices(config: Any) -> tuple[dict[str, Any], ...]:
    from tensorflow.python.client import device_lib

    devices = [
        {
            "name": f"/job:localhost/replica:0/task:0{device.name}",
            "type": device.device_type,
            "description": device.physical_device_desc,
            "memory_bytes": device.memory_limit,
        }
        for device in device_lib.list_local_devices(session_config=config)
        if not device.device_type.startswith("XLA_")
    ]
    return tuple(sorted(devices, key=lambda device: str(device["name"])))
