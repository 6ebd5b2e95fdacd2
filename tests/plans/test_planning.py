"""`hp.plan`: graphs, functions and problems planned in one call, and what a plan can do then."""

from __future__ import annotations

import threading
from html import escape
from pathlib import Path
from typing import Any

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.planners import Progress
from hplacer_optimizer.problem.cost_errors import step_spread_ns, typical_errors
from hplacer_optimizer.problem.simulator import SIMULATOR_VERSION
from testbed.large_problem import large_problem
from tests.processes import ROOT

GOLDEN = ROOT / "tests" / "golden" / "two_towers.hplacer.json"
MACHINE = "1cpu-2xk40"
FEW = {"planner": "local_search", "steps": 300}


def check(plan: hp.Plan, directory: Path) -> None:
    """It holds what was planned, survives its file, and has a report."""
    path = directory / "x.hplan"
    plan.save(path)
    loaded = hp.load_plan(path)
    assert loaded == plan
    problem = loaded.problem()
    assert problem is not None
    assert loaded.placement is not None
    assert hp.simulate(problem, loaded.placement).makespan_ns == loaded.step_time_ns
    assert loaded.trace().makespan_ns == plan.step_time_ns
    assert loaded.simulator_version == SIMULATOR_VERSION
    errors = typical_errors(plan.cost_source)
    assert loaded.step_spread_ns == step_spread_ns(problem, loaded.placement, errors)
    loaded.report(directory / "x.html")
    assert f"<h1>{escape(plan.label)}" in (directory / "x.html").read_text()


# ---- problems ----


def test_a_problem_file_and_its_problem_have_the_same_plan(tmp_path: Path) -> None:
    of_file = hp.plan(GOLDEN, **FEW)
    of_problem = hp.plan(hp.load_problem(GOLDEN), **FEW)
    assert of_file.placement is not None
    assert of_file.placement.tolist() == of_problem.placement.tolist()
    assert (of_file.fingerprint, of_file.label) == ("", "two-towers")
    assert of_file.budget["steps_done"] <= 300
    check(of_file, tmp_path)


def test_progress_is_told_and_a_search_can_be_stopped() -> None:
    stop = threading.Event()
    told: list[Progress] = []

    def watch(progress: Progress) -> None:
        told.append(progress)
        stop.set()

    problem = large_problem(1_000)
    plan = hp.plan(problem, "local_search", on_progress=watch, stop=stop, budget_s=60)
    assert told
    assert plan.budget["steps_done"] == told[-1].steps
    assert plan.planning_s < 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"planner": "magic"}, "planner: unknown name 'magic'"),
        ({"machine": MACHINE}, "a problem file has its own devices and costs; leave out machine"),
        ({"cost_table": "t.json"}, "cost_table: a problem has its own costs"),
        ({"checkpoint": "here"}, "checkpoint: the planner 'auto' does not learn"),
        ({"preset": "paper"}, "preset: the planner 'auto' does not learn"),
        ({"budget_s": 0}, "budget seconds: must be more than 0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hp.HPlacerError, match=message):
        hp.plan(GOLDEN, **options)


# ---- graphs ----


def test_a_meta_graph(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default():
        w = tf.compat.v1.get_variable("w", [64, 64], use_resource=True)
        loss = tf.reduce_sum(tf.tanh(tf.ones([8, 64]) @ w))
        tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        tf.compat.v1.train.export_meta_graph(str(tmp_path / "x.meta"))
    plan = hp.plan(tmp_path / "x.meta", machine=MACHINE, targets=["train"], **FEW)
    assert len(plan.fingerprint) == 32
    check(plan, tmp_path)
    store = hp.PlanStore(tmp_path / "store")
    assert store.put(plan)
    assert store.get(plan.fingerprint) == plan
    captured = hp.load_problem(tmp_path / "x.meta", machine=MACHINE, targets=["train"])
    assert plan.problem().op_names == captured.op_names  # type: ignore[union-attr]


def test_a_concrete_function(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    w = tf.Variable(tf.ones([64, 64]))

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(x @ w) + tf.sigmoid(x @ w))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    plan = hp.plan(step.get_concrete_function(tf.TensorSpec([8, 64])), machine=MACHINE, **FEW)
    assert len(plan.fingerprint) == 32
    check(plan, tmp_path)
