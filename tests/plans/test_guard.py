"""The guard: which plans take effect, and why TensorFlow's placement is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplacer_optimizer.machines import load_machine, machine_to_yaml
from hplacer_optimizer.options import EVERY_PLAN
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.guard import APPLY, KEEP, MEASURE, TRY, Decision, Here, decide
from hplacer_optimizer.plans.verdict import Hardware, Verdict
from hplacer_optimizer.problem.prediction_error import prediction_error
from tests.plans.test_baseline import baseline_of, measured_plan
from tests.plans.test_plan import make_plan

MS = 1_000_000
HERE = Hardware(host="worker-0", models=["cpu", "gpu"], cores=4)
EMULATED = Hardware(host="worker-0", models=["cpu"], emulated="8xa100")
FASTER, SLOWER, ALIKE = (1.4, 1.5, 1.6), (0.4, 0.5, 0.6), (0.9, 1.0, 1.1)

DOES_NOT_FIT = {"feasible": False}
TOO_LARGE = baseline_of(3 * MS, feasible=False)

times = st.integers(1, 10**12)
gains = st.floats(0.0, 100.0)


def verdict(of: tuple[float, float, float], hardware: Hardware = HERE) -> Verdict:
    low, speedup, high = of
    return Verdict(
        speedup=speedup,
        low=low,
        high=high,
        plan_ns=2 * MS,
        baseline_ns=3 * MS,
        turns=4,
        by="hplacer try train.py",
        measured="2026-05-01T12:00:00Z",
        **vars(hardware),
    )


def decided(
    step_ns: int | None,
    baseline: Baseline | None,
    *,
    min_gain: float | None = None,
    verifies: bool = False,
    tries: bool = False,
    hardware: Hardware = HERE,
    **plan: Any,
) -> Decision:
    """`step_ns`, `baseline` and `plan`: of the plan, whose prediction is off by up to a half."""
    judged = make_plan(
        **{"step_time_ns": step_ns, "baseline": baseline, "prediction_error": 0.5, **plan}
    )
    here = Here(hardware=hardware, min_gain=min_gain, verifies=verifies, tries=tries)
    return decide(judged, here)


def check(found: Decision, action: str, why: str) -> None:
    assert found.action == action
    assert why in found.why
    assert bool(found.why) == bool(why)


@pytest.mark.parametrize(
    ("step_ns", "baseline", "options", "why"),
    [
        (2 * MS, baseline_of(4 * MS), {}, ""),
        (2 * MS, baseline_of(3 * MS), {}, "2 ms instead of 3 ms is within the error of the"),
        (3 * MS, baseline_of(3 * MS), {}, "nothing faster than TensorFlow's placement was found"),
        (4 * MS, baseline_of(3 * MS), {"min_gain": 0.0}, "found: 4 ms instead of 3 ms"),
        (2 * MS, baseline_of(3 * MS), {"min_gain": 0.0}, ""),
        (2 * MS, baseline_of(3 * MS), {"min_gain": 0.4}, ""),
        (2 * MS, baseline_of(3 * MS), {"min_gain": 0.5}, "option min_gain asks for (0.5)"),
        (4 * MS, baseline_of(3 * MS), {"min_gain": -0.5}, ""),
        (4 * MS, baseline_of(3 * MS), {"min_gain": -0.25}, "4 ms instead of 3 ms is less than"),
        (9 * MS, baseline_of(3 * MS), {"min_gain": EVERY_PLAN}, ""),
        # TensorFlow's placement is not known.
        (9 * MS, None, {}, "TensorFlow's own placement is not known"),
        (9 * MS, None, {"min_gain": 0.0}, "TensorFlow's own placement is not known"),
        (9 * MS, None, DOES_NOT_FIT, "TensorFlow's own placement is not known"),
        (None, None, {}, "TensorFlow's own placement is not known"),
        (9 * MS, None, {"min_gain": EVERY_PLAN}, ""),
        # One of the two does not fit, or cannot run.
        (9 * MS, TOO_LARGE, {}, ""),
        (9 * MS, TOO_LARGE, {"min_gain": 0.5}, ""),
        (9 * MS, baseline_of(None), {}, ""),
        (2 * MS, baseline_of(3 * MS), DOES_NOT_FIT, "the plan may not fit into memory, and Tensor"),
        (None, baseline_of(3 * MS), {}, "TensorFlow's placement does (3 ms)"),
        (9 * MS, baseline_of(3 * MS), {"min_gain": EVERY_PLAN, **DOES_NOT_FIT}, ""),
        # Neither does.
        (2 * MS, TOO_LARGE, DOES_NOT_FIT, "and neither may TensorFlow's placement"),
        (2 * MS, TOO_LARGE, {"min_gain": 0.0, **DOES_NOT_FIT}, "and neither may TensorFlow's"),
        (2 * MS, TOO_LARGE, {"min_gain": -0.9, **DOES_NOT_FIT}, "and neither may TensorFlow's"),
        (None, baseline_of(None, feasible=False), DOES_NOT_FIT, "and neither may TensorFlow's"),
        (2 * MS, TOO_LARGE, {"min_gain": EVERY_PLAN, **DOES_NOT_FIT}, ""),
    ],
)
@pytest.mark.parametrize("verifies", [False, True])
def test_what_is_predicted_decides(
    step_ns: int | None,
    baseline: Baseline | None,
    options: dict[str, Any],
    why: str,
    verifies: bool,
) -> None:
    found = decided(step_ns, baseline, verifies=verifies, **options)
    if verifies and not why:
        check(found, MEASURE, "this start times TensorFlow's own placement (option verify)")
    else:
        check(found, KEEP if why else APPLY, why)


WITHIN = "is within the error of the prediction"
RETIRED = "so that the plan is retired; `hplacer cache restore 3f9c2b1a` undoes that"


@pytest.mark.parametrize(
    ("of", "measured_on", "here", "min_gain", "why"),
    [
        # Measured here: that comes before what is predicted, here a gain within the error.
        (FASTER, HERE, HERE, None, ""),
        (FASTER, HERE, HERE, 0.0, ""),
        (FASTER, HERE, HERE, 0.4, ""),
        (FASTER, HERE, HERE, 0.6, "is less than option min_gain asks for (0.6)"),
        (FASTER, HERE, HERE, EVERY_PLAN, ""),
        (SLOWER, HERE, HERE, None, RETIRED),
        (SLOWER, HERE, HERE, 0.0, RETIRED),
        (SLOWER, HERE, HERE, EVERY_PLAN, RETIRED),
        (ALIKE, HERE, HERE, None, WITHIN),
        (ALIKE, HERE, HERE, EVERY_PLAN, ""),
        # Measured elsewhere.
        (FASTER, HERE, Hardware(host="worker-0", models=["cpu", "gpu"], cores=8), None, WITHIN),
        (SLOWER, HERE, Hardware(host="worker-0", models=["cpu", "gpu"], cores=8), EVERY_PLAN, ""),
        (SLOWER, HERE, Hardware(host="worker-0", models=["cpu"], cores=4), EVERY_PLAN, ""),
        (SLOWER, Hardware(host="worker-9", models=["cpu", "gpu"]), HERE, EVERY_PLAN, ""),
        # The same host under another name.
        (FASTER, HERE, Hardware(host="worker-9", models=["cpu", "gpu"], cores=4), None, ""),
        # Emulated devices decide nothing on real ones, and real ones nothing on them.
        (FASTER, EMULATED, HERE, None, WITHIN),
        (SLOWER, EMULATED, HERE, EVERY_PLAN, ""),
        (FASTER, EMULATED, Hardware(host="worker-0", models=["cpu"]), None, WITHIN),
        (FASTER, HERE, EMULATED, None, WITHIN),
        (SLOWER, HERE, EMULATED, EVERY_PLAN, ""),
        (FASTER, EMULATED, Hardware(host="worker-9", models=[], emulated="8xa100"), None, ""),
        (SLOWER, EMULATED, EMULATED, EVERY_PLAN, RETIRED),
        (FASTER, EMULATED, Hardware(host="worker-0", models=[], emulated="8xv100"), None, WITHIN),
    ],
)
def test_what_was_measured_here_comes_before(
    of: tuple[float, float, float],
    measured_on: Hardware,
    here: Hardware,
    min_gain: float | None,
    why: str,
) -> None:
    found = decided(
        2 * MS,
        baseline_of(3 * MS),
        verdict=verdict(of, measured_on),
        hardware=here,
        min_gain=min_gain,
    )
    check(found, KEEP if why else APPLY, why)


@pytest.mark.parametrize(
    ("of", "measured_on", "action"),
    [
        (None, HERE, MEASURE),
        (FASTER, HERE, APPLY),
        (ALIKE, HERE, APPLY),
        (SLOWER, HERE, KEEP),
        (FASTER, EMULATED, MEASURE),
        (SLOWER, Hardware(host="worker-9", models=[]), MEASURE),
    ],
)
def test_what_was_measured_here_is_not_measured_again(
    of: tuple[float, float, float] | None, measured_on: Hardware, action: str
) -> None:
    judged = of and verdict(of, measured_on)
    assert decided(2 * MS, baseline_of(9 * MS), verdict=judged, verifies=True).action == action


def test_a_plan_without_a_known_baseline_follows_its_verdict() -> None:
    assert decided(2 * MS, None, verdict=verdict(FASTER)) == Decision(APPLY)
    assert RETIRED in decided(2 * MS, None, verdict=verdict(SLOWER)).why


def test_what_was_seen_to_run_fits() -> None:
    assert decided(2 * MS, TOO_LARGE, verdict=verdict(FASTER), **DOES_NOT_FIT).action == APPLY
    assert decided(2 * MS, TOO_LARGE, verdict=verdict(ALIKE), **DOES_NOT_FIT).action == KEEP


# ---- memory ----

MIB, GIB = 1 << 20, 1 << 30
# A CPU with 50 GB and two GPUs with 12 GiB. Of a data sheet's 12288 MiB a peak of 9805 MiB takes
# 1.15 * 9805 + 512 + 500 = 12287.75 MiB with what frameworks add, and one of 9806 MiB 12288.9 MiB.
# Where TensorFlow told the 12288 MiB, it is 1.15 * 10240 + 512 = 12288 MiB, without the process.
# Of the CPU's 50 GB it is 1.1 * 42 GiB + 64 + 400 MiB = 46.65 GiB, which is more than 46.57 GiB.
SHEET = load_machine("1cpu-2xk40")
ROOM, TIGHT, FULL = 9805 * MIB, 9806 * MIB, 13 * GIB


def told_by_tensorflow() -> str:
    """The same machine as `detect` describes it: the memory is what its allocator may take."""
    kinds = [replace(k, name="GPU Tesla K40c") if k.type == "GPU" else k for k in SHEET.kinds]
    devices = [replace(d, kind="GPU Tesla K40c") if "GPU" in d.name else d for d in SHEET.devices]
    return machine_to_yaml(replace(SHEET, kinds=tuple(kinds), devices=tuple(devices)))


def beside(
    peak_bytes: list[int], own_peak_bytes: list[int], *, own_fits: bool = True, **plan: Any
) -> Decision:
    """Of a plan that is three times as fast as TensorFlow's placement."""
    baseline = Baseline(step_time_ns=9 * MS, feasible=own_fits, peak_bytes=own_peak_bytes)
    devices = {"device_names": list(SHEET.device_names), "device_kinds": ["c", "g", "g"]}
    given = {"machine": machine_to_yaml(SHEET), "peak_bytes": peak_bytes, **devices, **plan}
    return decided(3 * MS, baseline, **given)


