"""What users hold: how it shows itself, and that it can be copied and pickled."""

from __future__ import annotations

import copy
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hplacer_optimizer as hp
from hplacer_optimizer.measuring.measurement import OUT_OF_MEMORY, failed
from hplacer_optimizer.plans.planned_problem import fields_without_graph
from hplacer_optimizer.plugin.variables.model_plan import PlannedVariable
from hplacer_optimizer.support.notebook import as_html, as_text
from testbed.documents import problem_from_dict, problem_to_dict
from testbed.random_problems import placed_problems
from tests.planned import plan_of
from tests.processes import ROOT

GOLDEN = ROOT / "tests" / "golden" / "two_towers.hplacer.json"
EVIL = "<b>&\n\r\u2028" + 200 * "x"
NOTHING: dict[str, Any] = {
    "format": "hplacer-problem/2",
    "name": "",
    **{key: [] for key in ("device_kinds", "devices", "links", "ops", "edges")},
}


def evil_problem(**changes: Any) -> hp.Problem:
    """Every name in it tries to become markup, or a line of its own."""
    document = json.loads(GOLDEN.read_text()) | {"name": EVIL} | changes
    for op in document["ops"]:
        op["name"] += EVIL
    for device in document["devices"]:
        device["name"] += EVIL
    return problem_from_dict(document)


def values() -> dict[str, Any]:
    problem = evil_problem()
    placement = np.arange(problem.num_ops, dtype=np.int32) % 3
    texts = dict.fromkeys(("label", "host", "planner"), EVIL)
    plan = plan_of(problem, placement, **fields_without_graph(problem, placement), **texts)
    variable = PlannedVariable(key=EVIL, shape=(2,), dtype="float32", device=plan.device_names[0])
    return {
        "problem": problem,
        "trace": hp.simulate(problem, placement),
        "trace without a step": hp.simulate(evil_problem(links=[]), placement),
        "plan": plan,
        "model plan": hp.ModelPlan(variables=(variable,), step=plan),
        "machine": hp.load_machine("1cpu-2xk40"),
        "measurement": hp.Measurement(times_s=(0.04, 0.042), warmup=3, peak_bytes=(1 << 30, None)),
        "failed measurement": failed(OUT_OF_MEMORY, EVIL),
        "store": hp.PlanStore(f"/tmp/{EVIL};/tmp/far"),
    }


VALUES = values()


@pytest.mark.parametrize("name", VALUES)
def test_a_value_shows_itself_in_a_few_lines_without_markup(name: str) -> None:
    value = VALUES[name]
    shown, page = repr(value), value._repr_html_()
    lines = shown.splitlines()
    assert 1 <= len(lines) <= 5
    assert lines[0].startswith(type(value).__name__)
    assert max(map(len, lines)) <= 120
    assert "<b>" not in page
    assert set(re.findall(r"<(\w+)>", page)) <= {"table", "caption", "tbody", "tr", "th", "td"}
    assert page.count("<tr>") == len(lines) - 1


def test_what_they_say() -> None:
    problem = hp.load_problem(GOLDEN)
    trace = hp.simulate(problem, [0] * problem.num_ops)
    assert repr(problem).splitlines() == [
        "Problem 'two-towers': 27 ops in 21 units on 3 devices",
        "  tensors: 26, 28.23 MiB in all",
        "  edges: 27 data, 1 control",
        "  devices: 1 cpu of 64 GiB, 2 gpu of 8 GiB",
        "  links: 6 on 3 channels",
    ]
    assert repr(trace).splitlines() == [
        "StepTrace of 'two-towers': step time 9.42 ms",
        "  transfers: 0, 0 B in all",
        "  fullest device: /device:CPU:0, 24.41 MiB of 64 GiB",
    ]
    plan = plan_of(problem, trace.placement, lower_bound_ns=9_000_000, lower_bound_term="load")
    assert repr(plan).splitlines() == [
        "Plan of function train_step: 66b53989 (etf): 9.42 ms/step predicted",
        "  lower bound: 9 ms (load), gap 4.7%",
        "  graph: 27 ops in 21 units, 27 nodes",
        "  nodes: 27 on CPU:0, 0 on GPU:0, 0 on GPU:1",
        "  made: 2026-05-01T12:00:00Z on worker-0 in 0.25 s",
    ]
    nothing = problem_from_dict(NOTHING)
    assert repr(nothing).splitlines()[3] == "  devices: none"
    assert repr(hp.simulate(nothing, [])).splitlines() == [
        "StepTrace of '': step time 0 ns",
        "  transfers: 0, 0 B in all",
    ]
    assert "does not fit: op" in repr(VALUES["trace without a step"])
    assert repr(VALUES["measurement"]).splitlines() == [
        "Measurement: 41 ms a step",
        "  steps: 2 after 3 of warm-up, interquartile range 1 ms",
        "  peak memory of each device: 1 GiB, unknown",
    ]
    assert repr(failed(OUT_OF_MEMORY, "on GPU:0")) == "Measurement: out of memory: on GPU:0"
    assert repr(hp.PlanStore("/a;/b")) == "PlanStore\n  directory: /a;/b"
    assert "2 k40 of 12 GiB" in repr(VALUES["machine"])


