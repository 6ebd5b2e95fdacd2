"""What a training step draws: fresh placements, changes of the best one, and unions of changes.

A *fresh* grouping is drawn by the Grouper for all items, and the devices of its groups by the
Placer, k times. A *refined* row keeps what the best placement has, except for some neighbouring
groups, whose devices are drawn anew, or some neighbouring items, whose groups are. A *combined* row
has what several rows of the last step changed, each of which was an improvement by itself.

These are not the moves of local search (cc/engine/search/move_maker.h): those change where units
are. What is decided anew here is what the networks decide, the group of an item and the device of a
group, so that a change has a likelihood under them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.planners.learning.items import Neighbours
from hplacer_optimizer.planners.learning.models import Model
from hplacer_optimizer.planners.learning.neighbourhoods import GROUPS, ITEMS, Neighbourhoods
from hplacer_optimizer.planners.learning.settings import Settings

FREE = -1  # a device that the Placer draws
FRESH, REFINED = "fresh", "refined"  # kinds of rows: each has a baseline of its own

MOST_ITEMS = 256  # of which one proposal draws the groups anew
_MOST_COMBINED = 6  # rows

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


@dataclass(frozen=True, kw_only=True)
class Combined:
    """Placements to be tried as they are."""

    grouping: _Int32  # [C, N]
    devices: _Int32  # [C, G]


@dataclass(kw_only=True)
class Proposal:
    """R rows over B groupings; the first P rows, of the first E groupings, are the Placer's."""

    grouping: _Int32  # [B, N]
    drawn_items: _Bool  # [B, N] their groups were drawn
    uniform_items: _Float32  # [B, N] the chance of the group under the uniform part of the mixture
    of_row: _Int32  # [R] the grouping of each row
    devices: _Int32  # [R, G]: forced, or FREE
    drawn_groups: _Bool  # [R, G] their devices are drawn, by the Placer or together
    explore: _Float32  # [R] the uniform part of the mixture
    choices: _Int32  # [R, 4] of Neighbourhoods; -1: none
    num_fresh: int  # rows: the first ones
    num_combined: int  # rows: the last ones
    num_placed: int  # P
    num_encoded: int  # E
    best_devices: _Int32 | None  # [G] of the grouping E - 1, if it is the best placement's

    def rows_by_kind(self) -> Iterator[tuple[str, slice]]:
        """The rows of each kind that there is, without combined ones."""
        end = len(self.devices) - self.num_combined
        if self.num_fresh:
            yield FRESH, slice(0, self.num_fresh)
        if self.num_fresh < end:
            yield REFINED, slice(self.num_fresh, end)

    def refined(self) -> _Int32:
        """The rows that change the best placement."""
        return np.flatnonzero(self.choices[:, 0] >= 0).astype(np.int32)


def propose(
    model: Model,
    settings: Settings,
    neighbourhoods: Neighbourhoods,
    rng: Any,
    probabilities: _Float32 | None,
    best: Best,
    critical: _Int32,
    combined: Combined | None,
) -> Proposal:
    """Draws groupings, and which devices are to be drawn.

    Args:
        model: what is grouped.
        settings: of the policy.
        neighbourhoods: what changes of the best placement have paid.
        rng: a NumPy generator.
        probabilities: of the Grouper, [N, G]; None if the grouping is not learned.
        best: to be refined.
        critical: items on the critical path of the best, not empty.
        combined: to be tried.
    """
    layout = _Layout(model, settings)
    proposal = layout.empty()
    for index in range(layout.num_fresh_groupings):
        if probabilities is None:
            assert model.grouping is not None
            proposal.grouping[index] = model.grouping
        else:
            proposal.grouping[index] = _categorical(probabilities, rng)
            proposal.drawn_items[index] = True
    if not model.has_placer:
        proposal.devices[:] = np.arange(model.num_groups)
        proposal.drawn_groups[:] = False
    if not layout.keeps_best:
        return proposal
    proposal.best_devices = best.devices
    proposal.grouping[layout.best_grouping :] = best.grouping
    proposal.devices[layout.num_fresh_rows :] = best.devices
    proposal.drawn_groups[layout.num_fresh_rows :] = False
    count = 0 if combined is None else len(combined.grouping)
    if combined is not None:
        proposal.num_combined = count
        proposal.devices[-count:] = combined.devices
        if probabilities is not None:
            proposal.grouping[-count:] = combined.grouping
    adjacency = Neighbours(best.grouping[model.items.edges], model.num_groups)
    may_run = model.may_run(best.grouping[None])[0]
    for row in range(layout.num_fresh_rows, layout.num_rows - count):
        kind = GROUPS if row < layout.num_placed else ITEMS
        choice, proposal.explore[row] = neighbourhoods.draw(kind, settings.explore, rng)
        proposal.choices[row] = choice
        item = int(rng.choice(critical) if choice.critical else rng.integers(model.items.count))
        if kind == GROUPS:
            region = _region(adjacency, int(best.grouping[item]), choice.size, rng)
            proposal.drawn_groups[row, region] = True
            proposal.devices[row, region] = FREE
            if choice.uniform:
                together = may_run[region].any(axis=0) * model.device_chance
                device = rng.choice(len(together), p=together / together.sum())
                proposal.devices[row, region] = np.where(may_run[region, device], device, FREE)
        else:
            assert probabilities is not None
            index = proposal.of_row[row]
            items = _region(model.items.neighbours, item, choice.size, rng)
            proposal.drawn_items[index, items] = True
            proposal.grouping[index, items], proposal.uniform_items[index, items] = _regroup(
                model, choice.uniform, rng, probabilities, best.grouping, items
            )
    return proposal