IS_TIGHT = "the plan is tight in memory, and TensorFlow's placement is not: "


@pytest.mark.parametrize(
    ("peak_bytes", "own_peak_bytes", "plan", "why"),
    [
        ([0, ROOM, ROOM], [0, MIB, 0], {}, ""),
        (
            [0, TIGHT, ROOM],
            [0, MIB, 0],
            {},
            "with what frameworks add, the plan needs 9.576 GiB to 12 GiB of 12 GiB on GPU:0",
        ),
        ([0, MIB, TIGHT], [0, ROOM, 0], {}, "on GPU:1"),
        ([0, TIGHT, TIGHT + MIB], [0, ROOM, 0], {}, "on GPU:1"),  # the one that lacks most
        ([42 * GIB, 0, 0], [41 * GIB, 0, 0], {}, "46.57 GiB on CPU:0"),
        # TensorFlow's placement is tight as well, on whatever device, or does not fit.
        ([0, TIGHT, TIGHT], [0, 0, TIGHT], {}, ""),
        ([0, TIGHT, TIGHT], [42 * GIB, 0, 0], {}, ""),
        ([0, TIGHT, TIGHT], [0, FULL, 0], {"own_fits": False}, ""),
        # What the machine's description holds back already is not added again.
        ([0, 10240 * MIB, 0], [0, MIB, 0], {}, IS_TIGHT),
        ([0, 10240 * MIB, 0], [0, MIB, 0], {"machine": told_by_tensorflow()}, ""),
        ([0, 10241 * MIB, 0], [0, MIB, 0], {"machine": told_by_tensorflow()}, IS_TIGHT),
        # It was asked for, or has run.
        ([0, TIGHT, 0], [0, MIB, 0], {"min_gain": 0.0}, IS_TIGHT),
        ([0, TIGHT, 0], [0, MIB, 0], {"min_gain": EVERY_PLAN}, ""),
        ([0, TIGHT, 0], [0, MIB, 0], {"verdict": verdict(FASTER)}, ""),
        ([0, TIGHT, 0], [0, MIB, 0], {"verdict": verdict(ALIKE)}, ""),
        ([0, TIGHT, 0], [0, MIB, 0], {"verdict": verdict(FASTER, EMULATED)}, IS_TIGHT),
        (
            [0, TIGHT, 0],
            [0, MIB, 0],
            {"planner_options": {"measured": {"step_ns": 2 * MS, "baseline_ns": 9 * MS}}},
            "",
        ),
        # The memory is not known.
        ([0, TIGHT, 0], [0, MIB, 0], {"machine": None}, ""),
        ([0, TIGHT, 0], [0, MIB, 0], {"machine": "format: hplacer-machine/1\n"}, ""),
        ([0, TIGHT, 0], [], {}, IS_TIGHT),
    ],
)
def test_a_tight_plan_takes_effect_only_beside_what_is_no_better(
    peak_bytes: list[int], own_peak_bytes: list[int], plan: dict[str, Any], why: str
) -> None:
    found = beside(peak_bytes, own_peak_bytes, **plan)
    check(found, KEEP if why else APPLY, why)
    assert not why or found.why.startswith(IS_TIGHT)


