"""Workloads that a cluster of two small workers runs, and where a person would put their ops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.devices import where_possible

_UNDECIDED = -1


@dataclass(frozen=True, kw_only=True)
class ClusterTask:
    """A workload whose step takes a fraction of a second on one core."""

    name: str
    title: str
    workload: str  # a name of hplacer_optimizer.workloads.graphs
    parameters: Mapping[str, Any]
    by_hand: Mapping[str, int]
    """Worker by a regular expression, the first that occurs in an op's name."""


TASKS: tuple[ClusterTask, ...] = (
    ClusterTask(
        name="two_tower",
        title="two-tower recommender",
        workload="two_tower",
        parameters={
            "batch_size": 512,
            "features": 4,
            "rows": 50_000,
            "width": 64,
            "hidden": 1024,
            "pin_tables": False,
        },
        by_hand={"two_tower/user/": 0, "two_tower/item/": 1},
    ),
    ClusterTask(
        name="nmt",
        title="NMT (2 layers, reduced)",
        workload="nmt",
        parameters={"hidden": 512, "steps": 8, "vocabulary": 4000},
        # As the experts of the papers have it: a layer per device.
        by_hand={"layer_0/|embedding/": 0, "layer_1/|attention/|softmax/": 1},
    ),
)


def place_by_hand(problem: Problem, rules: Mapping[str, int]) -> NDArray[np.int32]:
    """int32[n]; units that no rule names go where their first neighbour is, others to worker 0."""
    wanted = np.full(problem.num_ops, _UNDECIDED, np.int32)
    for op, name in enumerate(problem.op_names):
        found = (worker for expression, worker in rules.items() if re.search(expression, name))
        wanted[op] = next(found, _UNDECIDED)
    per_unit = np.full(problem.num_units, _UNDECIDED, np.int32)
    for op in np.flatnonzero(wanted != _UNDECIDED)[::-1]:  # the unit's first op decides
        per_unit[problem.units[op]] = wanted[op]
    ends = problem.units[problem.edges[:, [0, 2]]]
    for near, far in ((ends[:, 0], ends[:, 1]), (ends[:, 1], ends[:, 0])):  # consumers first
        while True:
            is_open = (per_unit[near] == _UNDECIDED) & (per_unit[far] != _UNDECIDED)
            units, first = np.unique(near[is_open], return_index=True)
            if not len(units):
                break
            per_unit[units] = per_unit[far[is_open][first]]
    return where_possible(problem, np.maximum(per_unit, 0))
