"""Sums that TensorFlow merges: the problem has those that it runs, with their inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

CODE = """
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.machines import machine_from_yaml

MACHINE = machine_from_yaml('''
format: hplacer-machine/1
name: two-cpus
kinds:
  cpu: {type: CPU, flops: {float32: 10 GFLOP/s}, memory: 4 GiB, memory_bandwidth: 10 GB/s,
        launch_overhead: 1 us, executor_overhead: 1 us, slots: 1}
devices: [{name: /device:CPU:0, kind: cpu}, {name: /device:CPU:1, kind: cpu}]
links: [memory: {latency: 1 us, bandwidth: 10 GB/s, devices: [/device:CPU:0, /device:CPU:1]}]
''')

SUMS = ("AddN", "AddV2")

def build():
    def given(*shape):
        return tf.tanh(v1.random_uniform(shape))

    def chain(name, count, shape=(64, 64)):
        total = given(*shape)
        for i in range(count - 1):
            total = tf.add_n([total, given(*shape)], name=f"{name}_{i}")
        return total

    kept = chain("read_twice", 3)
    with tf.control_dependencies([chain("waited_for", 3)]):
        after = tf.tanh(given(64, 64))
    with tf.device("/CPU:1"):
        far = given(64, 64) + given(64, 64)
    row = tf.add(given(64), given(64), name="row")
    ends = [
        chain("chain", 40),
        tf.add(chain("left", 3), chain("right", 4), name="tree"),
        kept + given(64, 64), kept * 2.0, after,
        tf.add(far, given(64, 64), name="of_two_devices"),
        tf.add(tf.add(given(64, 64), row, name="broadcast"), given(64, 64), name="of_two_shapes"),
    ]
    kept = [v1.get_variable(f"v{i}", (64, 64), use_resource=True) for i in range(len(ends))]
    return [variable.assign(tf.sin(end)).op for variable, end in zip(kept, ends)]

with tf.Graph().as_default() as graph:
    target = tf.group(*build(), name="target")
found = load_graph(graph, machine=MACHINE, targets=[target])
problem = found.problem
readers = np.bincount(problem.edges[:, 2], minlength=problem.num_ops)
predicted = sorted(
    int(readers[op]) for op, kind in enumerate(problem.op_types)
    if kind in SUMS and not found.captured.is_removed[op]
)
with session(graph) as running:
    metadata = v1.RunMetadata()
    running.run(target, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
executed = sorted(
    sum(not name.startswith("^") for name in node.input)
    for part in metadata.partition_graphs for node in part.node if node.op in SUMS
)
units = {name: int(problem.units[op]) for op, name in enumerate(problem.op_names)}
report(predicted=predicted, executed=executed, units=units)
"""


def test_the_sums_of_a_problem_are_those_that_tensorflow_runs(tmp_path: Path) -> None:
    seen = run(CODE, tmp_path).report
    assert 40 in seen["executed"]
    assert seen["predicted"] == seen["executed"]
    assert seen["units"]["chain_0"] == seen["units"]["chain_38"]