def test_a_gain_that_is_too_small_is_told_first() -> None:
    assert "is within the error" in beside([0, TIGHT, 0], [0, MIB, 0], prediction_error=2.0).why


@given(times, times, gains)
def test_it_takes_effect_where_the_gain_exceeds_the_error(
    step_ns: int, own_ns: int, error: float
) -> None:
    takes_effect = not decided(step_ns, baseline_of(own_ns), prediction_error=error).why
    assert takes_effect == (own_ns / step_ns - 1 > error)


@given(times, times, st.floats(-1, 100, exclude_min=True))
def test_it_takes_effect_where_the_gain_is_what_was_asked_for(
    step_ns: int, own_ns: int, min_gain: float
) -> None:
    asked = decided(step_ns, baseline_of(own_ns), min_gain=min_gain)
    assert (not asked.why) == (own_ns / step_ns - 1 > min_gain)


@given(
    st.none() | times,
    st.none() | st.builds(baseline_of, st.none() | times, feasible=st.booleans()),
    st.none() | st.floats(-1, 100, exclude_min=True),
)
def test_what_does_not_fit_takes_effect_only_where_every_plan_does(
    step_ns: int | None, baseline: Baseline | None, min_gain: float | None
) -> None:
    assert decided(step_ns, baseline, min_gain=min_gain, feasible=False).action == KEEP
    assert decided(step_ns, baseline, min_gain=EVERY_PLAN, feasible=False).action == APPLY


