"""Graphs whose steps can be worked out by hand, run on two emulated GPUs: the clock's test.

    python -m testbed.micro_graphs --runs 50      prints each graph's times as JSON

The machine: GPUs without time of their own for ops (each kernel takes what is set here), links of
10 us and 1 GB/s between the host and each GPU, and between GPUs, a channel for each direction.
A matrix of 128 x 128 has 65,536 bytes, so that a copy of it takes 10 + 65.536 us.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MACHINE = """
format: hplacer-machine/1
name: micro
kinds:
  host: {type: CPU, flops: {float32: 1 TFLOP/s}, memory: 8 GiB, memory_bandwidth: 1 TB/s,
         launch_overhead: 0 us, executor_overhead: 0 us, slots: 2}
  gpu: {type: GPU, flops: {float32: 1 TFLOP/s}, memory: 1 GiB, memory_bandwidth: 1 TB/s,
        launch_overhead: 0 us, executor_overhead: 0 us}
devices:
  - {name: /device:CPU:0, kind: host}
  - {name: /device:GPU:0, kind: gpu}
  - {name: /device:GPU:1, kind: gpu}
links:
  - link: {src: /device:CPU:0, dst: /device:GPU:0, channel: h0, latency: 10 us, bandwidth: 1 GB/s}
  - link: {src: /device:CPU:0, dst: /device:GPU:1, channel: h1, latency: 10 us, bandwidth: 1 GB/s}
  - link: {src: /device:GPU:0, dst: /device:CPU:0, channel: 0h, latency: 10 us, bandwidth: 1 GB/s}
  - link: {src: /device:GPU:1, dst: /device:CPU:0, channel: 1h, latency: 10 us, bandwidth: 1 GB/s}
  - link: {src: /device:GPU:0, dst: /device:GPU:1, channel: 01, latency: 10 us, bandwidth: 1 GB/s}
  - link: {src: /device:GPU:1, dst: /device:GPU:0, channel: 10, latency: 10 us, bandwidth: 1 GB/s}
