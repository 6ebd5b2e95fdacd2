"""Emulates the GPUs of a machine under TensorFlow's own runtime.

    enable, environment --> the environment of a process: its GPUs are emulated
                              |
    configuration.py          |  a machine as the native part reads it
    native module        <----+  devices, streams and a clock in virtual time (cc/emulator)
    clock.py, kernel_costs.py what is read from it, and told to it
    telling.py                what people are told

TensorFlow places, partitions and runs a graph on these devices as on any; kernels compute what the
CPU's kernels compute, and take the time that a cost model says. That is virtual time: how long this
machine takes is of no account. It tells what TensorFlow makes of a placement, and nothing of how
long a real kernel takes.
"""

from __future__ import annotations

from hplacer_optimizer.emulation.clock import now_ns, step_clock, synchronise
from hplacer_optimizer.emulation.enabling import enable, environment, is_on, machine
from hplacer_optimizer.emulation.kernel_costs import allocate_only, charge, charge_type
from hplacer_optimizer.emulation.trace import Ran, traced

__all__ = [
    "Ran",
    "allocate_only",
    "charge",
    "charge_type",
    "enable",
    "environment",
    "is_on",
    "machine",
    "now_ns",
    "step_clock",
    "synchronise",
    "traced",
]
