"""What a training step draws: fresh placements, and changes of the best one.

A fresh grouping is drawn by the Grouper for all items, and the devices of its groups by the Placer.
The others keep what the best placement has, except for some neighbouring items, whose groups are
drawn anew, and for some neighbouring groups, whose devices are. B groupings, k placements of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.learning.items import Neighbours
from hplacer_optimizer.learning.models import Model
from hplacer_optimizer.learning.settings import Settings

FREE = -1  # a device that the Placer draws
FRESH, REFINED = "fresh", "refined"  # kinds of rows: each has a baseline of its own

_MOST_ITEMS = 32  # of which one proposal draws the groups anew
_Bool = NDArray[np.bool_]
_Float32 = NDArray[np.float32]
_Int32 = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best placement so far."""

    rank: tuple[bool, float]  # infeasible, Scores.ranked: less is better
    grouping: _Int32  # [N]
    devices: _Int32  # [G]
    placement: _Int32  # [n]
    makespan_ns: int | None  # None: infeasible


@dataclass(kw_only=True)
class Proposal:
    """R = B * k rows; row r places grouping r // k. Without a Placer the devices are all known."""

    grouping: _Int32  # [B, N]
    drawn_items: _Bool  # [B, N] their groups were drawn
    uniform_items: _Float32  # [B, N] the chance of the group under the uniform part of the mixture
    devices: _Int32  # [R, G]: forced, or FREE
    drawn_groups: _Bool  # [R, G] their devices are drawn, by the Placer or together
    num_fresh: int  # groupings: the first ones

    @property
    def repeats(self) -> int:
        """k."""
        return len(self.devices) // len(self.grouping)

    def rows_by_kind(self) -> Iterator[tuple[str, slice]]:
        """The rows of each kind that there is."""
        border = self.num_fresh * self.repeats
        if border:
            yield FRESH, slice(0, border)
        if border < len(self.devices):
            yield REFINED, slice(border, None)


def propose(
    model: Model,
    settings: Settings,
    explore: float,
    rng: Any,
    probabilities: _Float32 | None,
    best: Best | None,
) -> Proposal:
    """Draws groupings, and which devices are to be drawn.

    Args:
        model: what is grouped.
        settings: of the policy.
        explore: the share of rows whose changes are drawn uniformly.
        rng: a NumPy generator.
        probabilities: of the Grouper, [N, G]; None if the grouping is not learned.
        best: to be refined; None if nothing was scored yet.
    """
    batch, repeats = settings.groupings, settings.placements
    if not model.has_placer:
        batch, repeats = batch * repeats, 1
    fresh = batch
    if best is not None:
        fresh = min(batch, max(1, round(batch * (1 - settings.refine))))
    count = model.items.count
    grouping = np.empty((batch, count), np.int32)
    drawn_items = np.zeros((batch, count), np.bool_)
    uniform = np.zeros((batch, count), np.float32)
    devices = np.full((batch * repeats, model.num_groups), FREE, np.int32)
    drawn_groups = np.ones(devices.shape, np.bool_)
    for row in range(batch):
        if row >= fresh and best is not None:
            grouping[row] = best.grouping
            if probabilities is not None and (not model.has_placer or row % 2):
                items = _region(model.items.neighbours, count, min(count, _MOST_ITEMS), rng)
                drawn_items[row, items] = True
                grouping[row, items], uniform[row, items] = _regroup(
                    model, explore, rng, probabilities, best.grouping, items
                )
        elif probabilities is None:
            assert model.grouping is not None
            grouping[row] = model.grouping
        else:
            grouping[row] = _categorical(probabilities, rng)
            drawn_items[row] = True
    if not model.has_placer:
        devices[:] = np.arange(model.num_groups)
        drawn_groups[:] = False
    elif best is not None:
        adjacency = Neighbours(best.grouping[model.items.edges], model.num_groups)
        may_run = model.may_run(best.grouping[None])[0]
        for row in range(fresh * repeats, batch * repeats):
            devices[row] = best.devices
            drawn_groups[row] = False
            if drawn_items[row // repeats].any() and row % 2:
                continue  # only items move
            region = _region(adjacency, model.num_groups, model.num_groups, rng)
            drawn_groups[row, region] = True
            devices[row, region] = FREE
            if rng.random() < explore:
                together = may_run[region].any(axis=0)
                device = rng.choice(np.flatnonzero(together))
                devices[row, region] = np.where(may_run[region, device], device, FREE)
    return Proposal(
        grouping=grouping,
        drawn_items=drawn_items,
        uniform_items=uniform,
        devices=devices,
        drawn_groups=drawn_groups,
        num_fresh=fresh,
    )


def _categorical(probabilities: _Float32, rng: Any) -> _Int32:
    """int32[S]: a draw from each row of float[S, C]."""
    cumulative = probabilities.cumsum(axis=1)
    threshold = rng.random((len(probabilities), 1)) * cumulative[:, -1:]
    drawn: _Int32 = (cumulative <= threshold).sum(axis=1).astype(np.int32)
    return np.minimum(drawn, np.int32(probabilities.shape[1] - 1))


def _regroup(
    model: Model,
    explore: float,
    rng: Any,
    probabilities: _Float32,
    grouping: _Int32,
    items: _Int32,
) -> tuple[_Int32, _Float32]:
    """New groups of some items, and the chance of each under the exploring part of the mixture.

    That part sends all of them to one group, that of a neighbour of theirs; without a Placer, where
    groups are devices, to one of the devices where any of them may run.
    """
    share = np.zeros(model.num_groups, np.float32)
    if model.has_placer:
        for item in items:
            np.add.at(share, grouping[model.items.neighbours.of(item)], 1)
    else:
        share[:] = model.items.may_run[items].any(axis=0)
    drawn = _categorical(probabilities[items], rng)
    if not share.any():
        return drawn, np.take_along_axis(probabilities[items], drawn[:, None], axis=1)[:, 0]
    share /= share.sum()
    if rng.random() < explore:
        group = _categorical(share[None], rng)[0]
        possible = probabilities[items, group] > 0
        drawn = np.where(possible, group, drawn)
    return drawn, share[drawn]


def _region(neighbours: Neighbours, count: int, most: int, rng: Any) -> _Int32:
    """Some connected nodes, breadth first from one of them; of any size up to `most`."""
    size = int(2 ** rng.uniform(0, np.log2(most + 1)))
    start = int(rng.integers(count))
    region, seen = [start], {start}
    for node in region:
        if len(region) >= size:
            break
        for other in rng.permutation(neighbours.of(node)).tolist():
            if other not in seen:
                seen.add(other)
                region.append(other)
    return np.array(region[:size], np.int32)
