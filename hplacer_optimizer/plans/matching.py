"""The nodes of a plan found again in a graph, and the ops that they belong to.

plan, nodes of a graph --map_nodes--> device per node --place_by_nodes--> device per op
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

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


class Nodes(Protocol):
    """N nodes of a graph: a captured step, or another plan."""

    @property
    def node_names(self) -> Sequence[str]: ...
    @property
    def node_hashes(self) -> NDArray[np.uint64]: ...
    @property
    def node_ranks(self) -> NDArray[np.uint32]: ...
    @property
    def structure(self) -> int: ...


def map_nodes(plan: Plan, graph: Nodes) -> NDArray[np.int32]:
    """int32[N]: the plan's device index for each node of a graph, -1: the plan does not tell.

    As the pass does it (cc/tf/assignment.h): by name where name and hash agree, else by hash, and
    where alike nodes have different devices, all of them by hash and rank. A plan without a
    fingerprint has no hashes to go by. Raises PlanError if a node of the plan is not there, or if
    alike nodes cannot be told apart.
    """
    hashes = graph.node_hashes
    devices = np.full(len(hashes), -1, np.int32)
    position = {name: i for i, name in enumerate(graph.node_names)}
    where = [position.get(name, -1) for name in plan.node_names]
    renamed = []
    for entry, (i, value) in enumerate(zip(where, plan.node_hashes.tolist(), strict=True)):
        if i >= 0 and int(hashes[i]) == value:
            devices[i] = plan.node_devices[entry]
        else:
            renamed.append(entry)
    if not renamed:
        return devices
    strangers = renamed
    if plan.fingerprint:
        known = set(hashes.tolist())
        strangers = [entry for entry in renamed if int(plan.node_hashes[entry]) not in known]
    if strangers:
        raise _not_there(plan, strangers)
    if not _map_by_hash(plan, renamed, hashes, devices):
        devices = _map_by_rank(plan, graph)
    return devices


def _map_by_hash(
    plan: Plan, entries: list[int], hashes: NDArray[np.uint64], devices: NDArray[np.int32]
) -> bool:
    """Fills in the nodes without a device; False, half done, if hashes alone do not tell."""
    wanted: dict[int, int] = {}
    for entry in entries:
        value, device = int(plan.node_hashes[entry]), int(plan.node_devices[entry])
        if wanted.setdefault(value, device) != device:
            return False
    counts = Counter(int(plan.node_hashes[entry]) for entry in entries)
    for i in np.flatnonzero(devices < 0).tolist():
        value = int(hashes[i])
        if value in wanted:
            devices[i] = wanted[value]
            counts[value] -= 1
    return not any(counts.values())


def _map_by_rank(plan: Plan, graph: Nodes) -> NDArray[np.int32]:
    if not len(plan.node_ranks) or not len(graph.node_ranks):
        raise _alike(plan, "nothing tells them apart: plan this graph")
    if plan.structure != graph.structure:
        raise _alike(plan, "this graph joins them in another way: plan it")
    planned = zip(plan.node_hashes.tolist(), plan.node_ranks.tolist(), strict=True)
    device_of = dict(zip(planned, plan.node_devices.tolist(), strict=True))
    nodes = [*zip(graph.node_hashes.tolist(), graph.node_ranks.tolist(), strict=True)]
    missing = len(device_of.keys() - set(nodes))
    if missing:
        raise _not_there(plan, [*range(missing)])
    return np.array([device_of.get(node, -1) for node in nodes], np.int32)


def _alike(plan: Plan, then: str) -> PlanError:
    return PlanError(
        f"plan {plan.short_fingerprint}: several nodes are alike but have different devices, their "
        f"names changed, and {then}"
    )


def _not_there(plan: Plan, entries: list[int]) -> PlanError:
    return PlanError(
        f"plan {plan.short_fingerprint}: {len(entries)} of its {len(plan.node_names)} nodes are "
        f"not in this graph, such as {plan.node_names[entries[0]]!r}; `hplacer why --graph` tells "
        "what differs"
    )
