"""What a training step tries: placements that the policy draws, and changes of the best one.

The policy's are the paper's: a grouping is drawn by the Grouper for all items, and the devices of
its groups by the Placer. A *change* keeps what the best placement has, except for a region, some
neighbouring groups or items, all of which goes to one place, drawn uniformly. A *union* has what
several changes of the last step had, each of which was an improvement by itself.

These are not the moves of local search (cc/engine/search/move_maker.h): those change where units
are. What changes here is what the networks decide, the group of an item and the device of a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.planners.learning.items import Neighbours
from hplacer_optimizer.planners.learning.models import Model
from hplacer_optimizer.planners.learning.neighbourhoods import (
    GROUPS,
    ITEMS,
    Choice,
    Neighbourhoods,
)
from hplacer_optimizer.planners.learning.settings import Settings

MOST_ITEMS = 256  # of a region
_MOST_UNIONS = 6

_Bool = NDArray[np.bool_]
_Float32 = NDArray[np.float32]
_Int32 = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Draws:
    """R placements by B groupings."""

    grouping: _Int32  # [B, N]
    of_row: _Int32  # [R] the grouping of each placement
    devices: _Int32  # [R, G]


@dataclass(frozen=True, kw_only=True)
class Changes:
    """C changes of the best placement; those without a choice are unions of earlier ones."""

    grouping: _Int32  # [C, N]
    devices: _Int32  # [C, G]
    choices: _Int32  # [S, 3] of Neighbourhoods, of the first S of C


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best placement so far."""

    rank: tuple[bool, float]  # infeasible, Scores.ranked: less is better
    grouping: _Int32  # [N]
    devices: _Int32  # [G]
    placement: _Int32  # [n]
    makespan_ns: int | None  # None: infeasible


def _num_drawn(settings: Settings) -> int:
    """Groupings that the policy draws in a step."""
    return max(1, round(settings.groupings * (1 - settings.refine)))


def draw_groupings(
    model: Model, settings: Settings, rng: Any, probabilities: _Float32 | None
) -> tuple[_Int32, _Int32]:
    """Groupings int32[B, N], and the one of each placement, int32[R].

    Args:
        model: what is grouped.
        settings: of the policy.
        rng: a NumPy generator.
        probabilities: of the Grouper, [N, G]; None if the grouping is not learned.
    """
    count, repeats = _num_drawn(settings), settings.placements
    if probabilities is None:
        assert model.grouping is not None
        return model.grouping[None], np.zeros(count * repeats, np.int32)
    if not model.has_placer:
        count, repeats = count * repeats, 1
    grouping = np.stack([_categorical(probabilities, rng) for _ in range(count)])
    return grouping, np.arange(count, dtype=np.int32).repeat(repeats)


def change(
    model: Model,
    settings: Settings,
    neighbourhoods: Neighbourhoods,
    rng: Any,
    best: Best,
    critical: _Int32,
    unions: Changes | None,
) -> Changes:
    """Changes of a placement, as many as `settings.refine` asks for.

    Args:
        model: what is grouped.
        settings: of the policy.
        neighbourhoods: what changes have paid.
        rng: a NumPy generator.
        best: the placement.
        critical: items on its critical path, not empty.
        unions: to be tried, too.
    """
    count = (settings.groupings - _num_drawn(settings)) * settings.placements
    grouping = np.tile(best.grouping, (count, 1))
    devices = np.tile(best.devices, (count, 1))
    if not count:
        return Changes(grouping=grouping, devices=devices, choices=np.empty((0, 3), np.int32))
    num_chosen = count
    if unions is not None:
        num_chosen -= len(unions.grouping)
        grouping[num_chosen:], devices[num_chosen:] = unions.grouping, unions.devices
    choices = np.empty((num_chosen, 3), np.int32)
    adjacency = Neighbours(best.grouping[model.items.edges], model.num_groups)
    may_run = model.may_run(best.grouping[None])[0]
    for row in range(num_chosen):
        choice = neighbourhoods.draw(_kind(model, row), rng)
        choices[row] = choice
        item = int(rng.choice(critical) if choice.critical else rng.integers(model.items.count))
        if choice.kind == GROUPS:
            region = _region(adjacency, int(best.grouping[item]), choice, rng)
            chance = may_run[region].any(axis=0) * model.device_chance
            _move(devices[row], region, chance, may_run, rng)
        else:
            region = _region(model.items.neighbours, item, choice, rng)
            if model.has_placer:
                chance = _groups_nearby(model, best.grouping, region)
                _move(grouping[row], region, chance, None, rng)
            else:  # groups are devices
                chance = model.items.may_run[region].any(axis=0) * model.device_chance
                _move(grouping[row], region, chance, model.items.may_run, rng)
    return Changes(grouping=grouping, devices=devices, choices=choices)


def unite(changes: Changes, base: Best, winners: _Int32) -> Changes | None:
    """Unions of some changes.

    Args:
        changes: of which some were better.
        base: the placement that they changed.
        winners: the rows that were better, best first.
    """
    if len(winners) < 2:
        return None
    grouping, devices = base.grouping, base.devices
    unions: list[tuple[_Int32, _Int32]] = []
    wanted = np.unique(np.geomspace(2, len(winners), _MOST_UNIONS).astype(int))
    for count, row in enumerate(winners.tolist(), 1):
        grouping = np.where(grouping == base.grouping, changes.grouping[row], grouping)
        devices = np.where(devices == base.devices, changes.devices[row], devices)
        if count in wanted:
            unions.append((grouping, devices))
    return Changes(
        grouping=np.stack([union[0] for union in unions]),
        devices=np.stack([union[1] for union in unions]),
        choices=np.empty((0, 3), np.int32),
    )


def _kind(model: Model, row: int) -> int:
    """Groups and items in turn where both are decided."""
    if model.grouping is not None:
        return GROUPS
    return ITEMS if not model.has_placer or row % 2 else GROUPS


def _move(where: _Int32, region: _Int32, chance: Any, allowed: _Bool | None, rng: Any) -> None:
    """All of a region that is `allowed` there to one place, drawn by its chance."""
    total = chance.sum()
    if not total:
        return
    place = int(rng.choice(len(chance), p=chance / total))
    if allowed is not None:
        region = region[allowed[region, place]]
    where[region] = place


def _groups_nearby(model: Model, grouping: _Int32, items: _Int32) -> NDArray[np.float64]:
    """[G]: how many neighbours of the items each group has."""
    share = np.zeros(model.num_groups)
    for item in items:
        np.add.at(share, grouping[model.items.neighbours.of(item)], 1)
    return share


def _categorical(probabilities: _Float32, rng: Any) -> _Int32:
    """int32[S]: a draw from each row of float[S, C]."""
    cumulative = probabilities.cumsum(axis=1)
    threshold = rng.random((len(probabilities), 1)) * cumulative[:, -1:]
    drawn: _Int32 = (cumulative <= threshold).sum(axis=1).astype(np.int32)
    return np.minimum(drawn, np.int32(probabilities.shape[1] - 1))


def _region(neighbours: Neighbours, start: int, choice: Choice, rng: Any) -> _Int32:
    """Some connected nodes, breadth first from one of them."""
    size = int(rng.integers(2**choice.size, 2 ** (choice.size + 1)))
    region, seen = [start], {start}
    for node in region:
        if len(region) >= size:
            break
        for other in rng.permutation(neighbours.of(node)).tolist():
            if other not in seen:
                seen.add(other)
                region.append(other)
    return np.array(region[:size], np.int32)