class _Layout:
    """Which rows and groupings of a proposal are what.

    | rows | groupings |
    |---|---|
    | k of each fresh grouping | fresh, or the given one |
    | other devices for some groups | the best placement's |
    | other groups for some items, and combined ones | one for each row |
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        self._model = model
        groupings, repeats = settings.groupings, settings.placements
        if not model.has_placer:
            groupings, repeats = groupings * repeats, 1
        fresh = max(1, round(groupings * (1 - settings.refine)))
        self.num_rows = groupings * repeats
        self.num_fresh_rows = fresh * repeats
        refined = self.num_rows - self.num_fresh_rows
        self._moves_items = model.grouping is None
        if not self._moves_items:
            self.num_placed = self.num_rows
        elif not model.has_placer:
            self.num_placed = self.num_fresh_rows
        else:
            self.num_placed = self.num_fresh_rows + refined // 2
        self.num_fresh_groupings = fresh if self._moves_items else 1
        self.best_grouping = self.num_fresh_groupings if self._moves_items else 0
        self.keeps_best = refined > 0 or settings.imitate_best > 0
        self._repeats = repeats

    def empty(self) -> Proposal:
        """With the rows' groupings, all devices to be drawn."""
        model, rows = self._model, self.num_rows
        of_row = np.zeros(rows, np.int32)
        groupings = encoded = self.num_fresh_groupings
        if self._moves_items:
            of_row[: self.num_fresh_rows] = np.arange(self.num_fresh_rows) // self._repeats
            if self.keeps_best:
                of_row[self.num_fresh_rows : self.num_placed] = self.best_grouping
                own = rows - self.num_placed
                of_row[self.num_placed :] = self.best_grouping + 1 + np.arange(own)
                encoded = self.best_grouping + 1
                groupings = encoded + own
        return Proposal(
            grouping=np.empty((groupings, model.items.count), np.int32),
            drawn_items=np.zeros((groupings, model.items.count), np.bool_),
            uniform_items=np.zeros((groupings, model.items.count), np.float32),
            of_row=of_row,
            devices=np.full((rows, model.num_groups), FREE, np.int32),
            drawn_groups=np.ones((rows, model.num_groups), np.bool_),
            explore=np.zeros(rows, np.float32),
            choices=np.full((rows, 4), -1, np.int32),
            num_fresh=self.num_fresh_rows,
            num_combined=0,
            num_placed=self.num_placed,
            num_encoded=encoded,
            best_devices=None,
        )


def combine(proposal: Proposal, base: Best, winners: _Int32) -> Combined | None:
    """Unions of what rows changed of the best placement.

    Args:
        proposal: of which the devices are drawn.
        base: the placement that they changed.
        winners: refined rows that were better, best first.
    """
    if len(winners) < 2:
        return None
    grouping, devices = base.grouping.copy(), base.devices.copy()
    unions: list[tuple[_Int32, _Int32]] = []
    wanted = np.unique(np.geomspace(2, len(winners), _MOST_COMBINED).astype(int))
    for count, row in enumerate(winners.tolist(), 1):
        theirs = proposal.grouping[proposal.of_row[row]]
        grouping = np.where(grouping == base.grouping, theirs, grouping)
        devices = np.where(devices == base.devices, proposal.devices[row], devices)
        if count in wanted:
            unions.append((grouping, devices))
    return Combined(
        grouping=np.stack([union[0] for union in unions]),
        devices=np.stack([union[1] for union in unions]),
    )


def _categorical(probabilities: _Float32, rng: Any) -> _Int32:
    """int32[S]: a draw from each row of float[S, C]."""
    cumulative = probabilities.cumsum(axis=1)
    threshold = rng.random((len(probabilities), 1)) * cumulative[:, -1:]
    drawn: _Int32 = (cumulative <= threshold).sum(axis=1).astype(np.int32)
    return np.minimum(drawn, np.int32(probabilities.shape[1] - 1))


def _regroup(
    model: Model,
    uniform: bool,
    rng: Any,
    probabilities: _Float32,
    grouping: _Int32,
    items: _Int32,
) -> tuple[_Int32, _Float32]:
    """New groups of some items, and the chance of each under the uniform part of the mixture.

    That part sends all of them to one group, that of a neighbour of theirs; without a Placer, where
    groups are devices, to one of the devices where any of them may run.
    """
    share = np.zeros(model.num_groups, np.float32)
    if model.has_placer:
        for item in items:
            np.add.at(share, grouping[model.items.neighbours.of(item)], 1)
    else:
        share[:] = model.items.may_run[items].any(axis=0) * model.device_chance
    drawn = _categorical(probabilities[items], rng)
    if not share.any():
        return drawn, np.take_along_axis(probabilities[items], drawn[:, None], axis=1)[:, 0]
    share /= share.sum()
    if uniform:
        group = _categorical(share[None], rng)[0]
        possible = probabilities[items, group] > 0
        drawn = np.where(possible, group, drawn)
    return drawn, share[drawn]


def _region(neighbours: Neighbours, start: int, size_class: int, rng: Any) -> _Int32:
    """Some connected nodes, breadth first from one of them."""
    size = int(rng.integers(2**size_class, 2 ** (size_class + 1)))
    region, seen = [start], {start}
    for node in region:
        if len(region) >= size:
            break
        for other in rng.permutation(neighbours.of(node)).tolist():
            if other not in seen:
                seen.add(other)
                region.append(other)
    return np.array(region[:size], np.int32)
