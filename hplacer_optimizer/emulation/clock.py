"""The virtual time of this process."""

from __future__ import annotations

import time
from collections.abc import Callable

from hplacer_optimizer.capture import native
from hplacer_optimizer.emulation.enabling import is_on
from hplacer_optimizer.errors import EmulationError


def now_ns() -> int:
    """The virtual time, in ns since the first use of a device.

    It stands still while anything of this process works, Python included, and passes while it waits
    for devices. Raises EmulationError if devices are not emulated here, or the clock has stopped.
    """
    emulator = native.load_emulator()
    if reason := emulator.stopped():
        raise EmulationError(reason)
    return int(emulator.now_ns())


def synchronise() -> None:
    """Waits until all emulated devices have done what they were given, which takes virtual time."""
    native.load_emulator().synchronise()


def step_clock() -> Callable[[], float]:
    """The clock that steps are timed with, in seconds: the virtual one if devices are emulated.

    Reading the virtual one waits for the devices first, since calls of functions do not.
    """
    if not is_on():
        return time.perf_counter

    def virtual_s() -> float:
        synchronise()
        return now_ns() / 1e9

    return virtual_s
