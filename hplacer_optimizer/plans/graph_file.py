"""A plan's devices in a graph file, for programs without the optimizer.

    plan --map_nodes--> device per node --[child: graph file in, devices set]--> graph file out

The plan names nodes as the pass sees them, inlined: "call/MatMul" is the node "MatMul" in the body
of the function that "call" calls. A body that is called from several places carries only what all
of them agree on. What TensorFlow makes of control flow before the pass, such as the Switch and
Merge nodes of a lowered cond, stands in no file and is left to TensorFlow.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture import graph_files
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.errors import GraphError, PlanError
from hplacer_optimizer.machines import machine_from_yaml
from hplacer_optimizer.plans.matching import map_nodes
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.support import tf_process
from hplacer_optimizer.support.new_file import new_file

__all__ = ["Applied", "apply_plan"]

_LIMIT_S = 300.0
_LIMIT_S_PER_BYTE = 10e-6
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_GRAPH_BODY = ""  # stands for the graph itself among the bodies
_REQUEST, _RESULT, _GRAPH = "request.json", "result.json", "graph"


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What became of a plan's nodes."""

    num_nodes: int
    num_set: int
    left: list[str]  # nodes that no node of the file stands for


def apply_plan(
    plan: Plan, graph: str | os.PathLike[str], output: str | os.PathLike[str], **options: Any
) -> Applied:
    """Writes the graph of a file with the plan's devices, as a file of the same kind.

    Args:
        plan: a plan of this graph.
        graph: a MetaGraphDef or GraphDef, binary or text.
        output: the new file; it appears complete or not at all.
        options: those of `load_graph`; without a machine, the plan's own.

    Raises:
        PlanError: the plan is for another graph, or was made without one.
        GraphError: the graph cannot be read.
        OSError: the file cannot be written.
    """
    plan.check_fingerprint()
    if os.path.isdir(graph):
        raise GraphError(f"{graph}: a SavedModel is no single file; apply the plan to a .meta file")
    if options.get("machine") is None and plan.machine is not None:
        options = {**options, "machine": machine_from_yaml(plan.machine)}
    captured = load_graph(graph, **options).captured
    indices = map_nodes(plan, captured)
    devices = {
        name: plan.device_names[index]
        for name, index in zip(captured.node_names, indices.tolist(), strict=True)
        if index >= 0
    }
    if not devices:
        raise PlanError(f"plan {plan.short_fingerprint}: has no node to set a device of")
    request = {
        "graph": os.path.abspath(graph),
        "output": os.path.abspath(output),
        "signature": options.get("signature"),
        "targets": list(options.get("targets") or ()),
        "devices": devices,
    }
    limit_s = _LIMIT_S + _LIMIT_S_PER_BYTE * os.path.getsize(graph)
    with tempfile.TemporaryDirectory(prefix="hplacer-") as place:
        where = Path(place)
        (where / _REQUEST).write_text(json.dumps(request))
        child = tf_process.run(__name__, where, limit_s=limit_s, name=os.fspath(graph))
        if child.returncode:
            raise GraphError(f"{graph}: {child.cause_of_death}")
        result = json.loads((where / _RESULT).read_text())
        with new_file(output) as file:
            file.write((where / _GRAPH).read_bytes())
    return Applied(num_nodes=len(devices), num_set=result["num_set"], left=result["left"])


# ---- the child process ----


def main(directory: str) -> None:
    """Answers the request in the directory."""
    tf_process.begin()

    where = Path(directory)
    request = json.loads((where / _REQUEST).read_text())
    path = Path(request["graph"])
    message = graph_files.read_message(path)
    graph = graph_files.graph_of_message(message, request["signature"], request["targets"])
    result = _set_devices(graph.graph_def, graph.function, request["devices"])
    (where / _GRAPH).write_bytes(graph_files.serialise(message, Path(request["output"])))
    (where / _RESULT).write_text(json.dumps(result))


def _set_devices(graph_def: Any, function: str, devices: Mapping[str, str]) -> dict[str, Any]:
    bodies = {body.signature.name: body.node_def for body in graph_def.library.function}
    bodies[_GRAPH_BODY] = graph_def.node
    names: dict[tuple[str, int], list[str]] = {}
    for name, place in _walk(bodies, function or _GRAPH_BODY, "", ()):
        if name in devices:
            names.setdefault(place, []).append(name)
    left = set(devices)
    for (body, index), alike in names.items():
        choices = {devices[name] for name in alike}
        if len(choices) == 1:
            (bodies[body][index].device,) = choices
            left.difference_update(alike)
    return {"num_set": len(devices) - len(left), "left": sorted(left)}


def _walk(
    bodies: Mapping[str, Any], body: str, prefix: str, within: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, int]]]:
    """Each node by the name that it gets when calls are inlined, and where it is: (body, index)."""
    for index, node in enumerate(bodies[body]):
        name = prefix + node.name
        yield name, (body, index)
        called = node.attr["f"].func.name if node.op in _CALLS else node.op
        if called in bodies and called not in within:
            yield from _walk(bodies, called, f"{name}/", (*within, called))


if __name__ == "__main__":
    main(sys.argv[1])
