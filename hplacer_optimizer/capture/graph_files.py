"""Reads graph files, a GraphDef and what of it is to run; in the capturing process.

The kind of a file is found by its content, in an order that its name suggests: MetaGraphDef
(`.meta`), GraphDef (`.pb`), either as text (`.pbtxt`), SavedModel (a directory).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture.runnable_step import Argument, Variable
from hplacer_optimizer.errors import GraphError

_TEXT_SUFFIXES = (".pbtxt", ".prototxt", ".textproto", ".txt")
_CALLS = ("StatefulPartitionedCall", "PartitionedCall")
_DEFAULT_SIGNATURE = "serving_default"
_MAX_LISTED = 8
_INFERENCE = re.compile(r"__inference_(.+)_\d+")
# Fields that stand at the beginning of a line of a text file, in the top-level message only.
_TEXT_KINDS = (
    ("SavedModel", re.compile(r"^(saved_model_schema_version|meta_graphs)\b", re.MULTILINE)),
    ("MetaGraphDef", re.compile(r"^(meta_info_def|graph_def|collection_def)\b", re.MULTILINE)),
)


@dataclass(frozen=True, kw_only=True)
class GraphOfFile:
    """What a file says is to run: a graph up to its targets, or a function of its library."""

    graph_def: Any
    targets: list[str]
    function: str = ""
    arguments: tuple[Argument, ...] = ()


def read_graph(path: Path, signature: str | None, targets: Sequence[str]) -> GraphOfFile:
    """The graph with the targets given, or the signature's outputs, or the signature's function.

    Raises GraphError, which names what is wrong and what there is instead.
    """
    return graph_of_message(read_message(path), signature, targets)


def graph_of_message(message: Any, signature: str | None, targets: Sequence[str]) -> GraphOfFile:
    """The same of what `read_message` returned; its graph is that of the message, no copy."""
    kind = message.DESCRIPTOR.name
    if kind == "SavedModel":
        function = None if targets or signature is None else _function(message, signature)
        if function is not None:
            return function
        message, signature = _choose_meta_graph(message, signature, bool(targets))
        kind = "MetaGraphDef"
    if kind == "GraphDef":
        if signature is not None:
            raise GraphError(f"signature {signature!r}: a GraphDef has none; name targets instead")
        return GraphOfFile(graph_def=message, targets=list(targets))
    if targets or signature is None:
        return GraphOfFile(graph_def=message.graph_def, targets=list(targets))
    return _graph_of_signature(message.graph_def, _outputs(message, signature))


def _graph_of_signature(graph_def: Any, outputs: list[str]) -> GraphOfFile:
    """TensorFlow 2 saves a signature as one call, and runs the function that is called."""
    nodes = {node.name: node for node in graph_def.node}
    call = nodes.get(outputs[0])
    if len(outputs) > 1 or call is None or call.op not in _CALLS or not call.attr["f"].func.name:
        return GraphOfFile(graph_def=graph_def, targets=outputs)
    inputs = [name.split(":")[0] for name in call.input if not name.startswith("^")]
    return GraphOfFile(
        graph_def=graph_def,
        targets=[],
        function=call.attr["f"].func.name,
        arguments=tuple(Argument(device="", variable=_variable(nodes.get(n))) for n in inputs),
    )


def _variable(node: Any) -> Variable | None:
    if node is None or node.op != "VarHandleOp":
        return None
    shape = node.attr["shape"].shape
    sizes = None if shape.unknown_rank else [dimension.size for dimension in shape.dim]
    return Variable(dtype=node.attr["dtype"].type, shape=sizes)


def check_targets(graph_def: Any, targets: Iterable[str]) -> None:
    """Raises GraphError for a target that is not in the graph, with similar names that are."""
    names = {node.name for node in graph_def.node}
    for target in targets:
        if target.split(":")[0] not in names:
            raise GraphError(f"target {target!r} is not in the graph; {_similar(target, names)}")


def _similar(wanted: str, names: Iterable[str]) -> str:
    known = sorted(names)
    close = difflib.get_close_matches(wanted, known[:100_000], n=_MAX_LISTED)
    if close:
        return "similar: " + ", ".join(close)
    shown = ", ".join(known[:_MAX_LISTED]) or "none"
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    return f"there are: {shown}{more}"


# ---- protocol buffers ----


def _kinds() -> dict[str, type]:
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

    return {
        "GraphDef": graph_pb2.GraphDef,
        "MetaGraphDef": meta_graph_pb2.MetaGraphDef,
        "SavedModel": saved_model_pb2.SavedModel,
    }


def read_message(path: Path) -> Any:
    """The GraphDef, MetaGraphDef or SavedModel in a file or directory; GraphError if it is none."""
    return _read_saved_model(path) if path.is_dir() else _read_file(path)


def serialise(message: Any, path: Path) -> bytes:
    """The content of a file of this name that `read_message` reads: text if it says so."""
    from google.protobuf import text_format

    if path.suffix in _TEXT_SUFFIXES:
        return bytes(text_format.MessageToString(message), "utf-8")
    return bytes(message.SerializeToString())


def _read_file(path: Path) -> Any:
    data = path.read_bytes()
    if path.suffix in _TEXT_SUFFIXES:
        return _parse_text(data)
    kinds = _kinds()
    if path.suffix == ".meta":
        order = ["MetaGraphDef", "GraphDef", "SavedModel"]
    elif path.name == "saved_model.pb":
        order = ["SavedModel", "GraphDef", "MetaGraphDef"]
    else:
        order = ["GraphDef", "MetaGraphDef", "SavedModel"]
    for kind in order:
        message = _parse_binary(kinds[kind], data)
        if message is not None and _has_graph(message):
            return message
    raise GraphError(
        f"is no {order[0]}: the data are damaged, cut off, without a graph or of another kind. "
        "Graphs are MetaGraphDef (.meta), GraphDef (.pb), either as text (.pbtxt), or SavedModel"
    )


def _parse_binary(kind: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError:
        return None


def _has_graph(message: Any) -> bool:
    """Bytes of another kind of message may parse, but hardly to named nodes with an op type."""
    kind = message.DESCRIPTOR.name
    if kind == "SavedModel":
        return any(_has_graph(meta_graph) for meta_graph in message.meta_graphs)
    nodes = message.node if kind == "GraphDef" else message.graph_def.node
    return len(nodes) > 0 and all(node.name and node.op for node in nodes)


def _parse_text(data: bytes) -> Any:
    from google.protobuf import text_format

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise GraphError(f"is no text: {error}") from None
    kind = next((kind for kind, start in _TEXT_KINDS if start.search(text)), "GraphDef")
    message = _kinds()[kind]()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        line = error.GetLine()
        where = f"line {line}: " if line else ""
        reason = re.sub(r"^\d+:\d+ : ", "", str(error))
        raise GraphError(f"{where}is no {kind} in text form: {reason}") from None
    if not _has_graph(message):
        raise GraphError(f"the {kind} has no graph, or a node without name or op")
    return message


# ---- SavedModels and signatures ----


def _read_saved_model(path: Path) -> Any:
    from tensorflow.python.saved_model import loader_impl

    if not any(path.glob("saved_model.*")):
        raise GraphError("is a directory without saved_model.pb, so no SavedModel")
    try:
        return loader_impl.parse_saved_model(str(path))
    except (OSError, ValueError) as error:
        raise GraphError(f"the SavedModel cannot be read: {error}") from None


def _choose_meta_graph(
    saved_model: Any, signature: str | None, has_targets: bool
) -> tuple[Any, str | None]:
    """The MetaGraphDef with this signature (or the default, or the only one) and its name."""
    graphs = sorted(
        saved_model.meta_graphs, key=lambda graph: list(graph.meta_info_def.tags) != ["serve"]
    )
    if not graphs:
        raise GraphError("the SavedModel has no graph")
    callable_names = {
        name for graph in graphs for name in graph.signature_def if _is_callable(graph, name)
    }
    if signature is None:
        if has_targets:
            return graphs[0], None
        if _DEFAULT_SIGNATURE in callable_names:
            signature = _DEFAULT_SIGNATURE
        elif len(callable_names) == 1:
            (signature,) = callable_names
        else:
            names = ", ".join(sorted(callable_names)) or "none"
            raise GraphError(f"name a signature or targets; signatures of this SavedModel: {names}")
    for graph in graphs:
        if signature in graph.signature_def:
            return graph, signature
    known = {*callable_names, *(name for graph in graphs for name in _function_names(graph))}
    raise GraphError(f"no signature or function {signature!r}; {_similar(signature, known)}")


def _function_names(meta_graph: Any) -> dict[str, list[str]]:
    """The functions that the model was saved with, in the library, by their name in Python."""
    names: dict[str, list[str]] = {}
    for name in sorted(meta_graph.object_graph_def.concrete_functions):
        found = _INFERENCE.fullmatch(name)
        if found and not found[1].startswith("signature_wrapper_"):
            names.setdefault(found[1], []).append(name)
    return names


def _function(saved_model: Any, name: str) -> GraphOfFile | None:
    """The function of that name, as the program that saved the model called it.

    A signature calls it through a wrapper of some ops, and comes first.
    """
    for graph in saved_model.meta_graphs:
        if name in graph.signature_def:
            return None
        traces = _function_names(graph).get(name, [])
        if len(traces) > 1:
            raise GraphError(f"function {name!r} was traced {len(traces)} times; save one of them")
        if traces:
            return _graph_of_function(graph, traces[0])
    return None


def _graph_of_function(meta_graph: Any, name: str) -> GraphOfFile:
    """Its last arguments are what it captured: variables of the model, and constants."""
    objects = meta_graph.object_graph_def
    library = {f.signature.name: f for f in meta_graph.graph_def.library.function}
    captured = list(objects.concrete_functions[name].bound_inputs)
    if name not in library or not all(number < len(objects.nodes) for number in captured):
        raise GraphError(f"the SavedModel is damaged: its function {name!r} is incomplete")
    own = len(library[name].signature.input_arg) - len(captured)
    variables = [None] * own + [_saved_variable(objects.nodes[number]) for number in captured]
    return GraphOfFile(
        graph_def=meta_graph.graph_def,
        targets=[],
        function=name,
        arguments=tuple(Argument(device="", variable=variable) for variable in variables),
    )


def _saved_variable(node: Any) -> Variable | None:
    if node.WhichOneof("kind") != "variable":
        return None
    shape = node.variable.shape
    sizes = None if shape.unknown_rank else [dimension.size for dimension in shape.dim]
    return Variable(dtype=node.variable.dtype, shape=sizes)


def _is_callable(meta_graph: Any, signature: str) -> bool:
    return not signature.startswith("__saved_model_") and bool(
        meta_graph.signature_def[signature].outputs
    )


def _outputs(meta_graph: Any, signature: str) -> list[str]:
    names = meta_graph.signature_def
    if signature not in names:
        raise GraphError(f"no signature {signature!r}; {_similar(signature, names)}")
    outputs = {info.name.split(":")[0] for info in names[signature].outputs.values() if info.name}
    if not outputs:
        raise GraphError(f"signature {signature!r} has no outputs that are tensors of the graph")
    return sorted(outputs)
