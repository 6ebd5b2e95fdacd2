"""Plans simulated again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hplacer_optimizer._engine import lower_bound
from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.plans.simulation import simulate_plan
from hplacer_optimizer.problem.files import load_problem_file
from hplacer_optimizer.problem.simulator import simulate
from tests.planned import plan_of
from tests.plans.test_plan import make_plan

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"


def test_a_plan_that_holds_its_problem_is_simulated_again() -> None:
    problem = load_problem_file(GOLDEN)
    placement = get_planner("etf").plan(problem).placement
    step = simulate_plan(plan_of(problem, placement))
    assert step.placement.tolist() == placement.tolist()
    assert step.trace.makespan_ns == simulate(problem, placement).makespan_ns
    bound = lower_bound(problem)
    assert (step.bound.ns, step.bound.term) == (bound.ns, bound.term)


def test_a_plan_without_its_problem_needs_its_graph() -> None:
    with pytest.raises(PlanError, match=r"plan 3f9c2b1a of train_step holds no problem .*--graph"):
        simulate_plan(make_plan())
