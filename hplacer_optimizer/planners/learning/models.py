"""The learned planners: what each of them groups, and what it learns.

| model | groups | devices of groups |
|---|---|---|
| hierarchical | learned (Grouper) | learned (Placer) |
| hierarchical_random_grouping | drawn once | learned (Placer) |
| hierarchical_no_grouping | each item by itself | learned (a feed-forward network per item) |
| colocrl | co-location rules (planners/colocation.py) | learned (Placer) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.machines.host import whole_cores
from hplacer_optimizer.planners import colocation
from hplacer_optimizer.planners.devices import candidate_mask, first_candidate, majority
from hplacer_optimizer.planners.learning.items import Items, Neighbours, make_items
from hplacer_optimizer.planners.learning.settings import Settings
from hplacer_optimizer.problem.simulator import simulate_batch

LEARNED_PLANNERS = (
    "colocrl",
    "hierarchical",
    "hierarchical_no_grouping",
    "hierarchical_random_grouping",
)

_CLUSTERS_PER_DEVICE = (1, 2, 4, 8)
_TRIALS = 16  # random placements of each

_Int32 = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Model:
    """N items, G groups, m devices. Without a Placer the groups are the devices."""

    items: Items
    num_groups: int
    grouping: _Int32 | None  # [N] if it is not learned
    has_placer: bool
    device_bias: NDArray[np.float32]  # [m] of the logits
    problem: Problem
    fallback: _Int32  # [U] the device of a unit that may not run where its group is
    start: _Int32  # [N] a device per item: the placement that training starts from

    @property
    def device_chance(self) -> NDArray[np.float32]:
        """[m] of a device where all of a region goes; a slow one seldom takes a large one."""
        chance = np.exp(self.device_bias / 2)
        share: NDArray[np.float32] = chance / chance.sum()
        return share

    @property
    def can_be_finer(self) -> bool:
        """Whether the items are learned to be grouped, and have several units."""
        return self.grouping is None and self.items.count < self.problem.num_units

    def start_groups(self, rng: Any) -> tuple[_Int32, _Int32]:
        """The grouping [N] and the devices [G] of the start.

        The groups are in a random order: in that of the devices a Placer would learn no more than
        to repeat the last one.
        """
        if not self.has_placer:
            return self.start, np.arange(self.num_groups, dtype=np.int32)
        grouping = self.grouping
        if grouping is None:
            regions = _regions(self.start, self.items.neighbours, self.num_groups)
            grouping = rng.permutation(self.num_groups).astype(np.int32)[regions]
        devices = majority(grouping, self.start, self.num_groups, self.problem.num_devices)
        return grouping, devices

    def may_run(self, grouping: _Int32) -> NDArray[np.bool_]:
        """bool[B, G, m] of groupings [B, N]: some unit of the group may run there."""
        batch = len(grouping)
        flat = (np.arange(batch)[:, None] * self.num_groups + grouping).ravel()
        mask = np.zeros((batch * self.num_groups, self.problem.num_devices), np.bool_)
        for device in range(self.problem.num_devices):
            allowed = np.tile(self.items.may_run[:, device], batch)
            mask[flat[allowed], device] = True
        mask[~mask.any(axis=1)] = True
        return mask.reshape(batch, self.num_groups, -1)

    def placements(self, grouping: _Int32, of_row: _Int32, devices: _Int32) -> _Int32:
        """int32[R, n], a device per op.

        Args:
            grouping: int32[B, N].
            of_row: the grouping of each row, int32[R].
            devices: of the groups, int32[R, G].
        """
        per_item = np.take_along_axis(devices, grouping[of_row], axis=1)
        per_unit = per_item[:, self.items.of_unit]
        allowed = self.items.unit_may_run[np.arange(self.problem.num_units), per_unit]
        placed: _Int32 = np.where(allowed, per_unit, self.fallback)[:, self.problem.units]
        return placed


def make_model(
    problem: Problem,
    name: str,
    settings: Settings,
    rng: Any,
    start: _Int32 | None = None,
) -> Model:
    """With a placement int32[n] to start from, or what runs on the fastest devices.

    Raises OptionError for an unknown name, InfeasibleError if a unit has no candidate.
    """
    if name not in LEARNED_PLANNERS:
        raise OptionError(f"model: must be one of {', '.join(LEARNED_PLANNERS)}, got {name!r}")
    finest = settings.clusters if 0 < settings.clusters < problem.num_units else problem.num_units
    groups = min(settings.groups, finest)
    slowness = _slowness(problem)
    bias = -settings.slow_device_penalty * slowness
    fallback = first_candidate(problem, np.argsort(slowness, kind="stable").tolist())
    if settings.own_draws_only:
        (of_unit,) = _engine.cluster_units(problem, [finest], 1)
    else:
        of_unit = _clusters(problem, finest, bias, fallback, rng)
    device_of_unit = fallback
    if start is not None:
        device_of_unit = np.zeros(problem.num_units, np.int32)
        device_of_unit[problem.units] = start
        of_unit = colocation.split(of_unit, device_of_unit)
    grouping = None
    if name == "colocrl":
        of_unit = colocation.groups_of_units(problem)
        groups = int(of_unit.max(initial=-1)) + 1
        grouping = np.arange(groups, dtype=np.int32)
    elif name == "hierarchical_random_grouping":
        grouping = rng.integers(groups, size=int(of_unit.max(initial=-1)) + 1).astype(np.int32)
    elif name == "hierarchical_no_grouping":
        groups = problem.num_devices
    items = make_items(problem, of_unit, settings.position_frequencies)
    return Model(
        items=items,
        num_groups=groups,
        grouping=grouping,
        has_placer=name != "hierarchical_no_grouping",
        device_bias=bias.astype(np.float32),
        problem=problem,
        fallback=fallback,
        start=majority(of_unit, device_of_unit, items.count, problem.num_devices),
    )


def _clusters(
    problem: Problem, count: int, bias: NDArray[np.float64], fallback: _Int32, rng: Any
) -> _Int32:
    """A clustering of the units, int32[U].

    Of several limits to the work of a cluster, that whose random placements are the fastest:
    unrolled layers want to stay whole, branches of a wide graph do not.
    """
    may_run = candidate_mask(problem)
    units = np.arange(problem.num_units)
    share = np.exp(bias) / np.exp(bias).sum()
    found: list[tuple[float, int, _Int32]] = []
    for clusters_per_device in _CLUSTERS_PER_DEVICE:
        (cluster,) = _engine.cluster_units(problem, [count], clusters_per_device)
        size = (_TRIALS, int(cluster.max(initial=-1)) + 1)
        device = rng.choice(problem.num_devices, size=size, p=share)[:, cluster]
        device = np.where(may_run[units, device], device, fallback).astype(np.int32)
        makespan_ns, _, _ = simulate_batch(problem, device[:, problem.units], threads=whole_cores())
        known_ns = np.where(makespan_ns < 0, np.inf, makespan_ns)
        found.append((float(known_ns.mean()), clusters_per_device, cluster))
    return min(found, key=lambda trial: trial[:2])[-1]


def _regions(device: _Int32, neighbours: Neighbours, num_groups: int) -> _Int32:
    """int32[N]: groups of neighbouring items of one device, as many as its share of the items."""
    grouping = np.full(len(device), -1, np.int32)
    used, count = np.unique(device, return_counts=True)
    spare = max(0, num_groups - len(used))
    first = 0
    for this, items in zip(used, count, strict=True):
        groups = 1 + int(spare * items / len(device))
        order: list[int] = []  # of the device, breadth first
        for start in np.flatnonzero(device == this).tolist():
            reached = [start] if grouping[start] < 0 else []
            for item in reached:
                if grouping[item] >= 0:
                    continue
                group = first + len(order) * groups // items
                grouping[item] = min(group, num_groups - 1)
                order.append(item)
                reached.extend(o for o in neighbours.of(item).tolist() if device[o] == this)
        first += groups
    return grouping


def _slowness(problem: Problem) -> NDArray[np.float64]:
    """[m]: the logarithm of how much slower a device is than the fastest, over common kernels."""
    cost_ns = problem.cost_ns.astype(np.float64)
    common = (cost_ns >= 0).all(axis=1)
    total = np.maximum(cost_ns[common].sum(axis=0), 1.0)[problem.device_kind]
    slowness: NDArray[np.float64] = np.log(total / total.min()) if len(total) else total
    return slowness
