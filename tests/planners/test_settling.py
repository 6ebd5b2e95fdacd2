"""Units go home unless that makes the step longer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hplacer_optimizer as hp
from hplacer_optimizer._engine import LAUNCH_ORDERS
from hplacer_optimizer.planners.settling import TOLERANCE, settle
from testbed.documents import problem_from_dict
from testbed.planted_problems import machine
from testbed.random_problems import placed_problems


def two_chains(short_ns: int) -> dict[str, Any]:
    """Two ops that are not joined, of 100 ns and `short_ns`, and two that cost nothing."""
    ops = [
        {"name": f"op{i}", "type": "T", "cost_ns": {"gpu": cost}, "default_device": 0}
        for i, cost in enumerate((100_000, short_ns, 0, 0))
    ]
    return machine(2, 100) | {"ops": ops, "edges": []}


def test_what_pays_stays_away_and_all_else_goes_home() -> None:
    problem = problem_from_dict(two_chains(50_000))
    away, home = np.ones(4, np.int32), np.zeros(4, np.int32)
    # One of the two that cost something is enough.
    settled = settle(problem, np.array([0, 1, 1, 1], np.int32), home, seconds=60)
    assert settled.tolist() == [0, 1, 0, 0]
    assert settle(problem, away, home, seconds=60).sum() <= 1
    assert settle(problem, away, home, seconds=0).tolist() == away.tolist()


def test_who_calls_may_say_how_long_a_step_is() -> None:
    problem = problem_from_dict(two_chains(50_000))
    away, home = np.ones(4, np.int32), np.zeros(4, np.int32)

    def first_pays(placement: NDArray[np.int32]) -> float:
        return 100.0 + (placement[0] == 0)

    settled = settle(problem, away, home, seconds=60, step_ns=first_pays)
    assert settled.tolist() == [1, 0, 0, 0]
    assert settle(problem, away, home, seconds=60, step_ns=lambda _: math.inf) is away


@pytest.mark.parametrize(("launch_ns", "orders"), [(0, 1), (10, LAUNCH_ORDERS)])
def test_sizes_decide_how_much_is_tried_and_no_clock(launch_ns: int, orders: int) -> None:
    launches = np.full(2, launch_ns, np.int64)
    problem = problem_from_dict(two_chains(50_000)).replace(device_launch_ns=launches)
    tried: list[NDArray[np.int32]] = []

    def nothing_may_move(placement: NDArray[np.int32]) -> float:
        tried.append(placement)
        return float(placement.sum() < 4)

    for seconds in (1e-6, 2e-6):
        tried.clear()
        settle(
            problem,
            np.ones(4, np.int32),
            np.zeros(4, np.int32),
            seconds=seconds,
            step_ns=nothing_may_move,
        )
        assert len(tried) == 1 + int(seconds * 10_000_000) // (4 * orders)


def test_next_to_nothing_does_not_pay() -> None:
    problem = problem_from_dict(two_chains(400))
    settled = settle(problem, np.array([0, 1, 0, 1], np.int32), np.zeros(4, np.int32), seconds=60)
    assert settled.tolist() == [0, 0, 0, 0]


@settings(max_examples=60, deadline=None)
@given(placed_problems(), st.data())
def test_a_settled_step_is_hardly_longer(
    case: tuple[dict[str, Any], list[int]], data: st.DataObject
) -> None:
    document, placed = case
    problem = problem_from_dict(document)
    device = st.integers(0, problem.num_devices - 1)
    home = np.array([data.draw(device) for _ in placed], np.int32)
    placement = np.array(placed, np.int32)
    before = hp.simulate(problem, placement)
    settled = settle(problem, placement, home, seconds=60)
    after = hp.simulate(problem, settled)
    if not before.feasible:
        assert settled.tolist() == placed
    else:
        assert after.feasible
        assert after.makespan_ns <= before.makespan_ns * (1 + TOLERANCE)
