"""What is told of a trial."""

from __future__ import annotations

import sys
from pathlib import Path

from hplacer_optimizer.measuring.running_trial import TrialResult
from hplacer_optimizer.plans.verdict import emulated_here
from hplacer_optimizer.support.formats import format_ratio, times_as_fast

_LONGEST = 200  # characters of an error


def conclusion(label: str, result: TrialResult, error: BaseException | None, *, stays: bool) -> str:
    """One line: what was measured, and what follows."""
    own = "TensorFlow's placement stays"
    if error is not None:
        return (
            f"{label}: a step with the plan has failed, so that the plan is retired and the next "
            f"start will not use it: {failure(error)}"
        )
    if not result.is_known:
        return (
            f"{label}: the trial of the plan has cost what it may, before it is known "
            f"whether the plan pays: {own}, and the next start goes on"
        )
    low, high = format_ratio(result.low), format_ratio(result.high)
    how = f"{low} to {high}, {result.observed.steps} steps measured{_emulated()}"
    if result.is_dropped:
        how = f"its first steps were enough to tell{_emulated()}"
    fast = times_as_fast(result.speedup)
    if result.plan_stays:
        end = "it stays" if stays else f"less than option min_gain asks for: {own}"
        return f"{label}: the plan is {fast} ({how}); {end}"
    if result.high < 1:
        return f"{label}: the plan is {fast} ({how}); {own}"
    return f"{label}: the plan makes no difference ({how}); {own}"


def failure(error: BaseException) -> str:
    """The error, in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:_LONGEST]


def who() -> str:
    """Who measured, for a verdict."""
    return f"a trial in {Path(sys.argv[0]).name or 'a session'}"


def _emulated() -> str:
    machine = emulated_here()
    return "" if machine is None else f", emulated {machine}"
