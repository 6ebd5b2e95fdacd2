"""What people are told of emulated devices."""

from __future__ import annotations

import sys
from collections import Counter

from hplacer_optimizer import emulation
from hplacer_optimizer.errors import EmulationError
from hplacer_optimizer.machines import Machine
from hplacer_optimizer.support.formats import format_ns


def announcement(machine: Machine) -> str:
    """One line, before anything is run on them."""
    counts = Counter(device.kind for device in machine.devices if device.type != "CPU")
    devices = ", ".join(f"{count} x {kind}" for kind, count in counts.items())
    return (
        f"hplacer: emulated GPUs: {devices} ({machine.name}); times are virtual, those of a cost "
        "model, and Python takes none"
    )


def passed(real_s: float) -> str:
    """One line at the end of a script: the virtual time of this process beside the real one."""
    real = format_ns(round(real_s * 1e9))
    if "tensorflow" not in sys.modules:
        return f"hplacer: emulated GPUs: nothing ran on them, TensorFlow was not imported ({real})"
    try:
        virtual = format_ns(emulation.now_ns())
    except EmulationError as error:
        return (
            f"hplacer: emulated GPUs: the virtual time is not known: {error} ({real} of real time)"
        )
    return f"hplacer: emulated GPUs: {virtual} of virtual time passed, in {real} of real time"
