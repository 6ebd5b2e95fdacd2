"""Files that a released version wrote are read by this one: tests/samples/VERSION/.

A release adds a folder with a file of each kind, and changes none that is there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.costs.table import MeasuredCost
from hplacer_optimizer.problem.problem_file import load_problem_file
from tests.processes import ROOT

VERSIONS = sorted(path.name for path in (ROOT / "tests" / "samples").iterdir())


@pytest.fixture(params=VERSIONS)
def directory(request: pytest.FixtureRequest) -> Path:
    return ROOT / "tests" / "samples" / request.param


def test_a_problem(directory: Path) -> None:
    problem = load_problem_file(directory / "problem.hplacer.json")
    assert problem.num_ops == 27


def test_a_plan_and_what_was_predicted(directory: Path) -> None:
    plan = hp.load_plan(directory / "plan.hplan")
    assert plan.versions["hplacer"] == directory.name
    problem = load_problem_file(directory / "problem.hplacer.json")
    assert hp.simulate(problem, plan.placement).makespan_ns == plan.step_time_ns


def test_a_machine(directory: Path) -> None:
    assert hp.load_machine(directory / "machine.yaml") == hp.load_machine("2hosts-2xcpu")


def test_a_cost_table(directory: Path) -> None:
    table = hp.CostTable.load(directory / "costs.json")
    assert table.get("op_a", "cpu") == MeasuredCost(time_ns=1200, samples=5)
