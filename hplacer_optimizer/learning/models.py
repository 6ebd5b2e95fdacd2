"""The learned planners: what each of them groups, and what it learns.

| model | groups | devices of groups |
|---|---|---|
| hierarchical | learned (Grouper) | learned (Placer) |
| hierarchical_random_grouping | drawn once | learned (Placer) |
| hierarchical_no_grouping | each item by itself | learned (a feed-forward network per item) |
| colocrl | co-location rules (colocation.py) | learned (Placer) |
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.learning import colocation
from hplacer_optimizer.learning.items import Items, make_items
from hplacer_optimizer.learning.settings import Settings
from hplacer_optimizer.planners.devices import candidate_mask, first_candidate
from hplacer_optimizer.simulator import simulate_batch

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

    def placements(self, grouping: _Int32, devices: _Int32) -> _Int32:
        """int32[R, n], a device per op, of groupings [B, N] and devices [R, G]."""
        repeats = len(devices) // len(grouping)
        per_item = np.take_along_axis(devices, np.repeat(grouping, repeats, axis=0), axis=1)
        per_unit = per_item[:, self.items.of_unit]
        allowed = self.items.unit_may_run[np.arange(self.problem.num_units), per_unit]
        placed: _Int32 = np.where(allowed, per_unit, self.fallback)[:, self.problem.units]
        return placed


def make_model(problem: Problem, name: str, settings: Settings, rng: Any) -> Model:
    """Raises OptionError for an unknown name, InfeasibleError if a unit has no candidate."""
    if name not in LEARNED_PLANNERS:
        raise OptionError(f"model: must be one of {', '.join(LEARNED_PLANNERS)}, got {name!r}")
    finest = settings.clusters if 0 < settings.clusters < problem.num_units else problem.num_units
    groups = min(settings.groups, finest)
    bias = -settings.slow_device_penalty * _slowness(problem)
    fallback = first_candidate(problem, np.argsort(-bias, kind="stable").tolist())
    of_unit = _clusters(problem, finest, bias, fallback, rng)
    grouping = None
    if name == "colocrl":
        of_unit = colocation.groups_of_units(problem)
        groups = int(of_unit.max(initial=-1)) + 1
        grouping = np.arange(groups, dtype=np.int32)
    elif name == "hierarchical_random_grouping":
        grouping = rng.integers(groups, size=int(of_unit.max(initial=-1)) + 1).astype(np.int32)
    elif name == "hierarchical_no_grouping":
        groups = problem.num_devices
    return Model(
        items=make_items(problem, of_unit, settings.position_frequencies),
        num_groups=groups,
        grouping=grouping,
        has_placer=name != "hierarchical_no_grouping",
        device_bias=bias.astype(np.float32),
        problem=problem,
        fallback=fallback,
    )


def _clusters(
    problem: Problem, count: int, bias: NDArray[np.float64], fallback: _Int32, rng: Any
) -> _Int32:
    """int32[U]: a clustering of the units.

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
        placed = np.where(may_run[units, device], device, fallback)[:, problem.units]
        makespan_ns, _, _ = simulate_batch(
            problem, placed.astype(np.int32), threads=os.cpu_count() or 1
        )
        mean_ns = float(np.where(makespan_ns < 0, np.inf, makespan_ns).mean())
        found.append((mean_ns, clusters_per_device, cluster))
    return min(found, key=lambda trial: trial[:2])[-1]


def _slowness(problem: Problem) -> NDArray[np.float64]:
    """[m]: the logarithm of how much slower a device is than the fastest, over common kernels."""
    cost_ns = problem.cost_ns.astype(np.float64)
    common = (cost_ns >= 0).all(axis=1)
    total = np.maximum(cost_ns[common].sum(axis=0), 1.0)[problem.device_kind]
    slowness: NDArray[np.float64] = np.log(total / total.min()) if len(total) else total
    return slowness
