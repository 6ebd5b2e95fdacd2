"""The `auto` planner: rollouts, local search, and learning where there is time for it.

    rollout --> local_search, which adds list schedules and single devices --> placement
                                                                   |  from 2 minutes on
                            local_search <-- hierarchical, which imitates it first

In the end units move where that makes the step shorter on average over costs with typical errors
(robustness.py), and those whose move does not pay go back where TensorFlow has them (settling.py).
For the costs as they stand, the step may become 1% longer by that. But for these, the result is
never worse than that of any planner which it starts from.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners import local_search, rollout
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.colocation import scopes_of_units
from hplacer_optimizer.planners.devices import on_device, where_possible
from hplacer_optimizer.planners.learning import learn
from hplacer_optimizer.planners.result import PlannerResult, Watch
from hplacer_optimizer.planners.robustness import SECONDS, MeanStep, make_robust
from hplacer_optimizer.planners.settling import settle

LEARNING_S = 120.0
"""Budgets of so many seconds are shared with the Hierarchical Planner."""
_SEARCH_SHARE, _LEARNING_SHARE = 0.5, 0.35
# Of the time or the steps before learning, rollouts have so much, and not more than pays. On small
# graphs the steps end them, never the clock: these are planned alike each time.
_ROLLOUT_SHARE = 0.25
_ROLLOUT_SECONDS_PER_OP, _ROLLOUT_STEPS = 2e-4, 600
_LEAST_ROLLOUT_S = 0.5
_SETTLING_S, _ROBUST_SHARE = 0.5, 0.08


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Plans as any `Planner`.

    A step of the budget is an evaluation of a search, or an update of the policy; without a budget
    it is `local_search.default_budget`. A budget in steps, or below LEARNING_S, does not learn.
    """
    budget = (budget or Budget()).or_default(local_search.default_budget(problem))
    begin_s = time.monotonic()
    watch = Watch(on_progress)
    scopes = scopes_of_units(problem)
    found = [
        rollout.search(
            problem,
            budget=_for_rollouts(budget, problem.num_ops),
            seed=seed,
            on_progress=watch,
            scopes=scopes,
        )
    ]

    def search(part: Budget) -> None:
        watch.begin()
        starts = [result.placement for result in found]
        found.append(
            local_search.search(
                problem, starts, budget=part, seed=seed, on_progress=watch, scopes=scopes
            )
        )

    notes: list[str] = []
    if budget.seconds is None or budget.seconds < LEARNING_S or budget.steps is not None:
        search(_without_steps_of(found[0], budget.left(begin_s)))
    else:
        search(replace(budget, seconds=_SEARCH_SHARE * budget.seconds).left(begin_s))
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
    said = [note for result in found[1:] for note in result.notes]
    placement = found[-1].placement
    if not budget.stopped:
        placement = _finish(problem, [result.placement for result in reversed(found)], budget, seed)
    return watch.result(placement, notes=[*said, *notes])


def _finish(
    problem: Problem, found: Sequence[NDArray[np.int32]], budget: Budget, seed: int
) -> NDArray[np.int32]:
    """The best of the placements that were found, the first one, less sensitive to errors."""
    placement, step_ns = found[0], None
    candidates = [*found, *_simple_placements(problem)]
    seconds = SECONDS
    if budget.seconds is not None:
        seconds = min(seconds, _ROBUST_SHARE * budget.seconds)
    mean_step = MeanStep.over_draws(problem, candidates, seconds=seconds, seed=seed)
    if mean_step is not None:
        step_ns = mean_step.of
        placement = make_robust(
            problem, candidates, mean_step, seed=seed, should_stop=lambda: budget.stopped
        )
    if problem.default_device is None or budget.stopped:
        return placement
    return settle(problem, placement, problem.default_device, seconds=_SETTLING_S, step_ns=step_ns)


def _simple_placements(problem: Problem) -> list[NDArray[np.int32]]:
    """A device of each kind alone, and TensorFlow's own placement where units may be there."""
    _, first_device = np.unique(problem.device_kind, return_index=True)
    placements = [on_device(problem, device) for device in first_device.tolist()]
    if problem.default_device is not None:
        _, first_op = np.unique(problem.units, return_index=True)
        placements.append(where_possible(problem, problem.default_device[first_op]))
    return placements


def _for_rollouts(budget: Budget, num_ops: int) -> Budget:
    seconds, steps = budget.seconds, _ROLLOUT_STEPS
    if seconds is not None:
        pays_s = max(_ROLLOUT_SECONDS_PER_OP * num_ops, _LEAST_ROLLOUT_S)
        seconds = min(_ROLLOUT_SHARE * seconds, pays_s)
    if budget.steps is not None:
        steps = max(1, min(int(_ROLLOUT_SHARE * budget.steps), _ROLLOUT_STEPS))
    return replace(budget, seconds=seconds, steps=steps)


def _without_steps_of(result: PlannerResult, budget: Budget) -> Budget:
    if budget.steps is None:
        return budget
    return replace(budget, steps=max(1, budget.steps - result.steps))
