"""Transposes that TensorFlow's layout optimizer adds on GPUs: the problem has those that run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.emulation import gpus

CODE = """
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.machines import machine_from_yaml

MACHINE = machine_from_yaml(os.environ["TEST_MACHINE"])
ADDED = "-LayoutOptimizer"

def normed(x, name):
    "A batch norm of plain ops, as Keras 3 has it."
    with tf.name_scope(name):
        mean, variance = tf.nn.moments(x, [0, 1, 2], keepdims=True)
        scale = v1.get_variable(f"scale_{name}", [x.shape[-1]], use_resource=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-3) * scale

def built(drops):
    images = v1.placeholder(tf.float32, [4, 8, 8, 3], name="images")
    x = images
    for layer in range(3):
        kernel = v1.get_variable(f"kernel{layer}", [3, 3, x.shape[-1], 8], use_resource=True)
        x = tf.nn.relu(normed(tf.nn.conv2d(x, kernel, 1, "SAME"), f"norm{layer}"))
    if drops:
        x = tf.nn.dropout(x, 0.5)
    flat = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), [4, -1])
    head = v1.get_variable("head", [flat.shape[-1], 5], use_resource=True)
    loss = tf.reduce_mean(tf.square(flat @ head))
    return v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")

def compared(drops):
    "By the op that is transposed: how often in the problem, and in the graph that ran."
    with tf.Graph().as_default() as graph:
        train = built(drops)
    problem = load_graph(graph, machine=MACHINE, targets=[train]).problem
    names, added = problem.op_names, []
    for source, _, op in problem.edges.tolist():
        if names[op].endswith(ADDED):
            added.append(names[source])
            assert problem.op_types[op] == "Transpose"
            assert problem.cost_ns[op, 0] == 0 < problem.cost_ns[op, 1]  # nothing on a CPU
    told, asked = v1.RunMetadata(), v1.RunOptions(output_partition_graphs=True)
    with graph.as_default(), v1.Session() as running:
        running.run(v1.global_variables_initializer())
        running.run(train, {"images:0": np.ones([4, 8, 8, 3])}, asked, told)
    ran = [node.input[0].partition(":")[0].replace("_arg_images_0_0/_1", "images")
           for part in told.partition_graphs for node in part.node
           if node.op == "Transpose" and node.name.endswith(ADDED)]
    return {"added": sorted(added), "ran": sorted(ran)}

report(norms=compared(False), drops=compared(True))
"""


def test_the_problem_has_the_transposes_that_run(tmp_path: Path) -> None:
    report = gpus.run(CODE, tmp_path).report
    assert len(report["norms"]["ran"]) > 5
    assert report["norms"]["added"] == report["norms"]["ran"]
    assert report["drops"]["added"] == report["drops"]["ran"]
