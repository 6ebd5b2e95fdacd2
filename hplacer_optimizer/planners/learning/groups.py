"""Groups and items to begin with, from the graph and the machine alone; nothing is scored here.

    unit  --one of-->  item  --draws one of a few-->  group  --draws-->  device

Units are clustered into groups in several ways (`KINDS`). An item is a part of a group: it may draw
that group, or one of those with which it exchanges the most bytes. U units, N items, G groups, m
devices.

All units of a group have the same candidates. A group is offered to an item only where all
candidates of the group are candidates of the item. So no draw breaks a constraint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners import colocation
from hplacer_optimizer.planners.devices import candidate_mask
from hplacer_optimizer.planners.unit_graph import exchanges

NO_GROUP = -1

_Bool = NDArray[np.bool_]
_Int32 = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Groups:
    """What a policy draws."""

    item_of_unit: _Int32  # [U]
    candidates: _Int32  # [N, K] the groups that an item may draw, its own first; or NO_GROUP
    may_run: _Bool  # [G, m] where the units of a group may run


class GroupMaker:
    """Makes groups of one problem's units."""

    def __init__(self, problem: Problem) -> None:
        """Raises InfeasibleError if a unit has no candidate."""
        self.problem = problem
        self._mask = candidate_mask(problem)
        sets = np.unique(np.packbits(self._mask, axis=1), axis=0, return_inverse=True)[1]
        self._candidate_set = sets.ravel()
        first, second, size_bytes = exchanges(problem)
        self._unit = np.concatenate([first, second])
        self._neighbour = np.concatenate([second, first])
        self._weight = np.concatenate([size_bytes, size_bytes]) + 1  # control edges, too

    def scopes(self, most: int) -> _Int32:
        """int32[U]: the deepest name scopes of which there are fewer than `most`."""
        return self._split(colocation.groups_of_units(self.problem, most))

    def clusters(self, count: int, per_device: int) -> _Int32:
        """int32[U]: see cc/engine/search/unit_clusters.h."""
        (cluster,) = _engine.cluster_units(self.problem, [count], per_device)
        return cluster

    def at_random(self, count: int, rng: np.random.Generator) -> _Int32:
        """int32[U]: drawn uniformly, then divided where candidates differ."""
        return self._split(rng.integers(count, size=self.problem.num_units).astype(np.int32))

    def of_units(self) -> _Int32:
        """int32[U]: each unit by itself."""
        return np.arange(self.problem.num_units, dtype=np.int32)

    def groups(self, group: _Int32, part: _Int32, neighbours: int, near: bool = True) -> Groups:
        """Of a group and a part of each unit, int32[U] each: items are the parts of groups.

        An item may draw so many `neighbours`, or if not `near` as many groups drawn at random.
        """
        item_of_unit = colocation.split(group, part)
        count = int(item_of_unit.max(initial=-1)) + 1
        own = np.zeros(count, np.int32)
        own[item_of_unit] = group
        may_run = np.zeros((int(group.max(initial=-1)) + 1, self.problem.num_devices), np.bool_)
        may_run[group] = self._mask
        candidates = np.full((count, 1 + neighbours), NO_GROUP, np.int32)
        candidates[:, 0] = own
        if near:
            item, other = item_of_unit[self._unit], own[item_of_unit[self._neighbour]]
            weight = self._weight
        else:
            item = np.repeat(np.arange(count, dtype=np.int32), neighbours)
            other = np.random.default_rng(0).integers(len(may_run), size=len(item)).astype(np.int32)
            weight = np.ones(len(item))
        item, other = _by_weight(item, other, weight, own, may_run)
        rank = 1 + np.arange(len(item)) - np.searchsorted(item, item)
        nearest = rank <= neighbours
        candidates[item[nearest], rank[nearest]] = other[nearest]
        return Groups(item_of_unit=item_of_unit, candidates=candidates, may_run=may_run)

    def _split(self, group: _Int32) -> _Int32:
        return colocation.split(group, self._candidate_set)


def _by_weight(
    item: NDArray[np.integer[Any]],
    group: NDArray[np.integer[Any]],
    weight: NDArray[np.float64],
    own: _Int32,
    may_run: _Bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct (item, group) that may be drawn, by item, those of the largest sum of weights first.

    `own`: int32[N], which is left out. `may_run`: bool[G, m].
    """
    apart = group != own[item]
    apart &= ~(may_run[group] & ~may_run[own[item]]).any(axis=1)
    num_groups = max(len(may_run), 1)
    key, index = np.unique(
        item[apart].astype(np.int64) * num_groups + group[apart], return_inverse=True
    )
    total = np.bincount(index, weights=weight[apart], minlength=len(key))
    items, groups = np.divmod(key, num_groups)
    order = np.lexsort((groups, -total, items))
    return items[order], groups[order]


def slowness(problem: Problem) -> NDArray[np.float64]:
    """[m]: the logarithm of how much slower a device is than the fastest, over common kernels."""
    cost_ns = problem.cost_ns.astype(np.float64)
    common = (cost_ns[:, np.unique(problem.device_kind)] >= 0).all(axis=1)
    total = np.maximum(cost_ns[common].sum(axis=0), 1.0)[problem.device_kind]
    logs: NDArray[np.float64] = np.log(total / total.min()) if len(total) else total
    return logs
