"""Alternatives in turn, with times that are made up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from hplacer_optimizer.measuring import turns
from hplacer_optimizer.measuring.turns import Turns, interval, is_decided, is_narrow, take_turns

NEVER_S = 1e9


def noisy(seconds: dict[str, float], noise: float, calls: list[str], seed: int = 0):  # type: ignore[no-untyped-def]
    random = np.random.default_rng(seed)

    def measure(name: str, number: int) -> Sequence[float]:
        calls.append(f"{name}{number}")
        return [seconds[name] * math.exp(noise * random.standard_normal())]

    return measure


def test_turns_alternate_and_the_ratio_is_known_in_the_end() -> None:
    calls: list[str] = []
    measure = noisy({"alone": 0.2, "plan": 0.1}, 0.01, calls)
    found = take_turns(["alone", "plan"], measure, limit_s=NEVER_S)
    assert calls[:6] == ["alone1", "plan1", "plan2", "alone2", "alone3", "plan3"]
    low, high = found["plan"].interval
    assert low < 2.0 < high < low * 1.031
    assert low <= found["plan"].speedup <= high
    assert found["alone"].interval == (1.0, 1.0)
    assert found["alone"].step_s == pytest.approx(0.2, rel=0.02)


def test_what_is_far_from_one_is_decided_early_and_what_is_not_late() -> None:
    calls: list[str] = []
    measure = noisy({"alone": 0.2, "plan": 0.1}, 0.03, calls)
    take_turns(["alone", "plan"], measure, limit_s=NEVER_S, is_known=is_decided)
    assert len(calls) == 6
    calls.clear()
    measure = noisy({"alone": 0.1, "plan": 0.1}, 0.05, calls)
    found = take_turns(["alone", "plan"], measure, limit_s=NEVER_S, is_known=is_decided)
    low, high = found["plan"].interval
    assert low < 1.0 < high
    assert len(calls) > 20


def test_after_the_limit_two_turns_are_taken() -> None:
    calls: list[str] = []
    measure = noisy({"alone": 0.1, "plan": 0.1}, 0.5, calls)
    found = take_turns(["alone", "plan"], measure, limit_s=0.0)
    assert len(calls) == 4
    low, high = found["plan"].interval
    assert high > low
    calls.clear()
    take_turns(["alone", "plan"], measure, limit_s=0.0, least=3)
    assert len(calls) == 6


def test_intervals_hold_what_they_promise() -> None:
    random = np.random.default_rng(1)
    draws = random.standard_normal((4000, 4))
    held = [low < 0.0 < high for low, high in map(interval, draws.tolist())]
    assert np.mean(held) == pytest.approx(0.95, abs=0.012)


def test_quantiles_are_those_of_student() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 2, 5, 29, 30, 31, 40, 100, 10_000):
        expected = float(stats.t.ppf(0.975, freedom))
        assert turns.t_quantile(freedom) == pytest.approx(expected, rel=1e-4)


def test_what_is_known() -> None:
    assert not is_decided([1.0, 1.0])
    assert is_decided([1.0, 1.0, 1.01])
    assert is_decided([-1.0, -1.0, -1.01])
    assert not is_decided([0.0, 0.01, 0.0])
    assert is_decided([0.0, 0.001] * 3)
    assert is_narrow([0.0, 0.001] * 3)
    assert not is_narrow([0.0, 0.1] * 3)


def test_spread_is_that_of_the_middle_half() -> None:
    assert Turns(times_s=[1.0, 2.0, 3.0, 4.0, 100.0]).spread_s == 2.0
