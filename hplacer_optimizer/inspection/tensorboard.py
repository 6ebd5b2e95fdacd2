"""A placed graph with devices and simulated times, as an event file for TensorBoard.

TensorBoard's graph page colours ops by device and, under the tag "simulated step", by compute time
and memory. `main` is for a child process, since it needs TensorFlow.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.support import tf_process
from hplacer_optimizer.support.new_file import new_file

__all__ = ["RUN_TAG", "write_tensorboard"]

RUN_TAG = "simulated step"
_LIMIT_S = 300.0
_NAME = "events.out.tfevents.0.hplacer"  # TensorBoard looks for "tfevents"
_REQUEST, _EVENTS = "request.json", "events"


def write_tensorboard(step: SimulatedStep, directory: str | os.PathLike[str]) -> str:
    """Writes an event file into the log directory, which is made; returns its path.

    A run of TensorBoard shows one graph, so the file takes the place of the directory's last one.
    Raises HPlacerError if TensorFlow fails, OSError if it cannot be written.
    """
    os.makedirs(directory, exist_ok=True)
    path = os.path.abspath(os.path.join(directory, _NAME))
    with tempfile.TemporaryDirectory(prefix="hplacer-") as place:
        where = Path(place)
        (where / _REQUEST).write_text(json.dumps(_describe(step)))
        child = tf_process.run(__name__, where, limit_s=_LIMIT_S, name=path)
        if child.returncode:
            raise HPlacerError(f"{path}: {child.cause_of_death}")
        with new_file(path) as file:
            file.write((where / _EVENTS).read_bytes())
    return path


def _describe(step: SimulatedStep) -> dict[str, Any]:
    problem, trace = step.problem, step.trace
    sums = np.concatenate([[0], np.cumsum(problem.output_bytes)])
    return {
        "names": problem.op_names,
        "types": problem.op_types,
        "devices": list(problem.device_names),
        "placement": step.placement.tolist(),
        "edges": problem.edges.tolist(),
        "control_edges": problem.control_edges.tolist(),
        "start_ns": None if trace.start_ns is None else trace.start_ns.tolist(),
        "finish_ns": None if trace.finish_ns is None else trace.finish_ns.tolist(),
        "output_bytes": np.diff(sums[problem.output_ptr]).tolist(),
    }


# ---- the child process ----


def main(directory: str) -> None:
    """Answers the request in the directory."""
    tf_process.begin()
    import tensorflow as tf

    where = Path(directory)
    request = json.loads((where / _REQUEST).read_text())
    v1 = tf.compat.v1
    events = [
        v1.Event(file_version="brain.Event:2"),
        v1.Event(graph_def=_graph_def(v1, request).SerializeToString()),
    ]
    if request["start_ns"] is not None:
        run_metadata = _run_metadata(v1, request).SerializeToString()
        events.append(v1.Event(tagged_run_metadata={"tag": RUN_TAG, "run_metadata": run_metadata}))
    with tf.io.TFRecordWriter(str(where / _EVENTS)) as writer:
        for event in events:
            writer.write(event.SerializeToString())


def _graph_def(v1: Any, request: dict[str, Any]) -> Any:
    names, devices = request["names"], request["devices"]
    inputs: list[list[str]] = [[] for _ in names]
    for src, output, dst in request["edges"]:
        inputs[dst].append(f"{names[src]}:{output}" if output else names[src])
    for src, dst in request["control_edges"]:  # which come last in a NodeDef
        inputs[dst].append(f"^{names[src]}")
    graph = v1.GraphDef()
    for name, kind, device, reads in zip(
        names, request["types"], request["placement"], inputs, strict=True
    ):
        graph.node.add(name=name, op=kind, device=devices[device], input=reads)
    return graph


def _run_metadata(v1: Any, request: dict[str, Any]) -> Any:
    metadata = v1.RunMetadata()
    per_device = [metadata.step_stats.dev_stats.add(device=name) for name in request["devices"]]
    columns = (
        request[name] for name in ("names", "placement", "start_ns", "finish_ns", "output_bytes")
    )
    for name, device, start_ns, finish_ns, size in zip(*columns, strict=True):
        lasts_us = math.ceil((finish_ns - start_ns) / 1000)
        stats = per_device[device].node_stats.add(
            node_name=name,
            all_start_micros=start_ns // 1000,
            op_end_rel_micros=lasts_us,
            all_end_rel_micros=lasts_us,
        )
        stats.memory.add(allocator_name="simulated", total_bytes=size)
    return metadata


if __name__ == "__main__":
    main(sys.argv[1])
