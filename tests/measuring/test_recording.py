"""When enough training steps are known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hplacer_optimizer.measuring.training_steps.recording import LEAST, WARMUP, Recorder, Steps


def add(recorder: Recorder, steps: Steps, start: float, end: float) -> bool:
    """Notes a step, the first one as a first call; True: enough is known."""
    if not steps.starts:
        steps.first_calls.append(0)
    return steps.add(start, end) and recorder.look(steps)


def record(wanted: int | None, lengths_s: Sequence[float]) -> int | None:
    """After how many steps it was enough."""
    recorder, now = Recorder(wanted), 0.0
    steps = recorder.steps("key", "function f")
    for number, length in enumerate(lengths_s, start=1):
        if add(recorder, steps, now, now + length):
            return number
        now += length
    return None


def test_enough_steps_are_those_that_were_asked_for() -> None:
    assert record(20, [0.1] * 100) == WARMUP + 1 + 20
    assert record(1, [0.1] * 100) == WARMUP + 1 + LEAST


def test_without_a_number_steps_take_two_seconds_or_ten() -> None:
    assert record(None, [0.1] * 100) == WARMUP + 1 + 30
    assert record(None, [0.01] * 1000) == pytest.approx(WARMUP + 1 + 200, abs=1)
    assert record(None, [1.0] * 100) == WARMUP + 1 + 10
    assert record(None, [3.0] * 100) == WARMUP + 1 + LEAST
    assert record(None, [0.1] * 8) is None


def test_of_two_functions_the_longer_one_counts() -> None:
    recorder = Recorder(10)
    long, short = recorder.steps("a", "a"), recorder.steps("b", "b")
    enough = []
    for number in range(50):
        at = float(number)
        enough.append(add(recorder, short, at, at + 0.1))
        enough.append(add(recorder, long, at + 0.1, at + 0.9))
        if enough[-1]:
            break
    assert recorder.main is long
    assert long.busy_s == pytest.approx(0.8 * (len(long.starts) - 1))
    assert enough.index(True) == 2 * (WARMUP + 1 + 10) - 1
