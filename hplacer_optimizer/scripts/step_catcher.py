"""In the script's process: takes the training step from the pass, and ends the process.

The pass asks as always; it gets no plan. The first step that certainly trains (it applies an
update to variables) is written down and the process group killed, before that step ever ran: no
handler, `finally` or exit hook of the script can then save half a training. A step that may be
one (it assigns variables that it reads, as metrics do) is kept in case that nothing better comes.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture import native
from hplacer_optimizer.capture.captured import save_captured
from hplacer_optimizer.capture.training_ops import applies_updates, assigns_what_it_reads
from hplacer_optimizer.errors import MachineError
from hplacer_optimizer.machines import (
    Machine,
    full_device_name,
    machine_from_yaml,
    save_machine,
)
from hplacer_optimizer.measuring.training_steps.recording import Steps
from hplacer_optimizer.measuring.training_steps.step_observer import Call, StepObserver
from hplacer_optimizer.options import Options
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.support.child_process import kill_group

MACHINE, OPTIONS, SEEN = "machine.yaml", "options.json", "seen.txt"
COMPILED = "compiled.json"  # names of functions that train, and whose ops the pass does not see
STEP, CANDIDATE = "step", "candidate"  # directories

_lock = threading.Lock()
_candidate_ops = 0


def answer(where: Path, request: Any, options: Options, detect: Callable[[Any], Machine]) -> None:
    """Answers a request of the pass; does not return once the training step is there."""
    try:
        machine = _machine(request.devices, detect)
    except MachineError as error:
        exchange.give_up(where, str(error))
    if request.stage == "lookup":
        request.finish_missing(native.machine_rates(machine.kinds, machine.device_kind))
        return
    global _candidate_ops
    types = set(request.arrays["op_types"])
    with _lock:
        if applies_updates(types):
            _save(where, STEP, request, options, machine)
            kill_group()
        if assigns_what_it_reads(types) and request.num_ops > _candidate_ops:
            _candidate_ops = request.num_ops
            _save(where, CANDIDATE, request, options, machine)
    request.finish_declined("it is not a training step")


def remember(where: Path, report: Any) -> None:
    """Keeps what became of a graph, for the message if no step is found."""
    reason = f": {report.reason}" if report.reason else ""
    with open(where / SEEN, "a") as file:
        file.write(f"{report.label} ({report.num_ops} ops{reason})\n")


class CompiledStepObserver(StepObserver):
    """Names the functions that XLA compiles, which hides their ops from the pass."""

    def __init__(self, where: Path) -> None:
        super().__init__()
        self._where = where

    def on_step(self, steps: Steps, call: Call, is_enough: bool) -> None:
        """The others never come to an end here."""
        if self.compiled:
            exchange.write(self._where / COMPILED, [*self.compiled])


def _machine(devices: Any, detect: Callable[[Any], Machine]) -> Machine:
    """The given machine, with its devices in the session's order; else the detected one."""
    text = exchange.orders()["machine"]
    if text is None:
        return detect(devices)
    machine = machine_from_yaml(text)
    given = {full_device_name(device.name): device for device in machine.devices}
    wanted = [device.name for device in devices]
    if sorted(given) != sorted(wanted):
        raise MachineError(
            f"machine {machine.name!r} has the devices {', '.join(given)}, but the script runs on "
            f"{', '.join(wanted)}; a plan is found only where the names are the same"
        )
    return replace(machine, devices=tuple(given[name] for name in wanted))


def _save(where: Path, name: str, request: Any, options: Options, machine: Machine) -> None:
    """Appears complete or not at all; the first step of several processes stays."""
    temporary = where / f"{name}.{os.getpid()}.tmp"
    temporary.mkdir(exist_ok=True)
    save_captured(request, temporary)
    save_machine(machine, temporary / MACHINE)
    (temporary / OPTIONS).write_text(json.dumps(options.changed()))
    if name == CANDIDATE and (where / name).exists():
        (where / name).rename(where / f"{name}.{os.getpid()}.{_candidate_ops}.old")
    temporary.rename(where / name)
