"""Problems with other costs that are as likely, and how the step varies over them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hplacer_optimizer as hp
from hplacer_optimizer.errors import ProblemError
from hplacer_optimizer.problem.cost_errors import (
    ESTIMATED_COSTS,
    MEASURED_COSTS,
    CostErrors,
    draw_problems,
    drawn_steps_ns,
    number_of_draws,
    step_spread_ns,
    typical_errors,
)
from hplacer_optimizer.problem.prediction_error import prediction_error
from testbed.documents import problem_from_dict, problem_to_dict
from testbed.large_problem import large_problem
from testbed.planted_problems import chains, machine
from testbed.random_problems import placed_problems

NONE = MEASURED_COSTS.times(0)
COSTS = {
    "ops": ["cost_ns"],
    "devices": ["start_ns", "turn_ns", "cold_ns"],
    "links": [
        *("latency_ns", "bytes_per_s", "send_ns", "send_bytes_per_s"),
        *("receive_ns", "receive_bytes_per_s"),
    ],
}


def only(**errors: float) -> CostErrors:
    return CostErrors(**{**vars(NONE), **errors})


def without_costs(problem: hp.Problem) -> dict[str, Any]:
    document = problem_to_dict(problem)
    for items, keys in COSTS.items():
        for item in document[items]:
            for key in keys:
                item.pop(key, None)
    return document


def is_costly(problem: hp.Problem) -> list[bool]:
    """Of every figure whether it is above zero."""
    names = [f"{items[:-1]}_{key}" for items in ("links", "devices") for key in COSTS[items]]
    arrays = [problem.cost_ns, *(getattr(problem, name) for name in names)]
    return [bool(figure > 0) for array in arrays for figure in array.ravel()]


@settings(max_examples=60, deadline=None)
@given(placed_problems(), st.integers(0, 2**32))
def test_a_draw_changes_costs_and_nothing_else(
    case: tuple[dict[str, Any], list[int]], seed: int
) -> None:
    problem = problem_from_dict(case[0])
    for drawn in draw_problems(problem, ESTIMATED_COSTS, draws=3, seed=seed):
        assert without_costs(drawn) == without_costs(problem)
        assert is_costly(drawn) == is_costly(problem)
        assert np.array_equal(drawn.cost_ns < 0, problem.cost_ns < 0)


@settings(max_examples=60, deadline=None)
@given(placed_problems(), st.integers(0, 2**32))
def test_without_errors_every_draw_is_the_problem(
    case: tuple[dict[str, Any], list[int]], seed: int
) -> None:
    problem, placement = problem_from_dict(case[0]), np.array(case[1], np.int32)
    for drawn in draw_problems(problem, NONE, draws=2, seed=seed):
        assert problem_to_dict(drawn) == problem_to_dict(problem)
    steady = problem.replace(device_launch_ns=None)  # draws differ in the order of launches
    trace = hp.simulate(steady, placement)
    step_ns = trace.makespan_ns
    assert step_ns is not None or not trace.feasible
    spread = (step_ns, step_ns) if trace.feasible else None
    assert step_spread_ns(steady, placement, NONE, seed=seed) == spread


@settings(max_examples=30, deadline=None)
@given(placed_problems(), st.integers(0, 2**32), st.integers(1, 4))
def test_a_draw_depends_on_the_problem_and_the_seed_alone(
    case: tuple[dict[str, Any], list[int]], seed: int, draws: int
) -> None:
    problem = problem_from_dict(case[0])

    def drawn(count: int) -> list[dict[str, Any]]:
        found = draw_problems(problem, ESTIMATED_COSTS, draws=count, seed=seed)
        return [problem_to_dict(other) for other in found]

    assert drawn(draws) == drawn(5)[:draws]


def test_ops_of_one_type_and_links_of_one_kind_share_their_errors() -> None:
    problem = large_problem(1_000, 4)
    types = ["MatMul", "Conv2D"] * 500
    costs = np.full_like(problem.cost_ns, 10**9)
    problem = problem.replace(op_types=types, cost_ns=costs)
    (drawn,) = draw_problems(problem, only(op_type=0.3), draws=1, seed=0)
    assert len(np.unique(drawn.cost_ns)) == 4  # two types on two kinds
    assert np.array_equal(drawn.cost_ns[0::2], np.tile(drawn.cost_ns[0], (500, 1)))
    (drawn,) = draw_problems(problem, only(device_kind=0.3), draws=1, seed=0)
    assert len(np.unique(drawn.cost_ns, axis=0)) == 1
    (drawn,) = draw_problems(problem, only(op=0.3), draws=1, seed=0)
    assert len(np.unique(drawn.cost_ns)) > 1_990
    (drawn,) = draw_problems(problem, only(link=0.3), draws=1, seed=0)
    assert np.array_equal(drawn.cost_ns, costs)
    src, dst = (problem.device_kind[end] for end in (problem.link_src, problem.link_dst))
    for a, b in ((0, 1), (1, 0), (1, 1)):
        assert len(np.unique(drawn.link_bytes_per_s[(src == a) & (dst == b)])) == 1
    assert len(np.unique(drawn.link_bytes_per_s)) == len(np.unique(drawn.link_latency_ns)) == 3


def test_factors_have_the_mean_1_and_the_stated_error() -> None:
    problem = large_problem(20_000, 4)
    costs = np.full_like(problem.cost_ns, 10**9)
    problem = problem.replace(cost_ns=costs)
    (drawn,) = draw_problems(problem, only(op=0.5), draws=1, seed=0)
    factors = drawn.cost_ns / 1e9
    assert factors.mean() == pytest.approx(1, abs=0.02)
    assert np.log(factors).std() == pytest.approx(0.5, abs=0.01)


# ---- the step ----


def test_how_a_step_of_one_op_varies() -> None:
    op = {"name": "op", "type": "T", "cost_ns": {"gpu": 10**6}, "output_bytes": []}
    problem = problem_from_dict(machine(1) | {"ops": [op], "edges": []})
    steps_ns = drawn_steps_ns(
        problem, np.zeros((1, 1), np.int32), only(op=0.2), draws=32, seed=0
    ).ravel()
    spread = step_spread_ns(problem, np.zeros(1, np.int32), only(op=0.2))
    assert spread is not None
    assert spread == tuple(np.rint(np.percentile(steps_ns, [5, 95])).astype(int))
    # Of a normal distribution, 90% lie within 1.645 standard deviations.
    width = math.log(spread[1] / spread[0])
    assert width == pytest.approx(2 * 1.645 * 0.2, rel=0.3)


def test_all_placements_meet_the_same_draws() -> None:
    problem = problem_from_dict(chains(3, 20, cost_ns=1_000, size_bytes=500)[0])
    rng = np.random.default_rng(0)
    placements = rng.integers(0, 3, (4, problem.num_ops)).astype(np.int32)
    together = drawn_steps_ns(problem, placements, MEASURED_COSTS, draws=5, seed=3)
    for column, placement in zip(together.T, placements, strict=True):
        alone = drawn_steps_ns(problem, placement[None], MEASURED_COSTS, draws=5, seed=3)
        assert np.array_equal(column, alone.ravel())


def test_a_step_that_does_not_fit_or_is_too_large_has_no_spread() -> None:
    problem = problem_from_dict(chains(2, 4, cost_ns=100, size_bytes=50)[0])
    placement = np.zeros(problem.num_ops, np.int32)
    assert step_spread_ns(problem, placement, MEASURED_COSTS) is not None
    tight = problem.replace(device_memory_bytes=np.zeros(2, np.int64))
    assert step_spread_ns(tight, placement, MEASURED_COSTS) is None
    assert number_of_draws(large_problem(70_000)) == 8
    assert number_of_draws(large_problem(100)) == 32
    large = large_problem(80_000)
    on_gpu = np.ones(large.num_ops, np.int32)
    assert step_spread_ns(large, on_gpu, MEASURED_COSTS) is None


def test_times_beyond_64_bits_have_no_spread() -> None:
    costs = [{"name": f"op{i}", "type": "T", "cost_ns": {"gpu": 2**61}} for i in range(3)]
    problem = problem_from_dict(machine(1) | {"ops": costs, "edges": []})
    placement = np.zeros(3, np.int32)
    assert step_spread_ns(problem, placement, MEASURED_COSTS.times(5)) is None
    with pytest.raises(ProblemError, match="sum of all times could exceed"):
        list(draw_problems(problem, MEASURED_COSTS.times(5), draws=32, seed=0))


# ---- the constants ----


def test_estimated_costs_are_more_wrong_as_the_guard_has_it() -> None:
    times = math.log1p(prediction_error("analytic")) / math.log1p(prediction_error("measured"))
    assert MEASURED_COSTS.times(round(times, 1)) == ESTIMATED_COSTS
    assert typical_errors("measured") == MEASURED_COSTS
    assert typical_errors("analytic") == typical_errors("given") == ESTIMATED_COSTS
