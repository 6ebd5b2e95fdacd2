"""The capturing process: `python -m hplacer_optimizer.capture.graph_process DIRECTORY`.

Reads `request.json` (and `graph.pb` for a live graph) from the directory, has the native part
capture the graph, and leaves the captured step and `result.json` there. What it cannot do stands in
`result.json` as an error; if TensorFlow aborts, there is no such file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer import machines
from hplacer_optimizer.capture import gpu_kernels, graph_files, native, sources
from hplacer_optimizer.capture.captured import save_captured
from hplacer_optimizer.capture.runnable_step import Argument, argument_from_dict, save_graph
from hplacer_optimizer.errors import GraphError, HPlacerError
from hplacer_optimizer.machines import DeviceKind
from hplacer_optimizer.support import tf_process

REQUEST, RESULT, GRAPH = "request.json", "result.json", "graph.pb"


def main(directory: str) -> None:
    """Answers the request in the directory."""
    tf_process.begin()
    where = Path(directory)
    request = json.loads((where / REQUEST).read_text())
    try:
        result: dict[str, Any] = {"devices": _capture(request, where)}
    except HPlacerError as error:
        result = {"error": [type(error).__name__, str(error)]}
    temporary = where / f"{RESULT}.tmp"
    temporary.write_text(json.dumps(result))
    temporary.rename(where / RESULT)


def _capture(request: dict[str, Any], where: Path) -> list[dict[str, Any]]:
    """Leaves the captured step in `where`; returns the devices that it was captured for."""
    tf_module = native.load()
    if not request["tf32"]:
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)
    graph = _read(request, where)
    devices = request["devices"] or list(sources.session_devices())
    described = [tf_module.SessionDevice(**device) for device in devices]
    kinds: Sequence[DeviceKind] = [DeviceKind(**kind) for kind in request["kinds"]]
    if not kinds:
        inter_op, intra_op = request["threads"]
        machine = machines.detect(described, inter_op_threads=inter_op, intra_op_threads=intra_op)
        kinds = machine.kinds
    assumptions = []
    if any(device["type"] == "GPU" for device in devices):
        version = gpu_kernels.ensure_registered()
        if version is not None:
            assumptions.append(f"GPU kernels are those of TensorFlow {version}")
    argument_devices, assumed = _argument_devices(graph.arguments, devices)
    soft = request["allow_soft_placement"]
    try:
        captured = tf_module.capture_graph(
            _serialise(graph.graph_def),
            devices=described,
            rates=native.machine_rates(kinds),
            function=graph.function,
            argument_devices=argument_devices,
            handles=[
                (index, argument.variable.dtype, argument.variable.shape)
                for index, argument in enumerate(graph.arguments)
                if argument.variable is not None
            ],
            free_arguments=[
                index for index, argument in enumerate(graph.arguments) if argument.is_free
            ],
            targets=graph.targets,
            allow_soft_placement=bool(graph.function) if soft is None else soft,
            batch_size=request["batch_size"],
            loop_trip_count=request["loop_trip_count"],
            shapes=request["shapes"],
            keep_graph=request["keep_graph"],
        )
    except ValueError as error:
        raise GraphError(str(error)) from None
    save_captured(captured, where, assumed=[*assumptions, *assumed])
    if request["keep_graph"]:
        save_graph(captured, graph.arguments, where)
    return devices


def _read(request: dict[str, Any], where: Path) -> graph_files.GraphOfFile:
    if request["path"]:
        path = Path(request["path"])
        graph = graph_files.read_graph(path, request["signature"], request["targets"])
    else:
        graph = _read_live(request, where)
    graph_files.check_targets(graph.graph_def, graph.targets)
    return graph


def _read_live(request: dict[str, Any], where: Path) -> graph_files.GraphOfFile:
    from tensorflow.core.framework import graph_pb2

    if request["signature"] is not None:
        raise GraphError("signature: a live graph has none; name targets instead")
    return graph_files.GraphOfFile(
        graph_def=graph_pb2.GraphDef.FromString((where / GRAPH).read_bytes()),
        targets=request["targets"],
        function=request["function"],
        arguments=tuple(map(argument_from_dict, request["arguments"])),
    )


def _serialise(graph_def: Any) -> bytes:
    try:
        return bytes(graph_def.SerializeToString())
    except Exception as error:  # protobuf's own classes differ from version to version
        raise GraphError(f"the graph cannot be serialised: {error}") from None


def _argument_devices(
    arguments: Sequence[Argument], devices: list[dict[str, Any]]
) -> tuple[list[str], list[str]]:
    """Where the caller has each argument of a function, and what was assumed for that."""
    names = [device["name"] for device in devices]
    by_type = {device["type"]: device["name"] for device in reversed(devices)}
    host = by_type.get("CPU", names[0])
    default = by_type.get("GPU", host)  # where TensorFlow 2 creates variables
    chosen = []
    assumed = 0
    for argument in arguments:
        if argument.device in names:
            chosen.append(argument.device)
        elif argument.variable is None:
            chosen.append(host)
        else:
            chosen.append(default)
            assumed += not argument.is_free
    if not assumed:
        return chosen, []
    return chosen, [f"{assumed} variables are on {default}, where TensorFlow 2 creates them"]


if __name__ == "__main__":
    main(sys.argv[1])
