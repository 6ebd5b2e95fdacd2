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
    clock = _Clock(budget)
    watch = _Sum(on_progress)
    starts = [
        start for planner in _QUICK if (start := _try(planner, problem, budget, seed)) is not None
    ]

    def search(seconds: float | None) -> None:
        part = dataclasses.replace(budget, seconds=seconds)
        watch.begin()
        starts.append(
            local_search.search(problem, starts, budget=part, seed=seed, on_progress=watch)
        )

    if budget.seconds is None or budget.seconds < LEARNING_S or budget.steps is not None:
        search(clock.left())
        return starts[-1]
    search(_SEARCH_SHARE * budget.seconds)
    if not budget.stopped:
        watch.begin()
        seconds = min(_LEARNING_SHARE * budget.seconds, clock.left() or 0)
        learned = _learn(problem, starts[-1], seconds, budget, seed, watch)
        if learned is not None:
            starts.append(learned)
            search(clock.left())
    return starts[-1]


class _Clock:
    """The seconds of a budget that are left, at least a moment; None without a limit."""

    def __init__(self, budget: Budget) -> None:
        self._seconds = budget.seconds
        self._begin_s = time.monotonic()

    def left(self) -> float | None:
        if self._seconds is None:
            return None
        return max(self._seconds - (time.monotonic() - self._begin_s), 1e-3)


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
    seconds: float,
    budget: Budget,
    seed: int,
    watch: ProgressCallback,
) -> NDArray[np.int32] | None:
    from hplacer_optimizer.learning import learn

    part = dataclasses.replace(budget, seconds=seconds)
    try:
        found = learn(problem, start=start, budget=part, seed=seed, on_progress=watch)
    except PlannerUnavailableError as error:
        add_note(f"auto: nothing was learned: {error}")
        return None
    return found.placement
