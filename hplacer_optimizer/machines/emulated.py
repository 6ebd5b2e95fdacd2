"""The machine whose devices are emulated in this process, as its environment tells.

Who emulates devices writes their machine into a file, and names that in the environment: then this
process and those that it starts describe the devices by what they do, and not by what they are.
"""

from __future__ import annotations

import functools
import os

from hplacer_optimizer.machines.machine import Machine
from hplacer_optimizer.machines.machine_file import load_machine

VARIABLE = "HPLACER_EMULATED_MACHINE"


def emulated_machine() -> Machine | None:
    """None: the devices are real. Raises MachineError or OSError if the file cannot be read."""
    path = os.environ.get(VARIABLE)
    return _read(path) if path else None


@functools.lru_cache(maxsize=1)
def _read(path: str) -> Machine:
    """Once, since each graph of a training process asks."""
    return load_machine(path)
