"""The `auto` planner: rollouts, then local search, which goes on from elsewhere where it stalls.

    rollout --> local_search, which adds list schedules and single devices
                 --stalls--> a policy learns, or searches race (lineages.py) --> placement

Rollouts decide by kernels alone. Where devices launch ahead, others decide as if an op took its
launch and its kernel on them, which is better where launches take the time. Searches from the best
of both race.

There TensorFlow's order of launches differs from start to start. Each search scores the worst of
orders of its own, and the result is the best under orders that none scored (launch_orders.py).

In the end units move where that makes the step shorter on average over costs with typical errors
(robustness.py), and those whose move does not pay go back where TensorFlow has them (settling.py).
For the costs as they stand, the step may become 1% longer by that. But for these and
for launches, the result is never worse than that of any planner which it starts from.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners import lineages, local_search, rollout
from hplacer_optimizer.planners.budget import Budget, Progress, ProgressCallback
from hplacer_optimizer.planners.devices import on_device, where_possible
from hplacer_optimizer.planners.launch_orders import best_of, with_order, without_launches
from hplacer_optimizer.planners.result import PlannerResult, Watch
from hplacer_optimizer.planners.robustness import SECONDS, MeanStep, make_robust, seconds_needed
from hplacer_optimizer.planners.settling import settle

PARTS = ("counted_launches",)  # and those of `lineages`
# Of the time or the steps rollouts have so much, and no more than pays. On small graphs patience
# ends them, never the clock: these are planned alike each time.
_ROLLOUT_SHARE, _ROLLOUT_PATIENCE = 0.25, 1000
# What follows the search has so much of the time.
_ROBUST_SHARE, _SETTLING_SHARE, _MOST_SETTLING_S = 0.08, 0.05, 0.5
_ROLLOUT_ORDER, _SEARCH_ORDER = 1001, 1011  # launch seeds, from which each has some orders


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
    without: Collection[str] = (),
) -> PlannerResult:
    """Plans as any `Planner`.

    A step of the budget is an evaluation of a search; without a budget it is
    `local_search.default_budget`. `without`: as of `lineages.search`, and of PARTS.
    """
    budget = (budget or Budget()).or_default(local_search.default_budget(problem))
    begin_s = time.monotonic()
    robust_s, settling_s = _finishing_s(budget)
    if budget.seconds is not None:
        needed_s = seconds_needed(problem, robust_s) + settling_s
        budget = replace(budget, seconds=budget.seconds - needed_s)
    watch = Watch(on_progress)
    starts = _rollouts(problem, budget, seed, watch, without)
    watch.begin()
    found = lineages.search(
        with_order(problem, _SEARCH_ORDER),
        starts,
        without=[part for part in without if part not in PARTS],
        budget=_without_steps(watch.last.steps, budget.left(begin_s)),
        seed=seed,
        on_progress=watch,
    )
    placement = found.placement
    if not budget.stopped:
        candidates = [placement, *starts]
        placement = _finish(problem, candidates, robust_s, settling_s, budget=budget, seed=seed)
    return watch.result(placement, notes=found.notes)


def _rollouts(
    problem: Problem, budget: Budget, seed: int, watch: Watch, without: Collection[str]
) -> list[NDArray[np.int32]]:
    """The best placement of rollouts, and of those that count launches, if there are any."""
    has_launches = problem.device_launch_ns.any() and "counted_launches" not in without
    budget = _for_rollouts(budget, searches=2 if has_launches else 1)
    ordered = with_order(problem, _ROLLOUT_ORDER)
    built = rollout.search(ordered, budget=budget, seed=seed, on_progress=watch)
    if not has_launches:
        return [built.placement]

    def tell(progress: Progress) -> None:
        watch(replace(progress, best_ns=None))  # of another problem

    watch.begin()
    counted = without_launches(problem)
    other = rollout.search(counted, budget=budget, seed=seed, on_progress=tell)
    return [built.placement, other.placement]


def _finishing_s(budget: Budget) -> tuple[float, float]:
    """Seconds of a budget for the robust step, and for taking back moves that do not pay."""
    if budget.seconds is None:
        return SECONDS, _MOST_SETTLING_S
    robust_s = min(SECONDS, _ROBUST_SHARE * budget.seconds)
    return robust_s, min(_MOST_SETTLING_S, _SETTLING_SHARE * budget.seconds)


def _finish(
    problem: Problem,
    found: Sequence[NDArray[np.int32]],
    robust_s: float,
    settling_s: float,
    *,
    budget: Budget,
    seed: int,
) -> NDArray[np.int32]:
    """The best of the placements that were found, the first one, less sensitive to errors."""
    placement, step_ns, simulations = found[0], None, None
    candidates = [*found, *_simple_placements(problem)]
    mean_step = MeanStep.over_draws(problem, candidates, seconds=robust_s, seed=seed)
    if mean_step is None and problem.device_launch_ns.any():
        placement = best_of(problem, found)
    if mean_step is not None:
        step_ns, simulations = mean_step.of, mean_step.simulations
        placement = make_robust(
            problem, candidates, mean_step, seed=seed, should_stop=lambda: budget.stopped
        )
    if problem.default_device is None or budget.stopped:
        return placement
    return settle(
        problem,
        placement,
        problem.default_device,
        seconds=settling_s,
        step_ns=step_ns,
        simulations=simulations,
    )


def _simple_placements(problem: Problem) -> list[NDArray[np.int32]]:
    """A device of each kind alone, and TensorFlow's own placement where units may be there."""
    _, first_device = np.unique(problem.device_kind, return_index=True)
    placements = [on_device(problem, device) for device in first_device.tolist()]
    if problem.default_device is not None:
        _, first_op = np.unique(problem.units, return_index=True)
        placements.append(where_possible(problem, problem.default_device[first_op]))
    return placements


def _for_rollouts(budget: Budget, *, searches: int) -> Budget:
    """For each of the searches."""
    patience = min(budget.patience or _ROLLOUT_PATIENCE, _ROLLOUT_PATIENCE)
    return replace(budget.share(_ROLLOUT_SHARE / searches), patience=patience)


def _without_steps(steps: int, budget: Budget) -> Budget:
    if budget.steps is None:
        return budget
    return replace(budget, steps=max(1, budget.steps - steps))
