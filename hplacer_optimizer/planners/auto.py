"""The `auto` planner: quick planners, local search, and learning where there is time for it.

    list schedulers, single devices, expert, partitioners --> local_search --> placement
                                                                   |  from 2 minutes on
                            local_search <-- hierarchical, which imitates it first

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
from hplacer_optimizer.planners.budget import Budget, Planner, Progress, ProgressCallback
from hplacer_optimizer.planners.learning import learn
from hplacer_optimizer.planners.notes import add_note

# Those of which local_search does not start by itself; each takes a second at most.
_QUICK: tuple[Planner, ...] = (human_expert.plan, metis.plan, scotch.mincut, scotch.scotch)

LEARNING_S = 120.0
"""Budgets of so many seconds are shared with the Hierarchical Planner."""
_SEARCH_SHARE, _LEARNING_SHARE = 0.5, 0.35


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> NDArray[np.int32]:
    """Returns int32[n], a device index per op; see `Planner`.

    Planners whose package or program is not there are left out. A step of the budget is an
    evaluation of the local search, or an update of the policy; without a budget it is
    `local_search.default_budget`. A budget in steps, or below LEARNING_S, does not learn.
    """
    budget = budget or local_search.default_budget(problem)
    begin_s = time.monotonic()
    watch = _Sum(on_progress)
    starts = [
        start for planner in _QUICK if (start := _try(planner, problem, budget, seed)) is not None
    ]

    def search(part: Budget) -> None:
        watch.begin()
        starts.append(
            local_search.search(problem, starts, budget=part, seed=seed, on_progress=watch)
        )

    if budget.seconds is None or budget.seconds < LEARNING_S or budget.steps is not None:
        search(budget.left(begin_s))
        return starts[-1]
    search(dataclasses.replace(budget, seconds=_SEARCH_SHARE * budget.seconds))
    if not budget.stopped:
        watch.begin()
        left = budget.left(begin_s)
        assert left.seconds is not None
        part = dataclasses.replace(
            left, seconds=min(_LEARNING_SHARE * budget.seconds, left.seconds)
        )
        learned = _learn(problem, starts[-1], part, seed, watch)
        if learned is not None:
            starts.append(learned)
            search(budget.left(begin_s))
    return starts[-1]


class _Sum:
    """Progress of searches that follow each other as that of one."""

    def __init__(self, on_progress: ProgressCallback | None) -> None:
        self._on_progress = on_progress
        self._before = self._last = Progress(steps=0, best_ns=None)

    def begin(self) -> None:
        self._before = self._last

    def __call__(self, progress: Progress) -> None:
        best = [ns for ns in (self._before.best_ns, progress.best_ns) if ns is not None]
        self._last = dataclasses.replace(
            progress,
            steps=self._before.steps + progress.steps,
            placements=self._before.placements + progress.placements,
            best_ns=min(best, default=None),
        )
        if self._on_progress is not None:
            self._on_progress(self._last)


def _try(planner: Planner, problem: Problem, budget: Budget, seed: int) -> NDArray[np.int32] | None:
    if budget.stopped:
        return None
    try:
        return planner(problem, seed=seed)
    except PlannerUnavailableError:
        return None


def _learn(
    problem: Problem,
    start: NDArray[np.int32],
    budget: Budget,
    seed: int,
    watch: ProgressCallback,
) -> NDArray[np.int32] | None:

    try:
        found = learn(problem, start=start, budget=budget, seed=seed, on_progress=watch)
    except PlannerUnavailableError as error:
        add_note(f"auto: nothing was learned: {error}")
        return None
    return found.placement
