"""Orders of launches, where TensorFlow's own differs from start to start.

A search scores the worst of some orders (cc/engine/simulator/simulator.h). It still finds what
these alone make fast, so orders that it did not see judge its results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import LAUNCH_ORDERS, Problem
from hplacer_optimizer.machines.host import whole_cores
from hplacer_optimizer.problem.simulator import simulate_batch

# Launch seeds of what judges, apart from those of draws of costs, which are small.
_JUDGING = range(1021, 1029)


def with_order(problem: Problem, launch_seed: int) -> Problem:
    """With another order of launches, where there are any."""
    return problem.replace(launch_seed=launch_seed) if problem.device_launch_ns.any() else problem


def without_launches(problem: Problem) -> Problem:
    """On devices that do not launch ahead: an op takes its launch and its kernel."""
    cost_ns = np.array(problem.cost_ns)
    kinds, first = np.unique(problem.device_kind, return_index=True)
    for kind, launch_ns in zip(kinds, problem.device_launch_ns[first], strict=True):
        of_kind = cost_ns[:, kind]
        of_kind[of_kind > 0] += launch_ns
    return problem.replace(
        cost_ns=cost_ns, device_launch_ns=np.zeros_like(problem.device_launch_ns)
    )


def number_searched(problem: Problem) -> int:
    """How many orders a search of it scores."""
    return LAUNCH_ORDERS if problem.device_launch_ns.any() else 1


def searched(problem: Problem) -> list[Problem]:
    """The problem with each order that a search of it scores."""
    seeds = range(problem.launch_seed, problem.launch_seed + number_searched(problem))
    return [with_order(problem, launch_seed) for launch_seed in seeds]


def best_of(problem: Problem, found: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """The one with the shortest mean step under orders that no search scored."""
    return found[int(mean_steps_ns(problem, found, _JUDGING).argmin())]


def mean_steps_ns(
    problem: Problem, found: Sequence[NDArray[np.int32]], launch_seeds: Sequence[int]
) -> NDArray[np.float64]:
    """Of each placement, infinite if it does not fit."""
    placements = np.stack(found)
    steps_ns = np.zeros(len(found))
    for launch_seed in launch_seeds:
        step_ns, feasible, _ = simulate_batch(
            with_order(problem, launch_seed), placements, threads=whole_cores(), launch_orders=1
        )
        steps_ns += np.where(feasible, step_ns, np.inf)
    return steps_ns / len(launch_seeds)
