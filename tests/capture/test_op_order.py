"""Ops have the order in which TensorFlow's executor has the nodes, under any placement."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import run

ORDERS = """
from hplacer_optimizer.capture.loading import load_graph

def sources(node):
    return {name.lstrip("^").partition(":")[0] for name in node.input}

def pairs_of(partition, number):
    '''In TensorFlow's order: those that wait for the same, or for nothing.'''
    # On a CPU, oneDNN makes its own nodes last.
    nodes = [n for n in partition.node if n.name in number and not n.op.startswith("_Mkl")]
    names = [node.name for node in nodes]
    reads = [sources(node) for node in nodes]
    return [
        (names[i], names[j])
        for j in range(len(names))
        for i in range(j)
        if reads[i] & reads[j] or not (reads[i] or reads[j])
    ]

def orders(build):
    '''Of these pairs: how many are as numbered, and how many as made.'''
    with tf.Graph().as_default() as graph:
        fetched, fed = build()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            metadata = v1.RunMetadata()
            options = v1.RunOptions(output_partition_graphs=True)
            session.run(fetched, fed, options=options, run_metadata=metadata)
    found = load_graph(graph, machine="1cpu-2xk40", targets=[fetched])
    number = {name: op for op, name in enumerate(found.problem.op_names)}
    made = {operation.name: op for op, operation in enumerate(graph.get_operations())}
    (partition,) = metadata.partition_graphs
    pairs = pairs_of(partition, number)
    return {
        "pairs": len(pairs),
        "as numbered": sum(number[one] < number[other] for one, other in pairs),
        "as made": sum(made[one] < made[other] for one, other in pairs),
    }
"""

TOWERS = """
def build():
    x = v1.placeholder(tf.float32, [2, 8])
    towers = []
    for name in ("cat", "ant", "bee", "dog"):
        with v1.variable_scope(name):
            weights, bias = v1.get_variable("w", [8, 8]), v1.get_variable("b", [8])
            towers.append(tf.nn.relu(x @ weights * bias) @ weights)
    loss = tf.reduce_mean(tf.add_n(towers) ** 2) + sum(
        tf.nn.l2_loss(weights) for weights in v1.trainable_variables()
    )
    return v1.train.AdamOptimizer(0.1).minimize(loss), {x: [[0.5] * 8] * 2}
"""

# All that gradients wait for: TensorFlow first drops what they wait for on other ways, too, which
# changes the order of the others.
AVERAGES = """
def build():
    x = v1.placeholder(tf.float32, [2, 8])
    end, updates = x, []
    for layer in range(30):
        with v1.variable_scope(f"layer{layer}"):
            weights, bias = v1.get_variable("w", [8, 8]), v1.get_variable("b", [8])
            average = v1.get_variable("average", [8], trainable=False)
            end = end @ weights * bias
            updates.append(average.assign_sub(0.1 * (average - tf.reduce_mean(end, 0))))
            end = tf.nn.relu(end)
    loss = tf.reduce_mean(end**2) + sum(
        tf.nn.l2_loss(weights) for weights in v1.trainable_variables() if "w" in weights.name
    )
    with tf.control_dependencies(updates):
        return v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss), {x: [[0.5] * 8] * 2}
"""

# What reads an output of a split comes by the number of the output.
CELLS = """
def build():
    x = v1.placeholder(tf.float32, [2, 8])
    kernel = v1.get_variable("kernel", [16, 32])
    output = state = tf.zeros([2, 8])
    for _ in range(12):
        gates = tf.split(tf.concat([x, output], 1) @ kernel, 4, 1)
        state = state * tf.sigmoid(gates[2] + 1.0) + tf.sigmoid(gates[0]) * tf.tanh(gates[1])
        output = tf.tanh(state) * tf.sigmoid(gates[3])
    loss = tf.reduce_mean(output**2)
    return v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss), {x: [[0.5] * 8] * 2}
"""


@pytest.mark.parametrize(
    ("graph", "share"),
    [(TOWERS, 0.91), (AVERAGES, 0.98), (CELLS, 0.98)],
    ids=["towers", "averages", "cells"],
)
def test_ops_are_numbered_as_tensorflow_orders_them(
    graph: str, share: float, tmp_path: Path
) -> None:
    """By the order in which nodes are made, fewer pairs are right."""
    told = run(ORDERS + graph + "report(**orders(build))", tmp_path).report
    assert told["as numbered"] >= share * told["pairs"] > 500
    assert told["as made"] < (share - 0.05) * told["pairs"]


# TensorFlow's session has the placement from the graph, whose ops are captured without it.
PLACED = """
import re
import numpy as np
from hplacer_optimizer._engine import op_places

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

def device_of(name):
    layer = re.search(r"layer(\\d+)", name)
    return int(layer[1]) * 5 // 3 % 2 if layer else 0

with tf.Graph().as_default() as graph:
    end = v1.placeholder(tf.float32, [2, 8], name="x")
    for layer in range(24):
        with v1.variable_scope(f"layer{layer}"):
            weights, bias = v1.get_variable("w", [8, 8]), v1.get_variable("b", [8])
            end = tf.nn.relu(end @ weights + bias)
    step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(end**2))
    problem = load_graph(graph, machine="1cpu-2xk40", targets=[step]).problem
    init, graph_def = v1.global_variables_initializer().name, graph.as_graph_def()
for node in graph_def.node:
    node.device = f"/device:CPU:{device_of(node.name)}"
with tf.Graph().as_default():
    tf.import_graph_def(graph_def, name="")
    with v1.Session() as session:
        session.run(init)
        metadata = v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        session.run(step.name, {"x:0": [[0.5] * 8] * 2}, options=options, run_metadata=metadata)
placement = np.array([1 + device_of(name) for name in problem.op_names], np.int32)
places = dict(zip(problem.op_names, op_places(problem, placement).tolist()))
number = {name: op for op, name in enumerate(problem.op_names)}
together = np.full(problem.num_ops, 1, np.int32)
pairs = [pair for graph in metadata.partition_graphs for pair in pairs_of(graph, number)]
report(
    pairs=len(pairs),
    placed=sum(places[one] < places[other] for one, other in pairs),
    numbered=sum(number[one] < number[other] for one, other in pairs),
    together=op_places(problem, together).tolist() == list(range(problem.num_ops)),
)
"""


def test_the_order_follows_the_placement(tmp_path: Path) -> None:
    """Updates of variables are waited for device by device, which turns other ops round, too."""
    told = run(ORDERS + PLACED, tmp_path).report
    assert told["placed"] >= 0.91 * told["pairs"] > 1000
    assert told["numbered"] < 0.86 * told["pairs"]
    assert told["together"]
