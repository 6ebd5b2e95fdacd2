"""What a measurement says: how long steps took, or why there are none."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

CRASH = "crash"
INVALID_PLACEMENT = "invalid placement"
OUT_OF_MEMORY = "out of memory"
TENSORFLOW_ERROR = "TensorFlow error"
TIME_LIMIT = "time limit"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a placement was not measured."""

    kind: str
    """One of the constants above."""
    message: str
    """For people."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The steps that were run under one placement."""

    times_s: tuple[float, ...] = ()
    """Of each step after the warm-up; empty after a failure."""
    warmup: int = 0
    """Steps before these."""
    peak_bytes: tuple[int | None, ...] = ()
    """Of each device of the problem; None where its allocator keeps no account, as on CPUs."""
    error: Failure | None = None

    @property
    def step_s(self) -> float | None:
        """Median seconds of a step; None after a failure."""
        return statistics.median(self.times_s) if self.times_s else None

    @property
    def spread_s(self) -> float | None:
        """The interquartile range; None without two steps."""
        if len(self.times_s) < 2:
            return None
        low, _, high = statistics.quantiles(self.times_s, n=4, method="inclusive")
        return high - low

    def with_more(self, other: Measurement) -> Measurement:
        """Both together; a failure adds nothing."""
        if self.error is not None:
            return other
        return replace(self, times_s=self.times_s + other.times_s)


def failed(kind: str, message: str) -> Measurement:
    """A measurement that is none."""
    return Measurement(error=Failure(kind=kind, message=message))
