"""The training steps of one process, by what they train: when each began and ended.

Every step is noted, which takes a fraction of a microsecond; a few of them are looked at, to tell
whether enough is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

SESSION = "session graph"  # the name of a session's steps
WARMUP = 3  # steps that TensorFlow spends on optimizing and allocating
LEAST = 5  # timed steps, for any result
EMULATED_STEPS = 20  # timed, of virtual time: they differ by 1 to 3%
_STEPS, _SECONDS, _MOST_SECONDS = 30, 2.0, 10.0  # timed, if no number of steps is asked for
_PAUSE = 10.0  # steps


@dataclass(slots=True)
class Steps:
    """Of one function, or of one session's graph; seconds are those of `emulation.step_clock`."""

    name: str
    """For people, such as "function train_step"."""
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    first_calls: list[int] = field(default_factory=list)
    """Indices of steps with another shape or fetch than any before: TensorFlow prepares them."""
    next_number: int = 1
    """The step that is looked at next, counted from 1, ..."""
    next_start: float = math.inf
    """... or the first one that begins then or later."""
    _busy_s: float = 0.0
    """In the first `_summed` steps: each is summed once, however often the sum is asked for."""
    _summed: int = 0

    def add(self, start: float, end: float) -> bool:
        """Notes a step; True: `Recorder.look` should look at it."""
        self.starts.append(start)
        self.ends.append(end)
        return len(self.starts) >= self.next_number or start >= self.next_start

    @property
    def busy_s(self) -> float:
        """In all steps but those of `first_calls`."""
        ends, starts = self.ends[self._summed :], self.starts[self._summed :]
        self._busy_s += sum(end - start for start, end in zip(starts, ends, strict=False))
        self._summed += len(ends)
        return self._busy_s - sum(self.ends[i] - self.starts[i] for i in self.first_calls)

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
        self._least = _in_all(max(LEAST, wanted or 0))
        self.all: dict[Any, Steps] = {}

    def steps(self, key: Any, name: str) -> Steps:
        """Those of this key."""
        return self.all.setdefault(key, Steps(name))

    @property
    def main(self) -> Steps | None:
        """Those that took most of the time; the first of equals."""
        trained = [steps for steps in self.all.values() if steps.starts]
        return max(trained, key=lambda steps: steps.busy_s, default=None)

    def look(self, steps: Steps) -> bool:
        """After a step that `Steps.add` told of; True: enough is known."""
        number = len(steps.starts)
        is_enough = (
            number >= self._least
            and steps.starts[-1] - steps.starts[WARMUP] >= self._least_s(steps)
            and self.main is steps
        )
        later = (WARMUP, self._least, _in_all(_STEPS), 1 << number.bit_length())
        steps.next_number = min(step for step in later if step > number)
        if number >= self._least:
            steps.next_start = steps.starts[WARMUP] + self._least_s(steps)
        return is_enough

    def _least_s(self, steps: Steps) -> float:
        """Seconds after the warm-up, of as many steps as there are."""
        if self._wanted is not None:
            return 0.0
        return _SECONDS if steps.timed >= _STEPS else _MOST_SECONDS


def _in_all(timed: int) -> int:
    """Steps in all, of which so many are timed."""
    return timed + WARMUP + 1
