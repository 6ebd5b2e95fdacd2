"""What a plan gains over TensorFlow's own placement, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from hplacer_optimizer._engine import StepTrace
from hplacer_optimizer.inspection.provenance import Provenance, ReportedVerdict
from hplacer_optimizer.inspection.report.references import DEFAULT, Reference
from hplacer_optimizer.support.formats import format_ns, format_ratio, times_as_fast

__all__ = ["gain", "notes", "why_not_shown"]

_SAME = 0.005  # ratios that differ from 1 by less are told as "as fast as"


def gain(plan: Provenance, trace: StepTrace, default: Reference | None) -> str:
    """One sentence: the gain as predicted, and as measured if somebody did.

    `default` is TensorFlow's own placement; None: not known.
    """
    predicted = _predicted(trace, default)
    if plan.verdict is None:
        return f"{predicted}."
    return f"{predicted}; {_measured(plan.verdict)}."


def _predicted(trace: StepTrace, default: Reference | None) -> str:
    if trace.makespan_ns is None:
        return "This plan cannot run on this machine"
    if not trace.feasible:
        return "This plan does not fit into memory"
    step = format_ns(trace.makespan_ns)
    if default is None:
        return f"This plan is predicted to take {step} a step"
    if default.trace is None or default.step_time_ns is None:
        return f"This plan runs, {_why_not(default)}: a step is predicted to take {step}"
    ratio = default.step_time_ns / max(trace.makespan_ns, 1)
    times = f"{step} a step instead of {format_ns(default.step_time_ns)}"
    return f"This plan is predicted to be {_compared(ratio)} {DEFAULT}: {times}"


def _why_not(default: Reference) -> str:
    why = "cannot run" if default.step_time_ns is None else "does not fit into memory"
    return f"{DEFAULT} {why}"


def _measured(found: ReportedVerdict) -> str:
    times = f"{format_ns(found.plan_ns)} instead of {format_ns(found.baseline_ns)}"
    how = "measured" if found.emulated is None else f"measured on the emulated {found.emulated}"
    return f"{how}, it was {_compared(found.speedup)} that placement, {times}"


def _compared(ratio: float) -> str:
    """As "1.6 times as fast as"."""
    if abs(ratio - 1) < _SAME:
        return "as fast as"
    return f"{times_as_fast(ratio)} as"


def notes(plan: Provenance) -> Iterator[str]:
    """Sentences below the headline: who measured, and whether training follows the plan."""
    found = plan.verdict
    if found is not None:
        low, high = format_ratio(found.low), format_ratio(found.high)
        yield f"Measured {found.source}; the 95% interval is {low} to {high}."
    reason = plan.why_left_alone() if plan.fingerprint and plan.baseline else ""
    if reason:
        yield f"Without a trial, training keeps TensorFlow's placement: {reason}."


def why_not_shown(default: Reference | None) -> str:
    """Why the page has no timeline of TensorFlow's own placement; "": it has one."""
    if default is None:
        return f"{DEFAULT} of this graph is not known, so its timeline is not shown."
    if default.trace is None:
        return f"{_why_not(default)}, so its timeline is not shown."
    return ""
