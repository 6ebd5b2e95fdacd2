"""Constants that are the same and wait for the same op: of many, a device has one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.emulation import gpus

CODE = """
from hplacer_optimizer import simulate
from hplacer_optimizer.capture.loading import load_graph

machine = machine_from_yaml(os.environ["TEST_MACHINE"])
TERMS = 24  # more than the host has threads

with tf.Graph().as_default() as graph:
    weight = v1.get_variable("weight", [64, 64], use_resource=True)
    total = v1.get_variable("total", [64, 64], use_resource=True)
    hidden = [tf.tanh(weight + float(i)) for i in range(TERMS)]
    with tf.device(CPU):
        gate = tf.reduce_sum(tf.add_n(hidden), name="gate")
    ends = []
    for i in range(TERMS):
        with tf.control_dependencies([gate]):
            least = tf.constant(0.5)
        ends.append(tf.matmul(tf.maximum(hidden[i], least, name=f"first_{i}"), weight,
                              name=f"second_{i}"))
    target = tf.group(total.assign(tf.add_n(ends)).op, name="target")
    loaded = load_graph(graph, machine=machine, targets=[target], keep_graph=True)
problem = loaded.problem
placement = np.array(problem.default_device, np.int32)
with charged_runner(loaded).placed(placement) as step:
    step.warm_up(3)
    with emulation.traced() as ran:
        step.time(1)

def follow(starts):
    "Whether all of the first ops start before any of the second ones, by when each starts."
    first, second = ([starts[f"{kind}_{i}"] for i in range(TERMS)] for kind in ("first", "second"))
    return bool(max(first) < min(second))

def simulated(problem):
    return follow(dict(zip(problem.op_names, simulate(problem, placement).start_ns)))

report(executed=follow({r.name: r.start_ns for r in ran}),
       simulated=simulated(problem), apart=simulated(problem.replace(same_as=None)))
"""


def test_one_thread_goes_on_with_all_readers_of_a_constant(tmp_path: Path) -> None:
    found = gpus.run(CODE, tmp_path, launches_ahead=True).report
    assert found == {"executed": True, "simulated": True, "apart": False}