# ---- errors of predictions ----


def test_measured_costs_predict_better_than_estimated_ones() -> None:
    assert 0 < prediction_error("measured") < prediction_error("analytic")
    assert prediction_error("measured, analytic") == prediction_error("analytic")


def test_the_source_of_the_costs_decides_where_a_plan_knows_no_error() -> None:
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


def test_what_was_measured_is_tried() -> None:
    here = Here(hardware=HERE, tries=True)
    for baseline in (baseline_of(1), None):  # as it is simulated
        assert decide(measured_plan(20, 25, baseline=baseline), here) == Decision(TRY)


@pytest.mark.parametrize(
    ("step_ns", "baseline", "plan", "min_gain", "action", "why"),
    [
        # It need not promise more than predictions may be wrong.
        (2 * MS, baseline_of(3 * MS), {}, None, TRY, ""),
        (2 * MS, baseline_of(3 * MS), {}, 0.4, TRY, ""),
        (2 * MS, baseline_of(3 * MS), {}, 0.6, KEEP, "option min_gain asks for (0.6)"),
        (2980, baseline_of(3000), {}, None, KEEP, "is too little for a trial to tell"),
        (4 * MS, baseline_of(3 * MS), {}, None, KEEP, "nothing faster than TensorFlow's placement"),
        (4 * MS, baseline_of(3 * MS), {}, -0.5, TRY, ""),
        (4 * MS, baseline_of(3 * MS), {}, EVERY_PLAN, APPLY, ""),
        (2 * MS, None, {}, None, KEEP, "TensorFlow's own placement is not known"),
        # Only where both fit.
        (9 * MS, TOO_LARGE, {}, None, APPLY, ""),
        (2 * MS, baseline_of(3 * MS), DOES_NOT_FIT, None, KEEP, "the plan may not fit"),
        (2 * MS, TOO_LARGE, DOES_NOT_FIT, None, KEEP, "and neither may TensorFlow's placement"),
        # What was measured here needs no trial.
        (2 * MS, baseline_of(3 * MS), {"verdict": verdict(FASTER)}, None, APPLY, ""),
        (2 * MS, baseline_of(3 * MS), {"verdict": verdict(SLOWER)}, None, KEEP, RETIRED),
        (2 * MS, baseline_of(3 * MS), {"verdict": verdict(ALIKE)}, None, KEEP, "no difference"),
        (2 * MS, baseline_of(3 * MS), {"verdict": verdict(FASTER, EMULATED)}, None, TRY, ""),
    ],
)
def test_what_may_pay_is_tried_where_it_can_be(
    step_ns: int,
    baseline: Baseline | None,
    plan: dict[str, Any],
    min_gain: float | None,
    action: str,
    why: str,
) -> None:
    check(decided(step_ns, baseline, min_gain=min_gain, tries=True, **plan), action, why)
