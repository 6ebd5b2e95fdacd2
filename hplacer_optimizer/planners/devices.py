"""What the devices of a problem are: CPUs, GPUs, accelerators; and which of them a unit may use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlannerUnavailableError

_TENSORFLOW_NAME = re.compile(r"(?:^|/)device:([A-Za-z_]+):\d+$")
_KIND = re.compile(r"(?<![a-z])(cpu|gpu)(?![a-z])")


def device_types(problem: Problem) -> list[str]:
    """Returns "CPU", "GPU", ... of each of the m devices.

    By TensorFlow's device name (`.../device:GPU:0`), else by the word cpu or gpu in the name of the
    kind, else the kind's own name in capitals.
    """
    types = []
    for name, kind in zip(problem.device_names, problem.device_kind, strict=True):
        kind_name = problem.device_kinds[kind]
        match = _TENSORFLOW_NAME.search(name) or _KIND.search(kind_name.lower())
        types.append((match[1] if match else kind_name).upper())
    return types


def tasks(problem: Problem) -> list[str]:
    """Returns "/job:worker/replica:0/task:1" of each of the m devices; "" if its name has none."""
    parts = [name.rpartition("/device:") for name in problem.device_names]
    return [task for task, _, _ in parts]


def devices_of_type(problem: Problem, device_type: str) -> list[int]:
    """Returns the indices of the devices of a type, in order."""
    return [d for d, other in enumerate(device_types(problem)) if other == device_type]


def require_devices_of_type(problem: Problem, device_type: str, planner: str) -> list[int]:
    """The same; raises PlannerUnavailableError if there is none."""
    found = devices_of_type(problem, device_type)
    if not found:
        names = ", ".join(f"'{name}'" for name in problem.device_names)
        raise PlannerUnavailableError(
            f"{planner}: there is no {device_type} among the devices {names or '(none)'}; name one "
            f"'/device:{device_type}:0', or choose another planner"
        )
    return found


def accelerators(problem: Problem) -> list[int]:
    """Indices of the devices that are no CPUs; all devices where there are CPUs only."""
    found = [d for d, other in enumerate(device_types(problem)) if other != "CPU"]
    return found or list(range(problem.num_devices))


def candidate_mask(problem: Problem) -> NDArray[np.bool_]:
    """Returns bool[U, m]: whether every op of the unit is allowed and has a kernel there.

    Raises InfeasibleError, which names the op, if a unit has no candidate at all.
    """
    _engine.check_candidates(problem)
    mask = np.zeros((problem.num_units, problem.num_devices), np.bool_)
    unit = np.repeat(np.arange(problem.num_units), np.diff(problem.candidate_ptr))
    mask[unit, problem.candidates] = True
    return mask


def first_candidate(problem: Problem, preference: Sequence[int]) -> NDArray[np.int32]:
    """Returns int32[U]: the first candidate in the order of preference, then by device index.

    Raises InfeasibleError if a unit has no candidate at all.
    """
    mask = candidate_mask(problem)
    if not problem.num_devices:
        return np.zeros(0, np.int32)
    rest = [d for d in range(problem.num_devices) if d not in preference]
    order = np.array([*preference, *rest], np.int32)
    chosen: NDArray[np.int32] = order[mask[:, order].argmax(axis=1)]
    return chosen


def on_device(problem: Problem, device: int) -> NDArray[np.int32]:
    """Returns int32[n]: all on one device; what may not run there on its first candidate.

    Raises InfeasibleError if a unit has no candidate at all.
    """
    return first_candidate(problem, [device])[problem.units]


def where_possible(
    problem: Problem, wanted: NDArray[np.integer[Any]], preference: Sequence[int] = ()
) -> NDArray[np.int32]:
    """Returns int32[n]: each unit on the wanted device, int[U], if that is a candidate of it.

    Else on its first candidate, in the order of preference. Raises InfeasibleError if a unit has no
    candidate at all.
    """
    possible = candidate_mask(problem)[np.arange(problem.num_units), wanted]
    per_unit = np.where(possible, wanted, first_candidate(problem, preference))
    placement: NDArray[np.int32] = per_unit.astype(np.int32)[problem.units]
    return placement


def majority(
    group: NDArray[np.integer[Any]],
    device: NDArray[np.integer[Any]],
    num_groups: int,
    num_devices: int,
) -> NDArray[np.int32]:
    """Returns int32[num_groups]: the device that most members of a group have, the lower of equals.

    `group` and `device` are those of each member; a group without members has device 0.
    """
    votes = np.zeros((num_groups, num_devices), np.int64)
    np.add.at(votes, (group, device), 1)
    result: NDArray[np.int32] = votes.argmax(axis=1).astype(np.int32)
    return result


def units_on(mask: NDArray[np.bool_], devices: Sequence[int]) -> NDArray[np.bool_]:
    """Returns bool[U]: whether the unit may run on one of the devices, by mask[U, m]."""
    runs: NDArray[np.bool_] = np.logical_or.reduce(mask[:, list(devices)], axis=1)
    return runs
