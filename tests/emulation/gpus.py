"""Runs snippets on two emulated GPUs, each in a process of its own; see tests/processes.py.

A snippet finds the names of IMPORTS and NAMES there and those of NAMES here; the devices are made
when they are first used.
"""

from __future__ import annotations

from pathlib import Path

from tests import processes
from tests.processes import Outcome

# GPUs so slow that two pay for small matrices, whose products this host computes at once.
MACHINE = """
format: hplacer-machine/1
name: slow-gpus
kinds:
  host: {type: CPU, flops: {float32: 1 GFLOP/s}, memory: 8 GiB, memory_bandwidth: 2 GB/s,
         launch_overhead: 1 us, executor_overhead: 1 us, slots: 2}
  GPU_KIND: {type: GPU, flops: {float32: 20 GFLOP/s}, memory: GPU_MEMORY, memory_bandwidth: 40 GB/s,
        launch_overhead: 5 us, executor_overhead: 1 us, launches_ahead: GPU_LAUNCHES}
devices:
  - {name: /device:CPU:0, kind: host}
  - {name: /device:GPU:0, kind: GPU_KIND}
  - {name: /device:GPU:1, kind: GPU_KIND}
links:
  - pcie: {latency: 10 us, bandwidth: 10 GB/s, host: [/device:CPU:0],
           children: [/device:GPU:0, /device:GPU:1]}
"""
ENABLED = """
import os
from hplacer_optimizer import emulation
from hplacer_optimizer.machines import machine_from_yaml
emulation.enable(machine_from_yaml(os.environ["TEST_MACHINE"]))
"""
NAMES = """
CPU, GPU0, GPU1 = DEVICES = ["/job:localhost/replica:0/task:0/device:" + name
                             for name in ("CPU:0", "GPU:0", "GPU:1")]
PAYS = {"cache": CACHE, "planner": "etf", "min_gain": 0.2, "on_miss": "plan"}  # of two towers

def products(ran):
    "How many matrix products ran on each GPU."
    return [sum(r.source == gpu and "MatMul" in r.type for r in ran) for gpu in range(2)]

def products_of(step):
    "The same, of one more call."
    with emulation.traced() as ran:
        step()
    return products(ran)

def step_ns(step):
    "The median virtual time of nine more calls: threads start ops in another order now and then."
    times = []
    for _ in range(9):
        emulation.synchronise()
        start = emulation.now_ns()
        step()
        emulation.synchronise()
        times.append(emulation.now_ns() - start)
    return sorted(times)[4]

def charged_runner(loaded):
    "Of the step, whose kernels take what its problem says."
    from hplacer_optimizer.machines import full_device_name
    from hplacer_optimizer.measuring.step_runner import StepRunner
    from hplacer_optimizer.measuring.target import LOCAL, Target
    step, problem = loaded.step, loaded.problem
    emulation.charge(problem, step.node_names, step.node_op, loaded.captured.is_repeated)
    names = [full_device_name(device) for device in problem.device_names]
    return StepRunner(step, Target(session=LOCAL, device_names=names))

WIDTH, LAYERS = 256, 2

def weights():
    "Of two towers; always the same numbers."
    rng = np.random.default_rng(1)
    shape = [WIDTH, WIDTH]
    return [rng.normal(0, WIDTH**-0.5, shape).astype("f") for _ in range(2 * LAYERS)]

def batch():
    return np.random.default_rng(2).normal(size=[64, WIDTH]).astype("f")

def towers_loss(x, weights):
    "Two towers that share their input and meet in a sum."
    ends = []
    for tower in (weights[:LAYERS], weights[LAYERS:]):
        hidden = x
        for weight in tower:
            hidden = tf.nn.relu(hidden @ weight)
        ends.append(hidden)
    return tf.reduce_mean(tf.add_n(ends) ** 2)

def towers(name="train_step"):
    "A new training function of the two."
    variables, x = [tf.Variable(value) for value in weights()], tf.constant(batch())

    def step():
        with tf.GradientTape() as tape:
            loss = towers_loss(x, variables)
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.1 * gradient)
        return loss

    step.__name__ = name
    return tf.function(step)
"""


def machine_text(
    gpu_memory: str = "512 MiB", gpu_kind: str = "gpu", launches_ahead: bool = False
) -> str:
    """The machine, with so much memory on each GPU, whose kind has this name."""
    text = MACHINE.replace("GPU_MEMORY", gpu_memory).replace("GPU_KIND", gpu_kind)
    return text.replace("GPU_LAUNCHES", str(launches_ahead).lower())


def run(
    code: str,
    directory: Path,
    *,
    gpu_memory: str = "512 MiB",
    gpu_kind: str = "gpu",
    launches_ahead: bool = False,
    log: str = "warning",
    **variables: str,
) -> Outcome:
    """As `processes.run`."""
    return processes.run(
        code,
        directory,
        prelude=ENABLED + processes.IMPORTS + processes.NAMES + NAMES,
        log=log,
        TEST_MACHINE=machine_text(gpu_memory, gpu_kind, launches_ahead),
        **variables,
    )
