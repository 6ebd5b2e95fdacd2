"""The `etf` planner; what it shares with all planners is tested in test_planners.py."""

from __future__ import annotations

import time

from hplacer_optimizer.planners.etf import plan
from hplacer_optimizer.problem.problem_file import load_problem_file
from hplacer_optimizer.problem.simulator import simulate
from testbed.large_problem import large_problem
from tests.planners.test_planners import GOLDEN_PROBLEM


def test_two_towers_run_side_by_side() -> None:
    problem = load_problem_file(GOLDEN_PROBLEM)
    makespan_ns = simulate(problem, plan(problem).placement).makespan_ns
    one_gpu = [0 if name in ("input", "log") else 1 for name in problem.op_names]
    alone_ns = simulate(problem, one_gpu).makespan_ns
    assert makespan_ns is not None
    assert alone_ns is not None
    assert makespan_ns < 0.7 * alone_ns


def test_ten_thousand_ops_take_less_than_a_second() -> None:
    problem = large_problem(10_000)
    start = time.perf_counter()
    placement = plan(problem).placement
    assert time.perf_counter() - start < 1
    trace = simulate(problem, placement)
    assert trace.feasible
    # Seven equal devices; one alone would take the sum.
    assert trace.makespan_ns is not None
    assert trace.makespan_ns < problem.cost_ns[:, 1].sum() / 3
