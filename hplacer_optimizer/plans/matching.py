"""The nodes of a plan found again in a graph, and the ops that they belong to.

plan, node names and hashes --map_nodes--> device per node --place_by_nodes--> device per op
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.plans.plan import Plan

__all__ = ["map_nodes", "place_by_nodes"]


def place_by_nodes(
    problem: Problem, node_op: NDArray[np.int32], node_device: NDArray[np.int32]
) -> NDArray[np.int32]:
    """int32[n]: the device of each op, from those of the nodes that belong to it, -1: not known.

    Units of which nothing is known can be in one place only: where they are pinned.
    """
    unit_device = problem.candidates[problem.candidate_ptr[:-1]].astype(np.int32)
    known = node_device >= 0
    unit_device[problem.units[node_op[known]]] = node_device[known]
    placement: NDArray[np.int32] = unit_device[problem.units]
    return placement


def map_nodes(plan: Plan, names: Sequence[str], hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
    """The plan's device index for each node of a graph, -1 for nodes that it does not tell of.

    As the pass does it: by name where name and hash agree, else by hash; a plan without a
    fingerprint has no hashes to go by. Raises PlanError if a node of the plan is not there, or if
    several alike have different devices and lost their names.
    """
    devices = np.full(len(names), -1, np.int32)
    position = {name: i for i, name in enumerate(names)}
    where = [position.get(name, -1) for name in plan.node_names]
    renamed = []
    for entry, (i, value) in enumerate(zip(where, plan.node_hashes.tolist(), strict=True)):
        if i >= 0 and int(hashes[i]) == value:
            devices[i] = plan.node_devices[entry]
        else:
            renamed.append(entry)
    if renamed and not plan.fingerprint:
        raise _not_there(plan, renamed)
    if renamed:
        _map_by_hash(plan, renamed, hashes, devices)
    return devices


def _map_by_hash(
    plan: Plan, entries: list[int], hashes: NDArray[np.uint64], devices: NDArray[np.int32]
) -> None:
    wanted: dict[int, int] = {}
    for entry in entries:
        value, device = int(plan.node_hashes[entry]), int(plan.node_devices[entry])
        if wanted.setdefault(value, device) != device:
            raise PlanError(
                f"plan {plan.short_fingerprint}: several nodes like {plan.node_names[entry]!r} are "
                "alike but have different devices, and their names changed; plan this graph"
            )
    free: dict[int, list[int]] = {}
    for i in np.flatnonzero(devices < 0).tolist():
        free.setdefault(int(hashes[i]), []).append(i)
    counts = Counter(int(plan.node_hashes[entry]) for entry in entries)
    missing = [
        entry
        for entry in entries
        if len(free.get(int(plan.node_hashes[entry]), ())) != counts[int(plan.node_hashes[entry])]
    ]
    if missing:
        raise _not_there(plan, missing)
    for value, device in wanted.items():
        devices[free[value]] = device


def _not_there(plan: Plan, entries: list[int]) -> PlanError:
    return PlanError(
        f"plan {plan.short_fingerprint}: {len(entries)} of its {len(plan.node_names)} nodes are "
        f"not in this graph, such as {plan.node_names[entries[0]]!r}; `hplacer why --graph` tells "
        "what differs"
    )
