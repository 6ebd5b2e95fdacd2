"""What a measurement says: how long steps took, or why there are none."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from hplacer_optimizer.support.formats import format_bytes, format_ns
from hplacer_optimizer.support.notebook import Described

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


@dataclass(frozen=True, kw_only=True, repr=False)
class Measurement(Described):
    """The steps that were run under one placement; m devices.

    Attributes:
        times_s: seconds of each step after the warm-up; empty after a failure.
        warmup: steps before these.
        peak_bytes: of each of m devices, variables included; None where its allocator tells
            nothing. CPU devices of one process share an allocator, and have its total.
        error: why there are no times, else None.

    Example:
        >>> import hplacer_optimizer as hp
        >>> measured = hp.Measurement(times_s=(0.012, 0.010, 0.011), warmup=3)  # as of `measure`
        >>> measured.step_s
        0.011
        >>> print(measured.error)
        None
    """

    times_s: tuple[float, ...] = ()
    warmup: int = 0
    peak_bytes: tuple[int | None, ...] = ()
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

    def _describe(self) -> tuple[str, dict[str, str]]:
        if self.step_s is None:
            return f"Measurement: {self.error or 'no steps'}", {}
        steps = f"{len(self.times_s)} after {self.warmup} of warm-up"
        if self.spread_s is not None:
            steps += f", interquartile range {_format_s(self.spread_s)}"
        facts = {"steps": steps}
        if self.peak_bytes:
            peaks = ("unknown" if peak is None else format_bytes(peak) for peak in self.peak_bytes)
            facts["peak memory of each device"] = ", ".join(peaks)
        return f"Measurement: {_format_s(self.step_s)} a step", facts

    def with_more(self, other: Measurement) -> Measurement:
        """Both together; a failure adds nothing."""
        if self.error is not None:
            return other
        return replace(self, times_s=self.times_s + other.times_s)


def _format_s(duration_s: float) -> str:
    return format_ns(round(duration_s * 1e9))


def failed(kind: str, message: str) -> Measurement:
    """A measurement that is none."""
    return Measurement(error=Failure(kind=kind, message=message))
