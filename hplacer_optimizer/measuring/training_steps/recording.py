"""The training steps of one process, by what they train: when each began and ended.

Every step is noted, which takes a fraction of a microsecond; a few of them are looked at, to tell
whether enough is known.
"""

from __future__ import annotations

import itertools
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
    waits: list[tuple[int, float]] = field(default_factory=list)
    """Of devices that work after a call has returned: the first so many steps were over there at
    that time, which was waited for. A function's call tells only when its ops were handed out."""
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
    def next_wait(self) -> int:
        """How many steps there are when devices should be waited for.

        A wait costs the time in which they have nothing to do, so there are ever fewer.
        """
        if not self.waits:
            return WARMUP
        last = self.waits[-1][0]
        return last + max(LEAST, (last - WARMUP) // 4)

    def waited(self, done_s: float) -> None:
        """Devices had done all steps at that time."""
        self.waits.append((len(self.starts), done_s))
        self.next_number = min(self.next_number, self.next_wait)

    @property
    def timed(self) -> int:
        """Steps after the warm-up that another one followed."""
        return max(0, len(self.starts) - WARMUP - 1)

    def counted(self) -> NDArray[np.int64]:
        """Indices of the steps that are timed: after the warm-up, not prepared, without a pause."""
        if self.waits:
            sound = [np.arange(first, last) for first, last, _ in self._between_waits()]
            return np.concatenate([np.zeros(0, np.int64), *sound])
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

    def lasts_s(self) -> NDArray[np.float64]:
        """Seconds of each counted step, from its start to that of the next.

        Between two waits for devices they have one figure, the mean.
        """
        if not self.waits:
            return np.diff(self.starts)[self.counted()]
        means = [np.full(last - first, mean_s) for first, last, mean_s in self._between_waits()]
        return np.concatenate([np.zeros(0), *means])

    def _between_waits(self) -> list[tuple[int, int, float]]:
        """First step, the one behind the last, and mean seconds, where nothing else took time."""
        found = []
        for (first, began), (last, ended) in itertools.pairwise(self.waits):
            # A wait lies behind its last step, so what the script does then is of the next ones.
            before = np.array([began, *self.ends[first : last - 1]])
            pause_s = float(np.max(np.array(self.starts[first:last]) - before))
            found.append((first, last, (ended - began) / (last - first), pause_s))
        if not found:
            return []
        usual_s = float(np.median([mean_s for _, _, mean_s, _ in found]))
        return [
            (first, last, mean_s)
            for first, last, mean_s, pause_s in found
            if pause_s <= _PAUSE * usual_s
            and not any(first <= prepared < last for prepared in self.first_calls)
        ]


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
        powers = 1 << number.bit_length()
        later = (WARMUP, self._least, _in_all(_STEPS), steps.next_wait, powers)
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
