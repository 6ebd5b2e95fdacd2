"""`rollout` on generated problems: against planners that do not search, and without its parts."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.generated import FAMILIES, generate
from hplacer_optimizer.errors import ProblemError
from hplacer_optimizer.planners import PLANNERS, Budget, rollout
from hplacer_optimizer.planners.colocation import scopes_of_units
from hplacer_optimizer.planners.policies import BY_HAND
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.simulator import simulate

QUICK = ("gpu_only", "topo", "etf", "heft")


def step_ns(problem: Problem, placement: np.ndarray) -> float:
    trace = simulate(problem, placement)
    return float(trace.makespan_ns) if trace.feasible and trace.makespan_ns else np.inf


@pytest.mark.parametrize("family", FAMILIES)
def test_it_beats_planners_that_do_not_search(family: str) -> None:
    ratios = []
    for seed in range(20, 26):
        problem = generate(family, seed)
        found = rollout.search(problem, budget=Budget(steps=250), seed=0)
        check_constraints(problem, found.placement)
        quick = min(step_ns(problem, PLANNERS[name].plan(problem).placement) for name in QUICK)
        ours = step_ns(problem, found.placement)
        if np.isfinite(quick) or np.isfinite(ours):
            ratios.append(ours / quick)
    assert np.median(ratios) < 0.95
    assert np.max(ratios) < 1.1


def test_it_ends_in_time_and_says_how_many_placements_repeat_it() -> None:
    problem = generate("layered", 7)
    begin_s = time.monotonic()
    found = rollout.plan(problem, budget=Budget(seconds=0.3))
    assert time.monotonic() - begin_s < 3
    assert found.notes == (f"rollout: {found.steps} placements",)
    again = rollout.plan(problem, budget=Budget(steps=found.steps))
    assert np.array_equal(again.placement, found.placement)


def run_native(policies: np.ndarray, chains: np.ndarray) -> None:
    _engine.rollout_search(
        generate("towers", 0),
        np.zeros(0, np.int32),
        policies,
        chains,
        seed=0,
        threads=1,
        seconds=1,
        max_evaluations=1,
        patience=None,
        passes=1,
        sweeps=True,
        on_progress=lambda evaluations, makespan_ns: True,
    )


def test_malformed_policies_and_chains_are_refused() -> None:
    rows, chains = BY_HAND.rows(), BY_HAND.chain_table()
    run_native(rows, chains)
    shape = rf"policies: must have shape \[count, {rows.shape[1]}\]"
    with pytest.raises(ProblemError, match=shape):
        run_native(np.zeros((1, 3)), chains)
    with pytest.raises(ProblemError, match=r"chains: must have shape \[count, 2\]"):
        run_native(rows, np.zeros((1, 3), np.int32))
    for chain in ([len(rows), 0], [-1, 0], [0, len(_engine.ROLLOUT_ITEMS)], [0, -1]):
        with pytest.raises(ProblemError, match="chains: row 0 names no policy or no kind"):
            run_native(rows, np.array([chain], np.int32))


def test_scopes_keep_units_of_different_candidates_apart() -> None:
    problem = generate("branching", 2)
    scope = scopes_of_units(problem)
    assert scope.shape == (problem.num_units,)
    units = dict(zip(problem.op_names, problem.units, strict=True))
    of_join = {scope[unit] for name, unit in units.items() if name.startswith("block0/join/")}
    of_stem = {scope[unit] for name, unit in units.items() if name.startswith("stem/")}
    assert len(of_join) == 1
    assert not of_join & of_stem


def test_generated_problems_are_always_the_same_ones() -> None:
    one, other = generate("recurrent", 3), generate("recurrent", 3)
    assert one.op_names == other.op_names
    assert np.array_equal(one.cost_ns, other.cost_ns)
    assert not np.array_equal(one.num_ops, generate("recurrent", 4).num_ops)
