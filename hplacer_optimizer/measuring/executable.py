"""A captured step as a graph that a session can run: all that it is fed with becomes variables.

    _Arg of a variable      VarHandleOp
    _Arg, Placeholder       ReadVariableOp of a variable of its own, which its device holds
    _Retval                 Identity

Names stay, so that a placement of the step says where every node goes. What is not of the step
(savers, initialisers) loses its devices: TensorFlow places it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.errors import GraphError

HOLDER = "/hplacer_fed"  # appended to the name of a fed node: the variable that it reads

_FED = ("_Arg", "Placeholder", "PlaceholderV2")
_UNRUNNABLE = {
    "IteratorGetNext": "its data is in the input pipeline of the training program",
    "IteratorGetNextSync": "its data is in the input pipeline of the training program",
    "QueueDequeueV2": "its data is in a queue of the training program",
    "QueueDequeueManyV2": "its data is in a queue of the training program",
    "QueueDequeueUpToV2": "its data is in a queue of the training program",
    "PyFunc": "it calls Python code of the training program",
    "PyFuncStateless": "it calls Python code of the training program",
    "EagerPyFunc": "it calls Python code of the training program",
}
_OUT_OF_REACH = "; take it out of the step with targets, or feed a placeholder in its place"


@dataclass(frozen=True, kw_only=True)
class Fed:
    """A node that the training program feeds."""

    dtype: int  # tensorflow.DataType
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Executable:
    """A GraphDef for a session."""

    graph_def: Any
    nodes: frozenset[str]
    """Of the step."""
    fed: Mapping[str, Fed]
    """By name; each reads the variable NAME + HOLDER."""


def make_executable(step: RunnableStep, feeds: Collection[str]) -> Executable:
    """Makes it so that placeholders with a default are fed if they are among `feeds`.

    Raises GraphError, which names an op that cannot run outside of its program.
    """
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef.FromString(step.graph_def)
    nodes = {node.name: node for node in graph_def.node}
    names = _closure(nodes, step.targets)
    fed = {}
    for name, node in nodes.items():
        _drop_unknown_colocations(node, nodes)
        if name not in names:
            node.device = ""
        elif node.op in _FED or (node.op == "PlaceholderWithDefault" and name in feeds):
            variable = step.arguments[node.attr["index"].i].variable if node.op == "_Arg" else None
            if variable is not None:
                _become_variable(node, variable.dtype, variable.shape)
            else:
                fed[name] = _become_read(node, step.fed_shapes.get(name), graph_def)
        elif node.op == "_Retval":
            node.op = "Identity"
            _keep_attributes(node, "T")
        elif node.op in _UNRUNNABLE:
            raise GraphError(f"op '{name}' ({node.op}): {_UNRUNNABLE[node.op]}{_OUT_OF_REACH}")
    return Executable(graph_def=graph_def, nodes=frozenset(names), fed=fed)


def _drop_unknown_colocations(node: Any, nodes: Mapping[str, Any]) -> None:
    """Nodes that inlining renamed: a placement keeps what was to be with them together."""
    if "_class" not in node.attr:
        return
    kept = [
        name for name in node.attr["_class"].list.s if name.decode().removeprefix("loc:@") in nodes
    ]
    del node.attr["_class"].list.s[:]
    node.attr["_class"].list.s.extend(kept)
    if not kept:
        del node.attr["_class"]


def _closure(nodes: Mapping[str, Any], targets: Iterable[str]) -> set[str]:
    """The targets and all their ancestors."""
    names = {target.split(":")[0] for target in targets}
    waiting = list(names)
    while waiting:
        for source in nodes[waiting.pop()].input:
            name = source.lstrip("^").split(":")[0]
            if name not in names:
                names.add(name)
                waiting.append(name)
    return names


def _become_variable(node: Any, dtype: int, shape: list[int] | None) -> None:
    if shape is None or any(size < 0 for size in shape):
        raise GraphError(f"the variable of argument '{node.name}' has no known shape")
    node.op = "VarHandleOp"
    _keep_attributes(node)
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.SetInParent()
    for size in shape:
        node.attr["shape"].shape.dim.add().size = size
    node.attr["shared_name"].s = node.name.encode()


def _become_read(node: Any, shapes: list[list[int]] | None, graph_def: Any) -> Fed:
    from tensorflow.core.framework import types_pb2

    dtype = node.attr["T" if node.op == "_Arg" else "dtype"].type
    if dtype in (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT):
        raise GraphError(f"op '{node.name}' is fed with a handle that is no variable's")
    if not shapes:
        raise GraphError(f"op '{node.name}' is fed, but its shape is not known; name it in shapes")
    holder = graph_def.node.add(name=node.name + HOLDER, device=node.device)
    _become_variable(holder, dtype, shapes[0])
    node.op = "ReadVariableOp"
    del node.input[:]
    node.input.append(holder.name)
    _keep_attributes(node)
    node.attr["dtype"].type = dtype
    return Fed(dtype=dtype, shape=tuple(shapes[0]))


def _keep_attributes(node: Any, *names: str) -> None:
    for name in set(node.attr) - {*names, "_class"}:
        del node.attr[name]
