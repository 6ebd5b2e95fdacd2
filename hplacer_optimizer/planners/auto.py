"""The `auto` planner: quick planners, local search, and learning where there is time for it.

    list schedulers, single devices, expert, partitioners --> local_search --> placement
                                                                   |  from 2 minutes on
                            local_search <-- hierarchical, which imitates it first

In the end units whose move does not pay go back where TensorFlow has them (settling.py). But for
what that may cost, the result is never worse than that of any planner which it starts from.
"""

from __future__ import annotations

import time
from dataclasses import replace

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners import human_expert, local_search, metis, scotch
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.learning import learn
from hplacer_optimizer.planners.result import Planner, PlannerResult, Watch
from hplacer_optimizer.planners.settling import settle

# Those of which local_search does not start by itself; each takes a second at most.
_QUICK: tuple[Planner, ...] = (human_expert.plan, metis.plan, scotch.mincut, scotch.scotch)

LEARNING_S = 120.0
"""Budgets of so many seconds are shared with the Hierarchical Planner."""
_SEARCH_SHARE, _LEARNING_SHARE = 0.5, 0.35
_SETTLING_S = 0.5


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Plans as any `Planner`.

    Planners whose package or program is not there are left out. A step of the budget is an
    evaluation of the local search, or an update of the policy; without a budget it is
    `local_search.default_budget`. A budget in steps, or below LEARNING_S, does not learn.
    """
    budget = (budget or Budget()).or_default(local_search.default_budget(problem))
    begin_s = time.monotonic()
    watch = Watch(on_progress)
    found = [
        result for planner in _QUICK if (result := _try(planner, problem, budget, seed)) is not None
    ]

    def search(part: Budget) -> None:
        watch.begin()
        starts = [result.placement for result in found]
        found.append(
            local_search.search(problem, starts, budget=part, seed=seed, on_progress=watch)
        )

    notes: list[str] = []
    if budget.seconds is None or budget.seconds < LEARNING_S or budget.steps is not None:
        search(budget.left(begin_s))
    else:
        search(replace(budget, seconds=_SEARCH_SHARE * budget.seconds))
        if not budget.stopped:
            watch.begin()
            left = budget.left(begin_s)
            assert left.seconds is not None
            part = replace(left, seconds=min(_LEARNING_SHARE * budget.seconds, left.seconds))
            start = found[-1].placement
            try:
                found.append(learn(problem, start=start, budget=part, seed=seed, on_progress=watch))
            except PlannerUnavailableError as error:
                notes.append(f"auto: nothing was learned: {error}")
            else:
                search(budget.left(begin_s))
    said = [note for result in found for note in result.notes]
    placement = found[-1].placement
    if problem.default_device is not None and not budget.stopped:
        placement = settle(problem, placement, problem.default_device, seconds=_SETTLING_S)
    return watch.result(placement, notes=[*said, *notes])


def _try(planner: Planner, problem: Problem, budget: Budget, seed: int) -> PlannerResult | None:
    if budget.stopped:
        return None
    try:
        return planner(problem, seed=seed)
    except PlannerUnavailableError:
        return None