@given(st.text(), st.dictionaries(st.just("fact"), st.text()))
def test_any_text_is_one_line_and_no_markup(title: str, facts: dict[str, str]) -> None:
    assert len(as_text(title, facts).splitlines() or [""]) == 1 + len(facts)
    page = as_html(title, facts)
    assert page.isprintable()
    tags = 4 + 2 + 6 * len(facts)
    assert page.count("<") == page.count(">") == tags


# ---- copies ----


def same(a: Any, b: Any) -> bool:
    if isinstance(a, hp.Problem):
        return bool(problem_to_dict(a) == problem_to_dict(b))
    if isinstance(a, hp.StepTrace):
        for name in ("start_ns", "finish_ns", "transfers", "peak_bytes", "placement"):
            if not np.array_equal(getattr(a, name), getattr(b, name)):
                return False
        facts = ("makespan_ns", "has_trace", "feasible", "infeasible_because")
        return all(getattr(a, name) == getattr(b, name) for name in facts)
    if isinstance(a, hp.PlanStore):
        return a.directory == b.directory
    return bool(a == b)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_can_be_pickled_and_copied(name: str) -> None:
    value = VALUES[name]
    for again in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert type(again) is type(value)
        assert same(value, again)
        assert repr(again) == repr(value)


@settings(max_examples=100, deadline=None)
@given(placed_problems())
def test_any_problem_and_trace_can_be_shown_and_pickled(
    placed: tuple[dict[str, Any], list[int]],
) -> None:
    problem = problem_from_dict(placed[0])
    trace = hp.simulate(problem, placed[1])
    for value in (problem, trace):
        assert len(repr(value).splitlines()) <= 5
        assert same(value, pickle.loads(pickle.dumps(value)))


def test_native_values_are_their_own_copies() -> None:
    for value in (VALUES["problem"], VALUES["trace"]):
        assert copy.copy(value) is value
        assert copy.deepcopy([value])[0] is value


def test_a_trace_keeps_its_problem() -> None:
    problem, trace = VALUES["problem"], VALUES["trace"]
    assert trace.problem is problem
    again, again_trace = pickle.loads(pickle.dumps((problem, trace)))
    assert again_trace.problem is again
    with pytest.raises(ValueError, match="read-only"):
        trace.placement[0] = 1


def test_a_pickled_plan_keeps_what_is_still_in_its_file(tmp_path: Path) -> None:
    VALUES["plan"].save(tmp_path / "x.hplan")
    again = pickle.loads(pickle.dumps(hp.load_plan(tmp_path / "x.hplan")))
    (tmp_path / "x.hplan").unlink()
    assert again.trace().makespan_ns == VALUES["plan"].step_time_ns


def test_values_are_unpickled_in_a_fresh_process(tmp_path: Path) -> None:
    (tmp_path / "values").write_bytes(pickle.dumps(VALUES))
    code = (
        "import pickle, sys\n"
        "values = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert values['trace'].problem is values['problem']\n"
        "print([repr(value) for value in values.values()])\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "values")],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{[repr(value) for value in VALUES.values()]}\n"


def test_a_damaged_pickle_of_a_problem_is_refused() -> None:
    state = VALUES["problem"].__getstate__()
    state["device_slots"] = -state["device_slots"]
    with pytest.raises(hp.ProblemError, match=r"devices\[0\]\.slots"):
        hp.Problem.__new__(hp.Problem).__setstate__(state)


# ---- other values for some arrays ----


def test_a_problem_with_other_arrays() -> None:
    problem = VALUES["problem"]
    faster = problem.replace(link_bytes_per_s=problem.link_bytes_per_s * 2, name="faster")
    before, after = problem_to_dict(problem), problem_to_dict(faster)
    assert {key for key in before if before[key] != after[key]} == {"name", "links"}
    assert same(faster.replace(), faster)
    with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
        problem.replace(speed=2)
    with pytest.raises(hp.ProblemError, match="has 1 "):
        problem.replace(temp_bytes=np.zeros(1, np.int64))
