"""Plans by measured step time: the best of all placements that were measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.errors import InfeasibleError, PlannerUnavailableError
from hplacer_optimizer.measuring import Effort, MeasuredReward, Measurer, measured_search
from hplacer_optimizer.planners import Budget, PlannerEntry, PlannerResult, Progress
from hplacer_optimizer.planners.result import Watch
from hplacer_optimizer.problem.cost_errors import CostErrors
from hplacer_optimizer.support.formats import format_ns


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Where and how steps are measured."""

    on: tuple[tuple[str, ...], ...] = ()
    """Clusters, each by the addresses of its servers; they measure at the same time. (): here."""
    effort: Effort = field(default_factory=Effort)


def plan_by_measuring(
    problem: Problem,
    planner: PlannerEntry,
    step: RunnableStep,
    measuring: Measuring,
    *,
    budget: Budget,
    seed: int,
    options: Mapping[str, Any],
    errors: CostErrors,
    watch: Watch,
) -> tuple[PlannerResult, dict[str, Any]]:
    """The result, and what a plan tells of its measurement.

    `options` are further keywords of a planner that learns. One that does not proposes starts of a
    search by measured steps, which learns how wrong costs are that typically have these `errors`.
    Of a policy only its own draws count: TensorFlow's placement is measured and is no answer.
    Raises InfeasibleError if no placement ran.
    """
    measurers = [
        Measurer(step, problem, devices=devices, effort=measuring.effort)
        for devices in measuring.on or (None,)
    ]
    with MeasuredReward(measurers) as reward:
        baseline_s = math.inf
        if problem.default_device is not None:
            measure = reward.of_no_candidate if planner.learns else reward
            baseline_s = measure(problem.default_device)
        if planner.learns:
            notes = _learn(problem, planner, reward, budget, seed, options, watch)
        else:
            notes = measured_search.search(
                problem,
                reward,
                planner.plan,
                budget=budget,
                seed=seed,
                on_progress=watch,
                errors=errors,
            )
        best, measured, failed = reward.best, reward.measured, reward.failed
        last_failure = reward.last_failure
    if best is None:
        raise InfeasibleError(f"none of {measured} placements ran: {last_failure}")
    placement, measurement = best
    assert measurement.step_s is not None
    step_ns = round(measurement.step_s * 1e9)
    spread_ns = round((measurement.spread_s or 0.0) * 1e9)
    steps = len(measurement.times_s)
    note = (
        f"measured {format_ns(step_ns)} per step (median of {steps}, interquartile range "
        f"{format_ns(spread_ns)}); {measured} placements measured, {failed} failed"
    )
    if failed:
        note += f", the last one: {last_failure}"
    return watch.result(placement, notes=[*notes, note]), {
        "step_ns": step_ns,
        "spread_ns": spread_ns,
        "baseline_ns": round(baseline_s * 1e9) if math.isfinite(baseline_s) else None,
        "steps": steps,
        "warmup": measurement.warmup,
        "placements": measured,
        "failed": failed,
        "on": [list(addresses) for addresses in measuring.on],
    }


def _learn(
    problem: Problem,
    planner: PlannerEntry,
    reward: MeasuredReward,
    budget: Budget,
    seed: int,
    options: Mapping[str, Any],
    watch: Watch,
) -> list[str]:
    """Has the policy measure placements; returns what the planner has to say."""

    def tell(progress: Progress) -> None:
        watch(replace(progress, best_ns=reward.best_ns))

    try:
        found = planner.plan(
            problem,
            budget=budget,
            seed=seed,
            reward=reward,
            parallel=reward.parallel,
            on_progress=tell,
            **options,
        )
    except PlannerUnavailableError as error:
        if reward.best is None:
            raise
        return [str(error)]
    if options.get("resume"):
        reward(found.placement)  # of an earlier run
    return list(found.notes)
