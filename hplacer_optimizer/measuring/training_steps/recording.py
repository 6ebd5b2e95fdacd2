"""The training steps of one process, by what they train: when each began and ended.

A recorder is called after every step and costs half a microsecond. It tells when enough is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

SESSION = "session graph"  # the name of a session's steps
WARMUP = 3  # steps that TensorFlow spends on optimizing and allocating
LEAST = 5  # timed steps, for any result
_STEPS, _SECONDS, _MOST_SECONDS = 30, 2.0, 10.0  # timed, if no number of steps is asked for
_PAUSE = 10.0  # steps


@dataclass(slots=True)
class Steps:
    """Of one function, or of one session's graph; seconds are those of `time.perf_counter`."""

    name: str
    """For people, such as "function train_step"."""
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    first_calls: list[int] = field(default_factory=list)
    """Indices of steps with another shape or fetch than any before: TensorFlow prepares them."""
    busy_s: float = 0.0
    """In all steps but those."""

    @property
    def timed(self) -> int:
        """Steps after the warm-up that another one followed."""
        return max(0, len(self.starts) - WARMUP - 1)

    def counted(self) -> NDArray[np.int64]:
        """Indices of the steps that are timed: after the warm-up, not prepared, without a pause."""
        starts, ends = np.array(self.starts), np.array(self.ends)
        lasts_s = np.diff(starts)
        is_counted = np.arange(len(lasts_s)) >= WARMUP
        if not is_counted.any():
            return np.zeros(0, np.int64)
        prepared = np.array(self.first_calls, np.int64)
        # Tracing goes before the call, so it lies in what is counted as the step before.
        is_counted[np.clip(np.concatenate([prepared, prepared - 1]), 0, len(lasts_s) - 1)] = False
        if is_counted.any():
            between_s = starts[1:] - ends[:-1]
            is_counted &= between_s <= _PAUSE * np.median(lasts_s[is_counted])
        return np.flatnonzero(is_counted)

    def step_s(self, synced: float | None = None) -> float:
        """Seconds of a counted step, of at least one, from its start to that of the next.

        `synced`: when accelerators had done all of it, where they work after a call has returned.
        """
        if synced is not None:
            return (synced - self.starts[WARMUP]) / (len(self.starts) - WARMUP)
        return float(np.diff(self.starts)[self.counted()].mean())


class Recorder:
    """All steps of this process."""

    def __init__(self, wanted: int | None) -> None:
        """`wanted`: steps to time; None: for about two seconds, and at least 30."""
        self._wanted = wanted
        self._least_s = 0.0 if wanted is not None else _SECONDS
        self.all: dict[Any, Steps] = {}

    def steps(self, key: Any, name: str) -> Steps:
        """Those of this key."""
        return self.all.setdefault(key, Steps(name))

    @property
    def main(self) -> Steps | None:
        """Those that took most of the time; the first of equals."""
        trained = [steps for steps in self.all.values() if steps.starts]
        return max(trained, key=lambda steps: steps.busy_s, default=None)

    def add(self, steps: Steps, start: float, end: float, *, is_first: bool) -> bool:
        """Takes a step in; True: enough is known."""
        if is_first:
            steps.first_calls.append(len(steps.starts))
        else:
            steps.busy_s += end - start
        steps.starts.append(start)
        steps.ends.append(end)
        if len(steps.starts) <= WARMUP + LEAST or start - steps.starts[WARMUP] < self._least_s:
            return False
        return self._is_enough(steps) and self.main is steps

    def _is_enough(self, steps: Steps) -> bool:
        if self._wanted is not None:
            return steps.timed >= self._wanted
        seconds = steps.starts[-1] - steps.starts[WARMUP]
        return seconds >= _MOST_SECONDS or (steps.timed >= _STEPS and seconds >= _SECONDS)
