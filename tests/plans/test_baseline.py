"""TensorFlow's own placement beside a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.problem.problem_file import load_problem_file
from tests.plans.test_plan import make_plan
from tests.processes import ROOT

GOLDEN = ROOT / "tests" / "golden" / "two_towers.hplacer.json"
MS = 1_000_000


def baseline_of(step_time_ns: int | None, *, feasible: bool = True) -> Baseline:
    return Baseline(step_time_ns=step_time_ns, feasible=feasible, peak_bytes=[1, 2])


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
        (
            2 * MS,
            True,
            baseline_of(5 * MS),
            2.5,
            "2.5 times as fast as TensorFlow's placement (5 ms)",
        ),
        (
            4 * MS,
            True,
            baseline_of(5 * MS),
            1.25,
            "1.25 times as fast as TensorFlow's placement (5 ms)",
        ),
        (
            5 * MS,
            True,
            baseline_of(4 * MS),
            0.8,
            "0.80 times as fast as TensorFlow's placement (4 ms)",
        ),
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
