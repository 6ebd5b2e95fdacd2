"""The `human_expert` planner: places a known workload as a person would, by the names of its ops.

`expert_rules.py` has a rule per workload; "human_expert:FILE" reads one's own.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.devices import (
    devices_of_type,
    majority,
    require_devices_of_type,
    where_possible,
)
from hplacer_optimizer.planners.expert_rules import CPU, EXPERTS, Rule, expert_for, read_rules
from hplacer_optimizer.planners.result import Planner, PlannerResult

_UNDECIDED = -2


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Plans as any `Planner`.

    A unit that may not run where the rule wants it goes to the first CPU, else to its first
    candidate. It neither searches nor draws. Raises PlannerUnavailableError for a graph that is no
    known workload, or without a GPU.
    """
    rule = expert_for(problem.op_names)
    if rule is None:
        raise PlannerUnavailableError(
            f"human_expert: graph '{problem.name}' is none of {', '.join(EXPERTS)}; write rules, a "
            "YAML file with lines such as 'layer_0/: GPU:0', and use 'human_expert:FILE'"
        )
    return _place(problem, rule)


def with_rules(path: str | os.PathLike[str]) -> Planner:
    """The planner with the rules of a file, for any graph; see `read_rules`."""
    rule = read_rules(path)

    def plan_with_rules(
        problem: Problem,
        *,
        budget: Budget | None = None,
        seed: int = 0,
        on_progress: ProgressCallback | None = None,
    ) -> PlannerResult:
        return _place(problem, rule)

    return plan_with_rules


def _place(problem: Problem, rule: Rule) -> PlannerResult:
    gpus = require_devices_of_type(problem, "GPU", "human_expert")
    cpus = devices_of_type(problem, "CPU")
    device_of: dict[int | None, int] = {None: _UNDECIDED, CPU: cpus[0] if cpus else gpus[0]}
    device_of.update(enumerate(gpus))
    wanted = np.array([device_of[to] for to in rule(problem.op_names, len(gpus))], np.int32)
    per_unit = _follow_neighbours(problem, _majority(problem, wanted))
    return PlannerResult(placement=where_possible(problem, per_unit, [*cpus, *gpus]))


def _majority(problem: Problem, wanted: NDArray[np.int32]) -> NDArray[np.int32]:
    """int32[U]: what most ops of the unit want, of equals the lower device."""
    decided = wanted != _UNDECIDED
    units = problem.units[decided]
    result = majority(units, wanted[decided], problem.num_units, problem.num_devices)
    result[np.bincount(units, minlength=problem.num_units) == 0] = _UNDECIDED
    return result


def _follow_neighbours(problem: Problem, per_unit: NDArray[np.int32]) -> NDArray[np.int32]:
    """Sends undecided units, as sums of gradients, to their first decided consumer.

    Where there is none, to the first decided producer, and what touches no decided unit to the
    first GPU.
    """
    both_ends = np.concatenate([problem.edges[:, [0, 2]], problem.control_edges])
    producer, consumer = problem.units[both_ends].T
    result = per_unit.copy()
    for follower, leader in ((producer, consumer), (consumer, producer)):
        while True:
            open_pairs = (result[follower] == _UNDECIDED) & (result[leader] != _UNDECIDED)
            units, first = np.unique(follower[open_pairs], return_index=True)
            if not len(units):
                break
            result[units] = result[leader[open_pairs][first]]
    first_gpu = devices_of_type(problem, "GPU")[0]
    return np.where(result == _UNDECIDED, first_gpu, result).astype(np.int32)
