"""A variable whose rows are updated is copied where it is read, as the simulator has it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.emulation import gpus

CODE = """
from hplacer_optimizer import simulate
from hplacer_optimizer.capture.loading import load_graph

machine = machine_from_yaml(os.environ["TEST_MACHINE"])

def measured(by_rows):
    with tf.Graph().as_default() as graph:
        table = v1.get_variable("table", [4000, 1000], use_resource=True)
        total = v1.get_variable("total", [4000], use_resource=True)
        steps = [total.assign(tf.reduce_sum(table.read_value(), axis=1)).op]
        if by_rows:
            with tf.control_dependencies(steps):
                steps.append(tf.raw_ops.ResourceScatterAdd(
                    resource=table.handle, indices=tf.constant([1]), updates=tf.ones([1, 1000])))
        target = tf.group(*steps, name="target")
        loaded = load_graph(graph, machine=machine, targets=[target], keep_graph=True)
    problem = loaded.problem
    gpu = [name.rpartition("/")[2] for name in problem.device_names].index("device:GPU:0")
    placement = np.array(problem.default_device, np.int32)
    with charged_runner(loaded).placed(placement) as step:
        step.warm_up(3)
        tf.config.experimental.reset_memory_stats("GPU:0")
        times = step.time(3)
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    simulated = simulate(problem, placement)
    return [simulated.makespan_ns / 1e9, max(times), int(simulated.peak_bytes[gpu]), peak]

report(whole=measured(False), rows=measured(True))
"""


def test_a_step_takes_the_copy(tmp_path: Path) -> None:
    found = gpus.run(CODE, tmp_path).report
    for simulated_s, step_s, simulated_bytes, peak_bytes in (found["whole"], found["rows"]):
        assert step_s == pytest.approx(simulated_s, rel=0.01)
        assert peak_bytes == pytest.approx(simulated_bytes, rel=0.1)
    assert found["rows"][0] > found["whole"][0]
