"""Whether a plan was made for other devices than those that are here.

A fingerprint has the names and the types of devices. A store that several hosts share, or a host
with new GPUs, has plans under the same fingerprint that were made for other models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hplacer_optimizer.machines import Machine, full_device_name, shipped_kinds
from hplacer_optimizer.machines.describe import gpus_here
from hplacer_optimizer.machines.detect import match_model
from hplacer_optimizer.plans.guard import machine_of
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.verdict import Hardware
from hplacer_optimizer.support.formats import format_bytes


def why_elsewhere(plan: Plan, here: Machine) -> str:
    """As "it was made for 4 x a100, and here are 4 x k40"; "": nothing says that it was.

    Of accelerators only, and of models that both are known. A device that has less memory than a
    plan takes there, which was made to fit, is another one, too. What was measured here is not
    asked.
    """
    measured = plan.verdict is not None and plan.verdict.outcome_on(Hardware.here()) is not None
    there = None if plan.machine is None or measured else machine_of(plan.machine)
    if there is None:
        return ""
    models = _models(there), _models(here)
    shared = models[0].keys() & models[1].keys()
    if any(models[0][name] != models[1][name] for name in shared):
        told = [_told(of_machine[name] for name in sorted(shared)) for of_machine in models]
        return f"it was made for {told[0]}, and here are {told[1]}"
    if not plan.feasible:
        return ""
    memory = dict(zip(map(full_device_name, here.device_names), here.memory_bytes, strict=True))
    for name, peak in zip(plan.device_names, plan.peak_bytes, strict=True):
        if "/device:CPU:" not in name and 0 < memory.get(full_device_name(name), 0) < peak:
            return (
                f"it takes {format_bytes(peak)} on {name.rpartition('device:')[2]}, which has "
                f"{format_bytes(memory[full_device_name(name)])} here"
            )
    return ""


def made_for(plan: Plan) -> str:
    """As "made for 1 x haswell-18 with 256 GiB, 2 x k40 with 12 GiB"; "": nothing tells.

    Then whether the GPUs of this host are such ones, where the plan is for GPUs of one host.
    """
    there = None if plan.machine is None else machine_of(plan.machine)
    if there is None:
        return ""
    kinds = [there.kinds[number].name for number in there.device_kind]
    devices = Counter(zip(kinds, map(format_bytes, there.memory_bytes), strict=True))
    told = [f"{count} x {kind} with {memory}" for (kind, memory), count in devices.items()]
    return f"made for {', '.join(told)}{_beside_here(plan, there)}"


def _beside_here(plan: Plan, there: Machine) -> str:
    wanted = [device for device in there.devices if device.type != "CPU"]
    if not wanted or len({device.task for device in there.devices}) > 1:
        return ""
    here = gpus_here()
    if here is None:
        return "; NVIDIA's driver finds no GPUs on this host"
    if why := why_elsewhere(plan, here):
        return f"; training here makes it anew: {why}"
    found = sum(device.type != "CPU" for device in here.devices)
    if found < len(wanted):
        return f"; this host has {found} GPU{'s' if found > 1 else ''}"
    return "; this host has such GPUs" if _models(there) else ""


def _models(machine: Machine) -> dict[str, str]:
    """The shipped kind of each accelerator that is known, by full name."""
    known = shipped_kinds()
    found = {}
    for device, number in zip(machine.devices, machine.device_kind, strict=True):
        kind = machine.kinds[number]
        model = known.get(kind.name) or match_model(kind.name, known)
        if kind.type != "CPU" and model is not None:
            found[full_device_name(device.name)] = model.name
    return found


def _told(models: Iterable[str]) -> str:
    return ", ".join(f"{count} x {model}" for model, count in Counter(models).items())
