"""TensorFlow's own placement, what every plan is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.plans.fields import boolean, count, list_of, optional, record
from hplacer_optimizer.problem.simulator import simulate_default
from hplacer_optimizer.support.formats import format_ns, times_as_fast

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
        return max(self.step_time_ns, 1) / max(step_ns, 1)

    def beside(self, step_ns: int | None, feasible: bool) -> str:
        """As "2.0 times as fast as TensorFlow's placement (5.04 ms)"; "": there is no ratio."""
        if not self.feasible:
            return "TensorFlow's placement does not fit into memory"
        speedup = self.speedup_of(step_ns, feasible)
        if speedup is None:
            return ""
        own = format_ns(self.step_time_ns or 0)
        return f"{times_as_fast(speedup)} as TensorFlow's placement ({own})"

    @classmethod
    def checked(cls, value: Any) -> Baseline | None:
        """Of a Baseline, or of what JSON holds of one; raises ValueError."""
        if value is None:
            return None
        return cls(**_check(vars(value) if isinstance(value, cls) else value))


def as_json(baseline: Baseline | None) -> Mapping[str, Any] | None:
    """What a plan file holds of it."""
    return None if baseline is None else dict(vars(baseline))
