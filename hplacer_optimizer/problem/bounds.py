"""How far a step is from the lower bound of its problem."""

from __future__ import annotations

__all__ = ["gap"]


def gap(step_time_ns: int | None, lower_bound_ns: int | None) -> float | None:
    """By what share of the bound the step is longer; None where one of them is not known."""
    if step_time_ns is None or lower_bound_ns is None:
        return None
    return step_time_ns / max(lower_bound_ns, 1) - 1 if step_time_ns else 0.0
