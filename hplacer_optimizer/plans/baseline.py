"""TensorFlow's own placement, what every plan is compared with, and the guard between the two.

A plan takes effect if TensorFlow's placement does not fit, or if the plan is predicted to be faster
by more than such predictions are wrong. A predicted gain within that error says nothing: a transfer
that costs more than it was thought to can turn it into a loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.options import EVERY_PLAN
from hplacer_optimizer.plans.fields import boolean, count, list_of, optional, record
from hplacer_optimizer.problem.simulator import simulate_default
from hplacer_optimizer.support.formats import format_ns, format_speedup

_check = record(
    {"step_time_ns": optional(count), "feasible": boolean, "peak_bytes": list_of(count)}
)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The simulated step under TensorFlow's own placement.

    Attributes:
        step_time_ns: None if it cannot be simulated.
        feasible: whether it fits into every device's memory.
        peak_bytes: of each device of the plan, bytes.
    """

    step_time_ns: int | None
    feasible: bool
    peak_bytes: list[int]

    @classmethod
    def of(cls, problem: Problem) -> Baseline | None:
        """Simulates it; None if the problem does not know TensorFlow's placement."""
        found = simulate_default(problem)
        if found is None:
            return None
        trace, feasible = found
        peak_bytes = [int(peak) for peak in trace.peak_bytes]
        return cls(step_time_ns=trace.makespan_ns, feasible=feasible, peak_bytes=peak_bytes)

    def speedup_of(self, step_ns: int | None, feasible: bool) -> float | None:
        """How many times as many steps a second a step of this length means.

        None if one of the two is not known or does not fit.
        """
        if not (self.feasible and feasible) or self.step_time_ns is None or step_ns is None:
            return None
        return self.step_time_ns / max(step_ns, 1)

    def beside(self, step_ns: int | None, feasible: bool) -> str:
        """As "2.0x TensorFlow's placement (5.04 ms)"; "": there is no ratio to tell."""
        if not self.feasible:
            return "TensorFlow's placement does not fit into memory"
        speedup = self.speedup_of(step_ns, feasible)
        if speedup is None:
            return ""
        own = format_ns(self.step_time_ns or 0)
        return f"{format_speedup(speedup)} TensorFlow's placement ({own})"

    @classmethod
    def checked(cls, value: Any) -> Baseline | None:
        """Of a Baseline, or of what JSON holds of one; raises ValueError."""
        if value is None:
            return None
        return cls(**_check(vars(value) if isinstance(value, cls) else value))


def as_json(baseline: Baseline | None) -> Mapping[str, Any] | None:
    """What a plan file holds of it."""
    return None if baseline is None else dict(vars(baseline))


def why_left_alone(
    *,
    step_ns: int | None,
    feasible: bool,
    baseline: Baseline | None,
    error: float,
    min_gain: float | None,
) -> str:
    """Why a plan does not take effect, as a sentence; "" if it does.

    The gain is by how much more steps a second there are, from -1. It has to exceed `min_gain`, or
    if that is None the `error` of the prediction.
    """
    if min_gain == EVERY_PLAN:
        return ""
    if baseline is None:
        return "TensorFlow's own placement is not known, so that nothing can be compared with it"
    if not baseline.feasible or baseline.step_time_ns is None:
        return ""
    own = format_ns(baseline.step_time_ns)
    if not feasible or step_ns is None:
        return f"the plan may not fit into memory, and TensorFlow's placement does ({own})"
    times = f"{format_ns(step_ns)} instead of {own}"
    if step_ns >= baseline.step_time_ns and (min_gain is None or min_gain >= 0):
        return f"nothing faster than TensorFlow's placement was found: {times}"
    gain = baseline.step_time_ns / max(step_ns, 1) - 1
    if min_gain is None:
        return "" if gain > error else f"{times} is within the error of the prediction"
    return (
        "" if gain > min_gain else f"{times} is less than option min_gain asks for ({min_gain:g})"
    )
