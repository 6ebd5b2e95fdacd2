"""By how much a gain that was predicted from estimates may be too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

import hplacer_optimizer as hp
from hplacer_optimizer.plans.making import Search, plan_problem
from hplacer_optimizer.problem.prediction_error import (
    ERROR_OF_LAUNCHES,
    FASTER,
    LATER,
    LEAST_GAIN,
    against_the_plan,
    launches_ahead,
    prediction_error,
    prediction_error_of,
)
from testbed.documents import problem_from_dict
from testbed.planted_problems import chains
from testbed.random_problems import placed_problems

MOST = prediction_error("analytic")


def beside_one_device(problem: hp.Problem) -> hp.Problem:
    return problem.replace(default_device=np.zeros(problem.num_ops, np.int32))


def two_chains(cost_ns: int) -> tuple[hp.Problem, NDArray[np.int32]]:
    """Chains of four ops and 1,000 bytes, which take 1,010 ns to send; and one on each device."""
    document, _ = chains(2, 4, cost_ns, 1000)
    apart = np.array([0] * 4 + [1] * 4 + [0], np.int32)
    return beside_one_device(problem_from_dict(document)), apart


def test_ops_are_faster_where_tensorflow_has_them_and_there_only() -> None:
    problem = hp.load_problem("example")  # a CPU and two GPUs
    default = np.array([0] + [1] * (problem.num_ops - 1), np.int32)
    problem = problem.replace(default_device=default)
    kind = problem.device_kind[default]
    changed = against_the_plan(problem)
    ops = np.arange(problem.num_ops)
    faster = np.maximum(problem.cost_ns[ops, kind] // FASTER, 1)
    assert (changed.cost_ns[ops, kind] == np.where(problem.cost_ns[ops, kind], faster, 0)).all()
    assert (changed.cost_ns[ops, 1 - kind] == problem.cost_ns[ops, 1 - kind]).all()
    assert (changed.link_latency_ns == problem.link_latency_ns).all()


def test_devices_that_tensorflow_does_not_use_begin_later() -> None:
    problem, _ = two_chains(100)
    problem = problem.replace(device_start_ns=np.array([5_000, 7_000]))
    assert against_the_plan(problem).device_start_ns.tolist() == [5_000, LATER * 7_000]


@pytest.mark.parametrize(("cost_ns", "pays"), [(1_000, False), (10_000, True), (100_000, True)])
def test_a_split_pays_if_messages_are_short_beside_what_may_be_over_estimated(
    cost_ns: int, pays: bool
) -> None:
    problem, apart = two_chains(cost_ns)
    default_ns = hp.simulate(problem, problem.default_device).makespan_ns
    plan, trace = plan_problem(problem, Search(planner="auto", budget=hp.Budget(steps=100)))
    assert trace.placement.tolist() in (apart.tolist(), (1 - apart).tolist())
    assert plan.prediction_error == prediction_error_of(problem, trace.placement, "analytic")
    assert default_ns > 1.5 * trace.makespan_ns  # all are predicted to pay
    assert (plan.why_left_alone() == "") == pays


def test_without_tensorflows_placement_nothing_is_known() -> None:
    problem, apart = two_chains(100)
    unknown = hp.load_problem("example")
    assert unknown.default_device is None
    assert prediction_error_of(unknown, np.zeros(unknown.num_ops, np.int32), "analytic") is None
    assert prediction_error_of(problem, problem.default_device, "analytic") == pytest.approx(
        LEAST_GAIN
    )
    assert (
        prediction_error_of(problem, apart, "analytic") == MOST
    )  # it loses, whatever was predicted


@pytest.mark.parametrize("cost_source", ["measured", "analytic"])
def test_launches_add_their_error_to_that_of_estimates(cost_source: str) -> None:
    problem, apart = two_chains(100)
    ahead = problem.replace(device_launch_ns=np.array([10, 10]))
    for placement, error in ((problem.default_device, LEAST_GAIN), (apart, MOST)):
        assert prediction_error_of(ahead, placement, cost_source) == pytest.approx(
            (1 + error) * (1 + ERROR_OF_LAUNCHES) - 1
        )


@pytest.mark.parametrize("launch_ns", [(10, 0), (10, 10)])
def test_copies_of_gpus_may_be_slower_than_estimated(launch_ns: tuple[int, int]) -> None:
    problem, apart = two_chains(20_000)
    assert (against_the_plan(problem).link_latency_ns == problem.link_latency_ns).all()
    ahead = problem.replace(device_launch_ns=np.array(launch_ns))
    error = prediction_error_of(problem, apart, "analytic")
    assert error < MOST
    slow = prediction_error_of(ahead, apart, "analytic")
    assert slow > 1.1 * ((1 + error) * (1 + ERROR_OF_LAUNCHES) - 1)  # by more than launches alone
    links = ahead.replace(link_latency_ns=ahead.link_latency_ns * 0)
    assert prediction_error_of(links, apart, "analytic") < slow


@given(placed_problems())
def test_a_gain_above_the_error_is_one_even_against_the_plan(
    placed: tuple[dict[str, Any], list[int]],
) -> None:
    problem = beside_one_device(problem_from_dict(placed[0]))
    placement_array = np.array(placed[1], np.int32)
    error = prediction_error_of(problem, placement_array, "analytic")
    if problem.default_device is None:  # it has no ops
        assert error is None
        return
    default_ns = hp.simulate(problem, problem.default_device).makespan_ns
    step_ns = hp.simulate(problem, placement_array).makespan_ns
    if error is None:
        assert default_ns is None or step_ns is None
        return
    assert default_ns is not None
    assert step_ns is not None
    most = prediction_error("analytic", launches_ahead=launches_ahead(problem))
    assert LEAST_GAIN - 1e-9 <= error <= most
    gain = default_ns / max(step_ns, 1) - 1
    if error < gain - 1e-9 and error < most:
        against = against_the_plan(problem)
        slow_default_ns = hp.simulate(against, problem.default_device).makespan_ns
        slow_step_ns = hp.simulate(against, placement_array).makespan_ns
        assert slow_default_ns is not None
        assert slow_step_ns is not None
        assert slow_default_ns >= (1 + LEAST_GAIN) * slow_step_ns * (1 - 1e-9)