"""
US = 1_000
COPY, BIT = 10 * US + 65_536, 10 * US + 1  # ns, of one matrix, of one boolean
GPU0, GPU1, CPU = "/device:GPU:0", "/device:GPU:1", "/device:CPU:0"


@dataclass(frozen=True)
class Micro:
    """A graph, what its kernels take, and the step in ns, worked out in `because`."""

    build: Callable[[], Any]
    expected_ns: int
    because: str
    launch_us: int = 0
    run_us: int = 1000
    host_us: int = 0


def _ops() -> Any:
    import tensorflow as tf

    return tf.compat.v1


def _matrix(device: str) -> Any:
    """On the device, from a variable, which is there without a copy."""
    v1 = _ops()
    with v1.device(device):
        number = len(v1.global_variables())
        variable = v1.get_variable(
            f"m{number}", shape=(128, 128), initializer=v1.ones_initializer(), use_resource=True
        )
        return variable.read_value()


def _step(x: Any, device: str, type_: str = "Square") -> Any:
    """One kernel."""
    import tensorflow as tf

    with _ops().device(device):
        return getattr(tf.raw_ops, type_)(x=x)


def chain(device: str, length: int, x: Any = None) -> Any:
    """Kernels, each of which reads what the last one wrote."""
    x = _matrix(device) if x is None else x
    for _ in range(length):
        x = _step(x, device)
    return x


def _together(*tensors: Any) -> Any:
    return _ops().group(*(tensor.op for tensor in tensors))


def _fork() -> Any:
    """A kernel on GPU 0 whose result GPU 1 and the host go on with."""
    x = chain(GPU0, 1)
    return _together(chain(GPU1, 3, x), _step(x, CPU))


def _join() -> Any:
    import tensorflow as tf

    one, other = chain(GPU0, 1), chain(GPU1, 1)
    with _ops().device(GPU1):
        return tf.raw_ops.AddV2(x=one, y=other).op


def _ping_pong() -> Any:
    x = chain(GPU0, 1)
    for device in (GPU1, GPU0, GPU1, GPU0):
        x = chain(device, 1, x)
    return x.op


def _two_copies(first: str, second: str) -> Any:
    """One kernel on each of two sources, then copies at the same time."""
    return _together(chain(second, 1, chain(first, 1)), chain(first, 1, chain(second, 1)))


def _two_copies_one_way() -> Any:
    """Two results of GPU 0 that GPU 1 reads: the channel takes one after the other."""
    return _together(chain(GPU1, 1, chain(GPU0, 1)), chain(GPU1, 1, chain(GPU0, 1)))


def _loop() -> Any:
    v1 = _ops()
    with v1.device(GPU0):
        trips, x = v1.constant(0), _matrix(GPU0)
        _, x = v1.while_loop(lambda i, _: i < 5, lambda i, x: (i + 1, _step(x, GPU0)), (trips, x))
        return x.op


def _cond(is_true: bool) -> Any:
    import tensorflow as tf

    x = _matrix(GPU0)
    with _ops().device(CPU):
        is_large = tf.compat.v1.placeholder_with_default(is_true, ())
    with _ops().device(GPU0):
        return tf.cond(is_large, lambda: chain(GPU0, 4, x), lambda: chain(GPU0, 2, x)).op


def _control() -> Any:
    """GPU 1 begins when GPU 0 is done, without data."""
    v1 = _ops()
    first = chain(GPU0, 2)
    with v1.control_dependencies([first]):
        return chain(GPU1, 1).op


def _signal_behind_copy() -> Any:
    """GPU 1 waits for the first kernel of GPU 0 and reads the second."""
    first = chain(GPU0, 1)
    second = chain(GPU0, 1, first)
    with _ops().control_dependencies([first]):
        return _together(chain(GPU1, 1, second), chain(GPU1, 1))


def _many_readers() -> Any:
    """A tensor goes to a device once, however many read it there."""
    x = chain(GPU0, 1)
    return _together(*(chain(GPU1, 1, x) for _ in range(3)))


def _host_between() -> Any:
    x = chain(GPU0, 1)
    return chain(GPU1, 1, _step(x, CPU)).op


GRAPHS = {
    "chain": Micro(lambda: chain(GPU0, 20).op, 20_000 * US, "20 kernels of 1 ms"),
    "two chains, one GPU": Micro(
        lambda: _together(chain(GPU0, 20), chain(GPU0, 20)), 40_000 * US, "40 kernels of 1 ms"
    ),
    "two chains, two GPUs": Micro(
        lambda: _together(chain(GPU0, 20), chain(GPU1, 20)), 20_000 * US, "20 beside 20"
    ),
    "unequal chains": Micro(
        lambda: _together(chain(GPU0, 7), chain(GPU1, 12)), 12_000 * US, "the longer one"
    ),
    "one copy": Micro(
        lambda: chain(GPU1, 1, chain(GPU0, 1)).op, 2_000 * US + COPY, "kernel, copy, kernel"
    ),
    "copies to and fro": Micro(_ping_pong, 5_000 * US + 4 * COPY, "5 kernels, 4 copies between"),
    "copies in both directions": Micro(
        lambda: _two_copies(GPU0, GPU1), 2_000 * US + COPY, "each direction has a channel"
    ),
    "two copies on one channel": Micro(
        _two_copies_one_way,
        4_000 * US + COPY,
        "both kernels of GPU 0 are launched before the copies, which wait for them; the second "
        "copy is made while GPU 1 runs its first kernel",
    ),
    "a fork": Micro(
        _fork,
        4_000 * US + COPY,
        "1 kernel, a copy to GPU 1 beside one to the host, 3 kernels",
        host_us=1500,
    ),
    "a join": Micro(
        _join, 2_000 * US + COPY, "1 kernel beside 1, the copy, the sum takes what a kernel takes"
    ),
    "three readers": Micro(_many_readers, 4_000 * US + COPY, "one copy, then three kernels"),
    "launches bind": Micro(
        lambda: chain(GPU0, 20).op,
        20 * 100 * US + 10 * US,
        "20 launches of 100 us, the last kernel",
        launch_us=100,
        run_us=10,
    ),
    "kernels bind": Micro(
        lambda: chain(GPU0, 20).op,
        10 * US + 20 * 100 * US,
        "a launch of 10 us, 20 kernels of 100",
        launch_us=10,
        run_us=100,
    ),
    "launches on two GPUs": Micro(
        lambda: _together(chain(GPU0, 20), chain(GPU1, 20)),
        20 * 50 * US + 50 * US,
        "each GPU's launches are a row of their own",
        launch_us=50,
        run_us=50,
    ),
    "launches of one GPU": Micro(
        lambda: _together(chain(GPU0, 10), chain(GPU0, 10)),
        20 * 50 * US + 10 * US,
        "two threads launch on one GPU in turns",
        launch_us=50,
        run_us=10,
    ),
    "a loop": Micro(
        _loop,
        5_000 * US + 12 * BIT,
        "5 trips of one kernel; TensorFlow sends each of 6 conditions, which is found on the host, "
        "to the GPU and back",
    ),
    "a branch taken": Micro(
        lambda: _cond(True), 4_000 * US + BIT, "the condition is sent to the GPU, then 4 kernels"
    ),
    "a branch not taken": Micro(
        lambda: _cond(False), 2_000 * US + BIT, "the condition, then 2 kernels"
    ),
    "a control edge": Micro(
        _control,
        3_000 * US,
        "TensorFlow sends an empty tensor, which waits for GPU 0's kernels and takes no channel",
    ),
    "a signal behind a copy": Micro(
        _signal_behind_copy,
        4_000 * US + COPY,
        "the empty tensor is that of a constant: GPU 0's thread comes upon the second kernel's "
        "tensor before it, so it waits for the second kernel and its copy; then two kernels",
    ),
    "through the host": Micro(
        _host_between,
        2_000 * US + 2 * COPY + 500 * US,
        "kernel, copy, 500 us, copy, kernel",
        host_us=500,
    ),
    "host slots": Micro(
        lambda: _together(*(_step(_matrix(CPU), CPU) for _ in range(5))),
        3 * 300 * US,
        "5 ops of 300 us in 2 slots",
        host_us=300,
    ),
}


def steps_ns(micro: Micro, runs: int) -> list[int]:
    """The virtual times of so many steps, after two that are not timed."""
    import tensorflow as tf

    from hplacer_optimizer import emulation

    v1 = tf.compat.v1
    for name in ("Square", "AddV2"):
        emulation.charge_type(name, launch_ns=micro.launch_us * US, run_ns=micro.run_us * US)
        emulation.charge_type(name, run_ns=micro.host_us * US, on_host=True)
    times = []
    with v1.Graph().as_default():
        step = micro.build()
        config = v1.ConfigProto(allow_soft_placement=False)
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1  # equal kernels stay apart
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(runs + 2):
                emulation.synchronise()
                start_ns = emulation.now_ns()
                session.run(step)
                emulation.synchronise()
                times.append(emulation.now_ns() - start_ns)
    return times[2:]


def main() -> None:
    """Prints the times of each graph as a line of JSON."""
    from hplacer_optimizer import emulation
    from hplacer_optimizer.machines import machine_from_yaml

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="names of graphs")
    options = parser.parse_args()
    emulation.enable(machine_from_yaml(MACHINE))
    for name, micro in GRAPHS.items():
        if options.only and name not in options.only:
            continue
        times = steps_ns(micro, options.runs)
        print(
            json.dumps({"graph": name, "times": times, "expected": micro.expected_ns}), flush=True
        )


if __name__ == "__main__":
    main()
