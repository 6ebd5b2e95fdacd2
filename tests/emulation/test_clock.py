"""Virtual time: steps that were worked out by hand, to the nanosecond; and what stops the clock."""

from __future__ import annotations

import ast
from importlib import resources
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from testbed import micro_graphs
from tests import processes

RUNS = 5


def test_steps_take_what_was_worked_out_by_hand(tmp_path: Path) -> None:
    code = f"""
from hplacer_optimizer import emulation
from hplacer_optimizer.machines import machine_from_yaml
from testbed import micro_graphs as micro
emulation.enable(machine_from_yaml(micro.MACHINE))
import json
print("REPORT " + json.dumps({{name: micro.steps_ns(graph, {RUNS})
                               for name, graph in micro.GRAPHS.items()}}))
"""
    report = processes.run(code, tmp_path, prelude="").report
    for name, micro in micro_graphs.GRAPHS.items():
        assert report[name] == [micro.expected_ns] * RUNS, (name, micro.because)


@pytest.mark.parametrize(("threads", "in_turn"), [(16, 20), (1, 40)])
def test_one_thread_serves_both_devices_in_turn(threads: int, in_turn: int, tmp_path: Path) -> None:
    """As the simulator says: a chain of 20 launches or ops of 0.1 ms on each."""
    code = f"""
from dataclasses import replace
from hplacer_optimizer import emulation
from hplacer_optimizer.machines import machine_from_yaml
from testbed import micro_graphs as micro
machine = replace(machine_from_yaml(micro.MACHINE), inter_op_threads={threads})
emulation.enable(machine)
import json
import tensorflow as tf

def steps_ns(other):
    def two_chains():
        return tf.group(*(micro.chain(device, 20).op for device in (micro.GPU0, other)))

    graph = micro.Micro(
        build=two_chains, expected_ns=0, because="", launch_us=100, run_us=1, host_us=100)
    return micro.steps_ns(graph, {RUNS})

print("REPORT " + json.dumps({{other: steps_ns(other) for other in (micro.GPU1, micro.CPU)}}))
"""
    for other, steps_ns in processes.run(code, tmp_path, prelude="").report.items():
        for step_ns in steps_ns:
            assert step_ns == pytest.approx(1e5 * in_turn, rel=0.03), other


def test_the_stub_names_what_the_native_module_holds(tmp_path: Path) -> None:
    code = """
from hplacer_optimizer import emulation
emulation.enable("2xa100")
import json
from hplacer_optimizer.capture import native
names = [name for name in vars(native.load_emulator()) if not name.startswith("_")]
print("REPORT " + json.dumps({"names": names}))
"""
    stub = ast.parse(resources.files("hplacer_optimizer").joinpath("_emulator.pyi").read_text())
    declared = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert {*processes.run(code, tmp_path, prelude="").report["names"]} == declared


def test_who_does_not_ask_for_emulation_loads_none_of_it(tmp_path: Path) -> None:
    code = """
step = trainer()
on()
losses(step)
report(native="_emulator" in open("/proc/self/maps").read(),
       gpus=len(tf.config.list_physical_devices("GPU")))
"""
    assert processes.run(code, tmp_path).report == {"native": False, "gpus": 0}


def test_a_thread_that_spins_ends_the_step_with_an_error(tmp_path: Path) -> None:
    code = """
from hplacer_optimizer import emulation
emulation.enable("2xa100")
import json, threading, time
import tensorflow as tf
with tf.device("/GPU:0"):
    x = tf.ones([64, 64])
stopping = False
def spin():
    while not stopping:
        pass
thread = threading.Thread(target=spin)
thread.start()
try:
    for _ in range(3):
        float(tf.reduce_sum(x @ x))
    error = "none"
except tf.errors.DeadlineExceededError as found:
    error = found.message
try:
    emulation.now_ns()
    told = "a time"
except emulation_error as found:
    told = str(found)
stopping = True
thread.join()
print("REPORT " + json.dumps({"error": error, "told": told}))
"""
    code = "from hplacer_optimizer.errors import EmulationError as emulation_error\n" + code
    done = processes.run(code, tmp_path, prelude="", HPLACER_EMULATION_LIMIT_S="1")
    assert "virtual time stood still" in done.report["told"]
    assert "runs and could still act" in done.report["told"]
    assert "virtual time stood still" in done.report["error"]
    assert len(done.log) == 1
