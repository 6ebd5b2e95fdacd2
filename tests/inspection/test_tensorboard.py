"""The event file for TensorBoard, read with the real TensorFlow."""

from __future__ import annotations

from pathlib import Path

import pytest

from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.inspection.tensorboard import write_tensorboard
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.problem.problem_file import load_problem_file
from hplacer_optimizer.problem.simulator import simulate
from tests import processes

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"
# Reads an event file as TensorBoard does, and prints the graph and the tagged run in it.
READ_EVENTS = """
import json, sys
import tensorflow as tf
graph, run = tf.compat.v1.GraphDef(), tf.compat.v1.RunMetadata()
versions = []
for record in tf.compat.v1.train.summary_iterator(PATH):
    if record.file_version:
        versions.append(record.file_version)
    elif record.graph_def:
        graph.ParseFromString(record.graph_def)
    else:
        tag = record.tagged_run_metadata.tag
        run.ParseFromString(record.tagged_run_metadata.run_metadata)
lasts = {node.node_name: (device.device, node.op_end_rel_micros, node.memory[0].total_bytes)
         for device in run.step_stats.dev_stats for node in device.node_stats}
print("REPORT " + json.dumps({"versions": versions, "tag": tag, "lasts": lasts,
    "nodes": {node.name: [node.op, node.device, list(node.input)] for node in graph.node}}))
"""


def test_tensorboard_gets_devices_and_times(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    problem = load_problem_file(GOLDEN)
    placement = get_planner("round_robin").plan(problem).placement
    logs = tmp_path / "logs"
    write_tensorboard(SimulatedStep.of(problem, [0] * problem.num_ops), logs)
    path = write_tensorboard(SimulatedStep.of(problem, placement), logs)
    assert [str(file) for file in logs.iterdir()] == [path]  # a run has one graph
    assert "tfevents" in path  # what TensorBoard looks for
    found = processes.run(READ_EVENTS, tmp_path, prelude=f"PATH = {path!r}").report
    assert found["versions"] == ["brain.Event:2"]
    assert found["tag"] == "simulated step"
    inputs: list[list[str]] = [[] for _ in problem.op_names]
    for src, output, dst in problem.edges.tolist():
        inputs[dst].append(f"{problem.op_names[src]}:{output}".removesuffix(":0"))
    for src, dst in problem.control_edges.tolist():
        inputs[dst].append(f"^{problem.op_names[src]}")
    assert found["nodes"] == {
        name: [problem.op_types[op], problem.device_names[placement[op]], inputs[op]]
        for op, name in enumerate(problem.op_names)
    }
    trace = simulate(problem, placement)
    assert trace.start_ns is not None
    assert trace.finish_ns is not None
    for op, name in enumerate(problem.op_names):
        device, lasts_us, size = found["lasts"][name]
        assert device == problem.device_names[placement[op]]
        assert lasts_us == -(-int(trace.finish_ns[op] - trace.start_ns[op]) // 1000)
        begin, end = problem.output_ptr[op : op + 2]
        assert size == problem.output_bytes[begin:end].sum()
