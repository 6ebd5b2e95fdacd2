"""Takes back what does not pay: units stay at home unless moving them makes the step shorter.

A search finds placements that are better by next to nothing, or as good, with ops on devices that
would otherwise have nothing to do. Every such op is a risk: each transfer that it needs may cost
more than was thought.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.devices import candidate_mask
from hplacer_optimizer.planners.launch_orders import number_searched
from hplacer_optimizer.problem.simulator import SIMULATED_PER_S, simulate_batch

TOLERANCE = 0.005
"""Share of the step by which it may become longer in all."""


def settle(
    problem: Problem,
    placement: NDArray[np.int32],
    home: NDArray[np.int32],
    *,
    seconds: float,
    step_ns: Callable[[NDArray[np.int32]], float] | None = None,
    simulations: int | None = None,
) -> NDArray[np.int32]:
    """The placement with as many units at home as the step allows, by groups of falling size.

    The result does not depend on how busy the machine is.

    Args:
        problem: whose step counts.
        placement: int32[n]; returned as it is if it is not feasible.
        home: int32[n], where ops are best left; ignored for units that cannot be there.
        seconds: how long that may take about, on one idle core.
        step_ns: the step of a placement, infinite if it is not allowed; None: as it is simulated.
        simulations: how many of them `step_ns` makes at most; None: as many as there are orders of
            launches to score.

    Returns:
        int32[n]; its step is at most TOLERANCE longer.
    """
    simulations = simulations or number_searched(problem)
    trials = int(seconds * SIMULATED_PER_S) // max(problem.num_ops * simulations, 1)
    step_ns = step_ns or functools.partial(_step_ns, problem)
    limit_ns = step_ns(placement) * (1 + TOLERANCE)
    if not math.isfinite(limit_ns):
        return placement
    _, first_op = np.unique(problem.units, return_index=True)
    wanted, best = home[first_op], placement
    can_go_home = candidate_mask(problem)[np.arange(problem.num_units), wanted]
    groups = [np.flatnonzero(can_go_home & (placement[first_op] != wanted))]
    for _ in range(trials):
        if not groups:
            break
        group = groups.pop()
        is_moved = np.isin(problem.units, group)
        trial = np.where(is_moved, wanted[problem.units], best).astype(np.int32)
        if step_ns(trial) <= limit_ns:
            best = trial
        elif len(group) > 1:
            middle = len(group) // 2
            groups += [group[middle:], group[:middle]]
    return best


def _step_ns(problem: Problem, placement: NDArray[np.int32]) -> float:
    """Infinite for what is not feasible."""
    makespan_ns, feasible, _ = simulate_batch(problem, placement[None], threads=1)
    return float(makespan_ns[0]) if feasible[0] else math.inf
