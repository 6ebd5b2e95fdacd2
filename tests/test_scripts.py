"""Scripts as users write them: with plans, their results and their errors are the same.

Each script of testbed/scripts/ runs without the optimizer, with an empty store, and with the store
that this run left. Its results are the JSON lines that it prints. A random planner spreads the ops.
"""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.capture import native
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from testbed.training_scripts import (
    CASES,
    OPTIONS,
    ROUNDING,
    SCRIPTS,
    Case,
    errors_of,
    outcomes_of,
    results_of,
)
from tests import processes

pytestmark = pytest.mark.skipif(native.is_missing(), reason="needs the native module _tf")

LAUNCHER = str(Path(__file__).parent / "script_launcher.py")
PLANNING_S, LOADING_S = 10.0, 3.0  # the most that a script waits in all, on busy cores


# Scripts whose calls also run with the plan and without it in turns (option on_miss="trial").
SWITCHED = {
    "branches.py",
    "custom_loop.py",
    "gradients_outside.py",
    "loops.py",
    "threads.py",
    # slow ones
    "convolutional_network.py",
    "data_pipeline.py",
    "gradient_accumulation.py",
    "keras_gan.py",
    "keras_mixed_precision.py",
    "keras_steps_per_execution.py",
    "python_functions.py",
    "retraces.py",
    "strings_and_tables.py",
    "transformer_encoder.py",
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of a script left."""

    results: list[Any]
    errors: list[str]  # first lines of uncaught exceptions
    returncode: int
    history: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    outcomes: list[str]  # "made" or "loaded", by the log: also in processes that it started


def run_script(name: str, directory: Path, times: int = 1, **environment: str) -> Run:
    """Runs it in a process of its own, so many times."""
    script, *arguments = name.split()
    report = directory / "report.json"
    report.unlink(missing_ok=True)
    done = processes.run_script(
        [LAUNCHER, str(report), str(times), str(SCRIPTS / script), *arguments],
        cwd=directory,
        environment=processes.clean_environment(directory) | {"HPLACER_LOG": "debug"} | environment,
    )
    assert report.exists(), done.stderr
    told = json.loads(report.read_text())
    return Run(
        results=results_of(done.stdout),
        errors=errors_of(done.stderr),
        returncode=done.returncode,
        history=told["history"],
        checks=told["checks"],
        outcomes=outcomes_of(done.stderr),
    )


def parameters() -> list[Any]:
    """The cases by name, with their marks."""
    found = []
    for name, case in CASES.items():
        marks = [pytest.mark.slow] if case.slow else []
        found.append(pytest.param(name, case, id=name, marks=marks))
    return found


@pytest.mark.parametrize(("name", "case"), parameters())
def test_a_script_does_the_same_with_plans(name: str, case: Case, tmp_path: Path) -> None:
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"needs {case.needs}")
    store = tmp_path / "plans"
    options = OPTIONS.format(cache=store)
    alone = run_script(name, tmp_path, HPLACER_DISABLE="1")
    planned = run_script(name, tmp_path, HPLACER_OPTIONS=options)
    stored = run_script(name, tmp_path, HPLACER_OPTIONS=options)

    assert alone.results
    assert alone.returncode == case.ends
    assert alone.outcomes == []
    for run in (planned, stored):
        assert_alike(run.results, alone.results, case.tolerance)
        assert run.returncode == alone.returncode
        assert run.errors == alone.errors
    if name in SWITCHED:
        switched = run_script(
            name,
            tmp_path,
            HPLACER_OPTIONS=options.replace("min_gain=-1", "min_gain=-0.99,on_miss=trial"),
            HPLACER_TRIAL_RULES='{"alternates": true}',
        )
        assert_alike(switched.results, alone.results, case.tolerance or ROUNDING)
        assert switched.returncode == alone.returncode
        assert switched.errors == alone.errors
        told = [entry["reason"] for entry in switched.history]
        assert any("with its plan and without it in turn" in reason for reason in told)
    has_plan = any(uses_second_device(entry.plan) for entry in PlanStore(str(store)).list())
    assert has_plan or case.left_alone
    if case.in_children:
        assert set(stored.outcomes) == {"loaded"}
    elif case.left_alone:
        reasons = [entry["reason"] for entry in stored.history if entry["outcome"] == "skipped"]
        assert any("its replicas have their devices already" in reason for reason in reasons)
    else:
        assert_took_effect(planned, {"planned", "loaded", "shared", "skipped"}, PLANNING_S)
        assert_took_effect(stored, {"loaded", "shared", "skipped"}, LOADING_S)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=CASES)
def test_results_are_equal_to_the_bit_with_the_option(
    name: str, case: Case, tmp_path: Path
) -> None:
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"needs {case.needs}")
    options = OPTIONS.format(cache=tmp_path / "plans") + ",bitwise=true"
    alone, again = (run_script(name, tmp_path, HPLACER_DISABLE="1").results for _ in range(2))
    if alone != again:
        pytest.skip("differs in two runs without the optimizer")
    planned = run_script(name, tmp_path, HPLACER_OPTIONS=options)
    assert planned.results == alone
    if not case.in_children and not case.left_alone:
        assert_took_effect(planned, {"planned", "loaded", "shared", "skipped"}, math.inf)


# TensorFlow cannot be forked once it has run ops; children build their models once; pytest imports
# a module once; and a notebook's switch of XLA makes a second graph only the first time.
ONCE = {
    "fork_before_use.py",
    "multiprocessing_workers.py spawn",
    "multiprocessing_workers.py forkserver",
    "notebook.py",
    "unit_tests.py",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in sorted(CASES.keys() - ONCE) if not CASES[name].left_alone]
)
def test_a_model_that_is_built_again_finds_its_plan(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"needs {case.needs}")
    store = tmp_path / "plans"
    options = OPTIONS.format(cache=store)
    once = run_script(name, tmp_path, HPLACER_OPTIONS=options)
    plans = {path: path.read_bytes() for path in store.glob("*.hplan")}
    again = run_script(name, tmp_path, times=6, HPLACER_OPTIONS=options)

    assert_took_effect(again, {"loaded", "shared", "skipped"}, math.inf)
    placed = [sum(entry["placed"] > 0 for entry in run.history) for run in (once, again)]
    assert placed[1] == 6 * placed[0]
    assert {path: path.read_bytes() for path in store.glob("*.hplan")} == plans


def test_every_script_is_run() -> None:
    assert {name.split()[0] for name in CASES} == {path.name for path in SCRIPTS.glob("*.py")}


def assert_alike(found: Any, expected: Any, tolerance: float) -> None:
    """Equal, but for the relative tolerance of numbers."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        assert_alike(list(found.values()), list(expected.values()), tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other, tolerance)
    elif isinstance(expected, float) and math.isfinite(expected):
        assert found == pytest.approx(expected, rel=tolerance, abs=0)
    else:
        assert found == expected


def uses_second_device(plan: Plan | None) -> bool:
    """Whether the plan has nodes there."""
    assert plan is not None
    used = {plan.device_names[device] for device in plan.node_devices}
    return any(name.endswith("CPU:1") for name in used)


def assert_took_effect(run: Run, outcomes: set[str], limit_s: float) -> None:
    """Nodes were placed, and TensorFlow ran them where the plans have them, soon."""
    assert {entry["outcome"] for entry in run.history} <= outcomes
    assert sum(entry["placed"] for entry in run.history) > 0
    assert sum(check["planned"] for check in run.checks) > 0
    assert [row for check in run.checks for row in check["differences"]] == []
    assert sum(entry["pass_s"] for entry in run.history) < limit_s
