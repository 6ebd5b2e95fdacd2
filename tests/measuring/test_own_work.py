"""What a script does between its steps, where steps are timed in virtual time."""

from __future__ import annotations

import threading
import time

import pytest

from hplacer_optimizer import emulation
from hplacer_optimizer.measuring.training_steps import own_work
from hplacer_optimizer.measuring.training_steps.own_work import OwnWork
from hplacer_optimizer.measuring.training_steps.recording import EMULATED_STEPS, WARMUP
from hplacer_optimizer.measuring.training_steps.step_observer import new_recorder


class Clocks:
    """Stands for the virtual clock, and for those of the module `time`."""

    def __init__(self) -> None:
        self.virtual = self.real = self.processor = 0.0

    def perf_counter(self) -> float:
        return self.real

    def thread_time(self) -> float:
        return self.processor

    def advance(self, virtual: float, real: float, processor: float) -> None:
        self.virtual += virtual
        self.real += real
        self.processor += processor


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    found = Clocks()
    monkeypatch.setattr(own_work, "time", found)
    return found


def step(work: OwnWork, clocks: Clocks) -> tuple[float, float]:
    begin = work.begins()
    clocks.advance(2.0, 50.0, 0.5)
    return begin, work.ended()


def test_a_gap_counts_in_full_if_virtual_time_stood_still(clocks: Clocks) -> None:
    work = OwnWork(lambda: clocks.virtual)
    assert step(work, clocks) == (0.0, 2.0)
    assert work.per_step_s(1) is None
    clocks.advance(0.0, 3.0, 1.0)  # reads a file
    assert step(work, clocks) == (2.0, 4.0)
    assert work.per_step_s(2) == 3.0


def test_of_a_gap_that_waits_for_a_device_the_processor_time_counts(clocks: Clocks) -> None:
    work = OwnWork(lambda: clocks.virtual)
    for _ in range(3):
        step(work, clocks)
        clocks.advance(7.0, 40.0, 1.0)
    assert work.per_step_s(3) == 1.0


def test_a_step_of_several_calls_has_several_gaps(clocks: Clocks) -> None:
    work = OwnWork(lambda: clocks.virtual)
    for _ in range(7):
        step(work, clocks)
        clocks.advance(0.0, 3.0, 1.0)
    assert work.per_step_s(3) == 6.0
    assert work.per_step_s(0) is None


def test_each_thread_has_its_own_gaps() -> None:
    work = OwnWork(time.perf_counter)
    work.ended()
    thread = threading.Thread(target=work.begins)
    thread.start()
    thread.join()
    assert work.per_step_s(1) is None


def test_a_few_virtual_steps_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(wanted: int | None) -> int:
        """Steps until enough is known, each of a millisecond."""
        recorder = new_recorder(wanted)
        steps = recorder.steps("key", "function train_step")
        for number in range(20_000):
            if steps.add(number / 1e3, number / 1e3 + 1e-4) and recorder.look(steps):
                return number + 1
        raise AssertionError

    assert looked(None) > 2000
    monkeypatch.setattr(emulation, "is_on", lambda: True)
    assert looked(None) == EMULATED_STEPS + WARMUP + 1
    assert looked(7) == 7 + WARMUP + 1
