"""TensorFlow's own placement beside a plan, and the guard that decides between the two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hplacer_optimizer as hp
from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.options import EVERY_PLAN
from hplacer_optimizer.plans.baseline import Baseline, why_left_alone
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.problem.files import load_problem_file
from hplacer_optimizer.problem.prediction_error import prediction_error
from tests.plans.test_plan import make_plan

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"
MS = 1_000_000

times = st.integers(1, 10**12)
gains = st.floats(0.0, 100.0)


def baseline_of(step_time_ns: int | None, *, feasible: bool = True) -> Baseline:
    return Baseline(step_time_ns=step_time_ns, feasible=feasible, peak_bytes=[1, 2])


def left_alone(
    step_ns: int | None,
    baseline: Baseline | None,
    *,
    feasible: bool = True,
    error: float = 0.5,
    min_gain: float | None = None,
) -> str:
    return why_left_alone(
        step_ns=step_ns, feasible=feasible, baseline=baseline, error=error, min_gain=min_gain
    )


# ---- the guard ----


@pytest.mark.parametrize(
    ("step_ns", "baseline", "options", "reason"),
    [
        (2 * MS, baseline_of(4 * MS), {}, ""),
        (2 * MS, baseline_of(3 * MS), {}, "2 ms instead of 3 ms is within the error of the"),
        (3 * MS, baseline_of(3 * MS), {}, "nothing faster than TensorFlow's placement was found"),
        (4 * MS, baseline_of(3 * MS), {"min_gain": 0.0}, "found: 4 ms instead of 3 ms"),
        (2 * MS, baseline_of(3 * MS), {"min_gain": 0.4}, ""),
        (2 * MS, baseline_of(3 * MS), {"min_gain": 0.5}, "option min_gain asks for (0.5)"),
        (4 * MS, baseline_of(3 * MS), {"min_gain": -0.5}, ""),
        (4 * MS, baseline_of(3 * MS), {"min_gain": -0.25}, "4 ms instead of 3 ms is less than"),
        (9 * MS, None, {}, "TensorFlow's own placement is not known"),
        (9 * MS, baseline_of(3 * MS, feasible=False), {}, ""),
        (9 * MS, baseline_of(None), {}, ""),
        (2 * MS, baseline_of(3 * MS), {"feasible": False}, "the plan may not fit into memory"),
        (None, baseline_of(3 * MS), {}, "TensorFlow's placement does (3 ms)"),
        (9 * MS, baseline_of(3 * MS, feasible=False), {"feasible": False}, ""),
        (9 * MS, None, {"min_gain": EVERY_PLAN}, ""),
        (9 * MS, baseline_of(3 * MS), {"min_gain": EVERY_PLAN, "feasible": False}, ""),
    ],
)
def test_why_a_plan_is_left_alone(
    step_ns: int | None, baseline: Baseline | None, options: dict[str, Any], reason: str
) -> None:
    found = left_alone(step_ns, baseline, **options)
    assert reason in found
    assert bool(found) == bool(reason)


@given(times, times, gains)
def test_it_takes_effect_where_the_gain_exceeds_the_error(
    step_ns: int, own_ns: int, error: float
) -> None:
    takes_effect = not left_alone(step_ns, baseline_of(own_ns), error=error)
    assert takes_effect == (own_ns / step_ns - 1 > error)
    asked = not left_alone(step_ns, baseline_of(own_ns), error=0.0, min_gain=error)
    assert asked == takes_effect


@given(times, times, times, st.none() | st.floats(-1, 100))
def test_a_faster_plan_is_not_left_alone_where_a_slower_one_is_not(
    a_ns: int, b_ns: int, own_ns: int, min_gain: float | None
) -> None:
    fast, slow = sorted((a_ns, b_ns))
    if not left_alone(slow, baseline_of(own_ns), min_gain=min_gain):
        assert not left_alone(fast, baseline_of(own_ns), min_gain=min_gain)


@given(times, times, st.floats(-1, 100), st.floats(-1, 100))
def test_who_asks_for_more_gets_no_more_plans(
    step_ns: int, own_ns: int, a: float, b: float
) -> None:
    less, more = sorted((a, b))
    if left_alone(step_ns, baseline_of(own_ns), min_gain=less):
        assert left_alone(step_ns, baseline_of(own_ns), min_gain=more)


def test_measured_costs_predict_better_than_estimated_ones() -> None:
    assert 0 < prediction_error("measured") < prediction_error("analytic")
    assert prediction_error("measured, analytic") == prediction_error("analytic")


# ---- what is simulated of it ----


def test_the_baseline_of_a_problem() -> None:
    problem = load_problem_file(GOLDEN)
    assert Baseline.of(problem) is None
    on_cpu = np.zeros(problem.num_ops, np.int32)
    trace = hp.simulate(problem, on_cpu)
    expected = Baseline(
        step_time_ns=trace.makespan_ns, feasible=True, peak_bytes=trace.peak_bytes.tolist()
    )
    problem = problem.replace(default_device=on_cpu)
    assert Baseline.of(problem) == expected
    memory = problem.device_memory_bytes.copy()
    memory[0] = expected.peak_bytes[0] - 1
    small = Baseline.of(problem.replace(device_memory_bytes=memory))
    assert small is not None
    assert (small.step_time_ns, small.feasible) == (expected.step_time_ns, False)
    no_kernel = problem.cost_ns.copy()
    no_kernel[3, 0] = -1
    assert Baseline.of(problem.replace(cost_ns=no_kernel)) == Baseline(
        step_time_ns=None, feasible=False, peak_bytes=[0, 0, 0]
    )


def test_tensorflow_may_use_devices_that_a_plan_may_not() -> None:
    problem = load_problem_file(GOLDEN)
    only_gpus = {
        "allowed_ptr": 2 * np.arange(problem.num_ops + 1, dtype=np.int32),
        "allowed_device": np.tile(np.array([1, 2], np.int32), problem.num_ops),
        "allowed_given": np.ones(problem.num_ops, np.bool_),
    }
    on_cpu = np.zeros(problem.num_ops, np.int32)
    problem = problem.replace(default_device=on_cpu, **only_gpus)
    assert not hp.simulate(problem, on_cpu).feasible
    baseline = Baseline.of(problem)
    assert baseline is not None
    assert baseline.feasible


@pytest.mark.parametrize(
    ("step_ns", "feasible", "baseline", "speedup", "text"),
    [
        (2 * MS, True, baseline_of(5 * MS), 2.5, "2.5x TensorFlow's placement (5 ms)"),
        (4 * MS, True, baseline_of(5 * MS), 1.25, "1.25x TensorFlow's placement (5 ms)"),
        (5 * MS, True, baseline_of(4 * MS), 0.8, "0.80x TensorFlow's placement (4 ms)"),
        (2 * MS, False, baseline_of(5 * MS), None, ""),
        (None, True, baseline_of(5 * MS), None, ""),
        (
            *(2 * MS, True, baseline_of(5 * MS, feasible=False)),
            *(None, "TensorFlow's placement does not fit into memory"),
        ),
    ],
)
def test_a_step_beside_the_baseline(
    step_ns: int | None, feasible: bool, baseline: Baseline, speedup: float | None, text: str
) -> None:
    assert baseline.speedup_of(step_ns, feasible) == speedup
    assert baseline.beside(step_ns, feasible) == text


# ---- in plans ----


def measured_plan(step_ns: int, own_ns: int | None, **changes: Any) -> Plan:
    measured = {"step_ns": step_ns, "baseline_ns": own_ns}
    return make_plan(planner_options={"measured": measured}, **changes)


def test_a_plan_compares_simulated_with_simulated_and_measured_with_measured() -> None:
    baseline = baseline_of(82_400_000)
    simulated = make_plan(baseline=baseline)
    assert (simulated.step_ns, simulated.baseline_ns) == (41_200_000, 82_400_000)
    assert simulated.speedup == 2.0
    measured = measured_plan(20, 30, baseline=baseline)
    assert (measured.step_ns, measured.baseline_ns, measured.speedup) == (20, 30, 1.5)
    for unknown in (
        make_plan(),
        make_plan(baseline=baseline_of(9, feasible=False)),
        make_plan(baseline=baseline, feasible=False),
        make_plan(baseline=baseline, step_time_ns=None),
        measured_plan(20, None, baseline=baseline),
    ):
        assert unknown.speedup is None


def test_the_error_of_a_plans_prediction_decides() -> None:
    twice = make_plan(baseline=baseline_of(82_400_000), prediction_error=0.9)
    assert twice.why_left_alone() == ""
    assert (
        "is within the error"
        in make_plan(baseline=baseline_of(82_400_000), prediction_error=1.1).why_left_alone()
    )
    assert "(1.5)" in twice.why_left_alone(1.5)
    own_ns = round(41_200_000 * (1.01 + prediction_error("measured")))
    for source, decides in (("measured", ""), ("analytic", "is within the error")):
        reason = make_plan(cost_source=source, baseline=baseline_of(own_ns)).why_left_alone()
        assert decides in reason
        assert bool(reason) == bool(decides)


def test_what_was_measured_has_no_error_of_a_prediction() -> None:
    slow = baseline_of(1)  # as it is simulated
    assert measured_plan(20, 21, baseline=slow).why_left_alone() == ""
    assert "nothing faster" in measured_plan(20, 20, baseline=slow).why_left_alone()
    assert "(0.1)" in measured_plan(20, 21, baseline=slow).why_left_alone(0.1)
    assert "nothing faster" in measured_plan(20, None, baseline=slow).why_left_alone()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (7, "plan.baseline must be an object"),
        ({"feasible": True, "peak_bytes": []}, "plan.baseline"),
        ({"step_time_ns": -1, "feasible": True, "peak_bytes": []}, "plan.baseline"),
        ({"step_time_ns": 1, "feasible": 1, "peak_bytes": []}, "plan.baseline"),
        ({"step_time_ns": 1, "feasible": True, "peak_bytes": [], "more": 0}, "plan.baseline"),
    ],
)
def test_a_malformed_baseline_is_refused(value: object, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        make_plan(baseline=value)
