"""The `auto` planner: every quick planner, then the local search from what they found.

    list schedulers, single devices, expert, partitioners --> local_search --> the best of all

The result is never worse than that of any planner which it starts from.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners import human_expert, local_search, metis, scotch
from hplacer_optimizer.planners.budget import Budget, Planner, ProgressCallback

# Those of which local_search does not start by itself; each takes a second at most.
_QUICK: tuple[Planner, ...] = (human_expert.plan, metis.plan, scotch.mincut, scotch.scotch)


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> NDArray[np.int32]:
    """Returns int32[n], a device index per op; see `Planner`.

    Planners whose package or program is not there are left out. A step of the budget is an
    evaluation of the local search; without a budget it is `local_search.default_budget`.
    """
    begin_s = time.monotonic()
    budget = budget or local_search.default_budget(problem)
    starts = [
        start for planner in _QUICK if (start := _try(planner, problem, budget, seed)) is not None
    ]
    if budget.seconds is not None:
        left_s = budget.seconds - (time.monotonic() - begin_s)
        budget = dataclasses.replace(budget, seconds=max(left_s, 1e-3))
    return local_search.search(problem, starts, budget=budget, seed=seed, on_progress=on_progress)


def _try(planner: Planner, problem: Problem, budget: Budget, seed: int) -> NDArray[np.int32] | None:
    if budget.stopped:
        return None
    try:
        return planner(problem, seed=seed)
    except PlannerUnavailableError:
        return None
