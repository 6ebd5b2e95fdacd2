"""Ops that TensorFlow replaces by one of their inputs: the problem has those that it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

CODE = """
from hplacer_optimizer.capture.loading import load_graph

TYPES = ("Mul", "RealDiv", "AddV2", "Sub")

def build():
    def given(*shape):
        return tf.tanh(v1.random_uniform(shape))

    one, zero = tf.constant(1.0), tf.constant(0.0)
    ends = [
        tf.multiply(one, given(64, 64), name="times_one"),
        tf.multiply(given(64, 64), tf.ones([64, 64]), name="times_ones"),
        tf.divide(given(64, 64), tf.subtract(one, zero), name="over_computed_one"),
        tf.add(given(64, 64), zero, name="plus_zero"),
        tf.subtract(given(64, 64), tf.maximum(zero, tf.constant(-1.0)), name="minus_zero"),
        tf.multiply(given(64, 64), 2.0, name="times_two"),
        tf.multiply(given(64, 64), tf.constant([1.0] * 63 + [2.0]), name="times_many"),
        tf.subtract(one, given(64, 64), name="one_minus"),
        tf.multiply(given(64), tf.ones([64, 64]), name="made_larger"),
    ]
    if IN_PLACE:
        kept = [v1.get_variable(f"v{i}", (64, 64), use_resource=False) for i in range(len(ends))]
    else:
        kept = [v1.get_variable(f"v{i}", (64, 64), use_resource=True) for i in range(len(ends))]
    return [v1.assign(variable, tf.sin(end)).op for variable, end in zip(kept, ends)]

with tf.Graph().as_default() as graph:
    target = tf.group(*build(), name="target")
found = load_graph(graph, machine="2xa100", targets=[target])
problem = found.problem
gpu = next(kind for kind, name in zip(problem.device_kind, problem.device_names) if "GPU" in name)
names, is_static = problem.op_names, found.captured.is_static
handed_on = {names[op]: names[problem.edges[problem.edges[:, 2] == op][0, 0]]
             for op, kind in enumerate(problem.op_types)
             if kind in TYPES and problem.cost_ns[op, gpu] == 0 and not is_static[op]}
with session(graph) as running:
    metadata = v1.RunMetadata()
    running.run(target, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
executed = {node.name for part in metadata.partition_graphs for node in part.node
            if node.op in (*TYPES, "Reciprocal", "BroadcastTo", "Snapshot")}
NAMED = [op.name for op in graph.get_operations() if op.type in TYPES]
report(handed_on=sorted(handed_on), sources=sorted(handed_on.values()),
       executed=sorted(name for name in NAMED if name in executed))
"""
NEUTRAL = ["minus_zero", "over_computed_one", "plus_zero", "times_one", "times_ones"]
OTHERS = ["made_larger", "one_minus", "times_many", "times_two"]


def told(directory: Path, *, in_place: bool) -> dict[str, Any]:
    return run(f"IN_PLACE = {in_place}\n{CODE}", directory).report


def test_what_changes_nothing_hands_on_its_input(tmp_path: Path) -> None:
    seen = told(tmp_path, in_place=False)
    assert seen["handed_on"] == NEUTRAL
    assert all(name.startswith("Tanh") for name in seen["sources"])
    assert not {*NEUTRAL} & {*seen["executed"]}
    assert {*OTHERS} <= {*seen["executed"]}


def test_nothing_is_handed_on_where_an_op_changes_its_input(tmp_path: Path) -> None:
    seen = told(tmp_path, in_place=True)
    assert seen["handed_on"] == []
    assert {*NEUTRAL} <= {*seen["executed"]}
