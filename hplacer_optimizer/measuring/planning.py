"""Plans by measured step time: the best of all placements that were measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.errors import InfeasibleError
from hplacer_optimizer.measuring import Effort, MeasuredReward, Measurer
from hplacer_optimizer.planners.notes import add_note
from hplacer_optimizer.support.formats import format_ns


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Where and how steps are measured."""

    on: tuple[tuple[str, ...], ...] = ()
    """Clusters, each by the addresses of its servers; they measure at the same time. (): here."""
    effort: Effort = field(default_factory=Effort)


def best_measured(
    problem: Problem,
    step: RunnableStep,
    measuring: Measuring,
    propose: Callable[[MeasuredReward], None],
) -> tuple[NDArray[np.int32], dict[str, Any]]:
    """int32[n], and what a plan tells of its measurement.

    `propose` measures placements. Raises InfeasibleError if none of them ran.
    """
    measurers = [
        Measurer(step, problem, devices=devices, effort=measuring.effort)
        for devices in measuring.on or (None,)
    ]
    with MeasuredReward(measurers) as reward:
        propose(reward)
        best, measured, failed = reward.best, reward.measured, reward.failed
    if best is None:
        raise InfeasibleError(f"none of {measured} placements ran: {reward.last_failure}")
    placement, measurement = best
    assert measurement.step_s is not None
    step_ns = round(measurement.step_s * 1e9)
    spread_ns = round((measurement.spread_s or 0.0) * 1e9)
    steps = len(measurement.times_s)
    add_note(
        f"measured {format_ns(step_ns)} per step (median of {steps}, interquartile range "
        f"{format_ns(spread_ns)}); {measured} placements measured, {failed} failed"
    )
    return placement, {
        "step_ns": step_ns,
        "spread_ns": spread_ns,
        "steps": steps,
        "warmup": measurement.warmup,
        "placements": measured,
        "failed": failed,
        "on": [list(addresses) for addresses in measuring.on],
    }
