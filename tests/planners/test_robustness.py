"""A placement is made less sensitive to errors of the costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hplacer_optimizer as hp
from hplacer_optimizer.planners import PLANNERS, Budget
from hplacer_optimizer.planners.robustness import TOLERANCE, MeanStep, make_robust
from hplacer_optimizer.problem.cost_errors import (
    MEASURED_COSTS,
    CostErrors,
    drawn_steps_ns,
    typical_errors,
)
from testbed.documents import problem_from_dict
from testbed.large_problem import large_problem
from testbed.planted_problems import machine
from testbed.random_problems import placed_problems

OP_ERRORS = CostErrors(device_kind=0, op_type=0, op=0.2, link=0, turn=0, start=0)


def fast_and_slow(fast_ns: int) -> hp.Problem:
    """Two ops that are not joined; they take so long on d0, and 990 us on each of d1 and d2."""
    document = machine(3, 100, is_linked=False) | {"device_kinds": ["fast", "slow"]}
    for device, kind in zip(document["devices"], ("fast", "slow", "slow"), strict=True):
        device["kind"] = kind
    op = {"type": "T", "cost_ns": {"fast": fast_ns, "slow": 990_000}, "persistent_bytes": 10}
    ops = [{"name": f"op{i}", **op} for i in range(2)]
    return problem_from_dict(document | {"ops": ops, "edges": []})


ONE_AFTER_THE_OTHER = np.array([0, 0], np.int32)
SIDE_BY_SIDE = np.array([1, 2], np.int32)
BOTH = [SIDE_BY_SIDE, ONE_AFTER_THE_OTHER]


def mean_step_of(problem: hp.Problem, errors: CostErrors = OP_ERRORS) -> MeanStep:
    mean_step = MeanStep.over_draws(problem, BOTH, errors=errors)
    assert mean_step is not None
    return mean_step


def test_two_that_have_to_end_together_lose_against_a_sum() -> None:
    """The longer one of two is longer than their mean; errors of a sum cancel out."""
    problem = fast_and_slow(499_000)
    assert hp.simulate(problem, SIDE_BY_SIDE).makespan_ns == 990_000
    assert hp.simulate(problem, ONE_AFTER_THE_OTHER).makespan_ns == 998_000
    mean_step = mean_step_of(problem)
    assert mean_step.best.tolist() == SIDE_BY_SIDE.tolist()
    # The mean of the larger one of two normal values is 0.56 standard deviations above theirs.
    assert mean_step.of(SIDE_BY_SIDE) == pytest.approx(990_000 * (1 + 0.56 * 0.2), rel=0.05)
    assert mean_step.of(ONE_AFTER_THE_OTHER) == pytest.approx(1_000_000, rel=0.05)
    robust = make_robust(problem, BOTH, mean_step)
    assert robust.tolist() != SIDE_BY_SIDE.tolist()
    assert mean_step.of(robust) <= mean_step.of(ONE_AFTER_THE_OTHER)


def test_without_errors_the_best_stays_the_best() -> None:
    problem = fast_and_slow(499_000)
    mean_step = mean_step_of(problem, OP_ERRORS.times(0))
    assert mean_step.of(SIDE_BY_SIDE) == 990_000
    assert make_robust(problem, BOTH, mean_step).tolist() in ([1, 2], [2, 1])


def test_what_is_beyond_the_tolerance_or_does_not_fit_has_an_infinite_mean() -> None:
    within, beyond = (990_000 * (1 + TOLERANCE) / 2 + ns for ns in (-1, 1))
    assert math.isfinite(mean_step_of(fast_and_slow(int(within))).of(ONE_AFTER_THE_OTHER))
    assert math.isinf(mean_step_of(fast_and_slow(int(beyond))).of(ONE_AFTER_THE_OTHER))
    problem = fast_and_slow(499_000)
    tight = problem.replace(device_memory_bytes=np.array([19, 100, 100]))
    assert math.isinf(mean_step_of(tight).of(ONE_AFTER_THE_OTHER))
    tighter = problem.replace(device_memory_bytes=np.array([19, 9, 100]))
    assert MeanStep.over_draws(tighter, BOTH) is None


def test_there_is_no_time_for_large_problems() -> None:
    for num_ops, is_small in ((6_000, True), (7_000, False)):
        problem = large_problem(num_ops, 2)
        on_gpu = np.ones(num_ops, np.int32)
        assert (MeanStep.over_draws(problem, [on_gpu]) is not None) is is_small


@settings(max_examples=15, deadline=None)
@given(placed_problems(), st.integers(0, 2**32), st.data())
def test_a_robust_placement_fits_and_is_hardly_longer(
    case: tuple[dict[str, Any], list[int]], seed: int, data: st.DataObject
) -> None:
    problem = problem_from_dict(case[0])
    device = st.integers(0, problem.num_devices - 1)
    placement = st.lists(device, min_size=problem.num_ops, max_size=problem.num_ops)
    rows = [case[1], *data.draw(st.lists(placement, max_size=5))]
    candidates = [np.array(row, np.int32) for row in rows]
    traces = [hp.simulate(problem, row) for row in rows]
    steps_ns = [trace.makespan_ns for trace in traces if trace.feasible]
    mean_step = MeanStep.over_draws(problem, candidates, seed=seed)
    if mean_step is None:
        assert not steps_ns or not problem.num_ops
        return
    robust = make_robust(problem, candidates, mean_step, seed=seed)
    trace = hp.simulate(problem, robust)
    assert trace.feasible
    assert trace.makespan_ns <= min(steps_ns) * (1 + TOLERANCE)
    assert mean_step.of(robust) <= mean_step.of(mean_step.best)
    again = MeanStep.over_draws(problem, candidates, seed=seed)
    assert again is not None
    assert make_robust(problem, candidates, again, seed=seed).tolist() == robust.tolist()
    unmoved = make_robust(problem, candidates, mean_step, should_stop=lambda: True)
    assert unmoved.tolist() in rows


def layered(seed: int, num_ops: int = 150) -> hp.Problem:
    """A random layered graph of ops of eight types on a CPU and two to four GPUs."""
    random = np.random.default_rng(seed)
    problem = large_problem(num_ops, 3 + seed % 3, width=20)
    cost_ns = random.lognormal(10, 1, num_ops).astype(np.int64)
    return problem.replace(
        op_types=[f"T{kind}" for kind in random.integers(0, 8, num_ops)],
        cost_ns=np.stack([10 * cost_ns, cost_ns], axis=1),
        output_bytes=random.integers(0, 60_000, num_ops),
        link_latency_ns=np.full(len(problem.link_src), 5_000),
    )


def robust_from(problem: hp.Problem, found: NDArray[np.int32], times: float) -> Any:
    """The placement after the same number of moves, for errors that are so many times as large."""
    errors = MEASURED_COSTS.times(times)
    mean_step = MeanStep.over_draws(problem, [found], errors=errors)
    assert mean_step is not None
    return make_robust(problem, [found], mean_step)


@pytest.mark.slow
def test_the_mean_step_is_shorter_over_other_draws_and_larger_errors() -> None:
    """Also than after as many moves that count by the costs as they stand."""
    ratios: dict[str, list[list[float]]] = {"measured": [], "estimated": []}
    for seed in range(6):
        problem = layered(seed)
        found = PLANNERS["local_search"].plan(problem, budget=Budget(steps=40_000)).placement
        placements = np.stack([found, *(robust_from(problem, found, times) for times in (0, 1))])
        for source, of_source in ratios.items():
            fresh_ns = drawn_steps_ns(
                problem, placements, typical_errors(source), draws=100, seed=99
            ).mean(axis=0)
            of_source.append([fresh_ns[2] / fresh_ns[0], fresh_ns[2] / fresh_ns[1]])
    for of_source in ratios.values():
        to_found, to_moved = np.mean(of_source, axis=0)
        assert to_found < 0.98
        assert to_moved < 0.99
        assert np.max(of_source, axis=0)[0] < 1.05
