"""Costs that are learned from measured steps."""

from __future__ import annotations

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.generated import generate
from hplacer_optimizer.planners.devices import candidate_mask
from hplacer_optimizer.problem.cost_errors import ESTIMATED_COSTS, draw_problems
from hplacer_optimizer.problem.cost_learning import CostLearner
from hplacer_optimizer.problem.simulator import simulate, simulate_batch
from testbed.large_problem import large_problem

TOLD, OTHERS = 15, 30


@pytest.fixture(scope="module")
def problem() -> Problem:
    return generate("towers", 1000)


def random_placements(problem: Problem, count: int, seed: int) -> np.ndarray:
    """Each unit stays where the device before it is, or moves on at random: few transfers."""
    rng = np.random.default_rng(seed)
    may_run = candidate_mask(problem)
    rows: list[np.ndarray] = []
    while len(rows) < count:
        cuts = np.sort(rng.integers(problem.num_units, size=rng.integers(1, 12)))
        wanted = rng.permutation(32)[np.searchsorted(cuts, np.arange(problem.num_units))]
        wanted %= problem.num_devices
        allowed = may_run[np.arange(problem.num_units), wanted]
        placed = np.where(allowed, wanted, may_run.argmax(axis=1))[problem.units].astype(np.int32)
        if simulate(problem, placed).feasible:
            rows.append(placed)
    return np.array(rows)


def errors_of(problem: Problem, true: Problem, placements: np.ndarray) -> np.ndarray:
    """Logarithms of predicted over true steps."""
    predicted, _, _ = simulate_batch(problem, placements)
    measured, _, _ = simulate_batch(true, placements)
    return np.log(predicted / measured)


def told(problem: Problem, true: Problem, placements: np.ndarray) -> CostLearner:
    learner = CostLearner(problem, ESTIMATED_COSTS, seed=0)
    for placement in placements:
        learner.tell(placement, simulate(true, placement).makespan_ns / 1e9)
    return learner


def test_it_predicts_placements_that_it_was_not_told(problem: Problem) -> None:
    placements = random_placements(problem, TOLD + OTHERS, seed=0)
    before, after = [], []
    for true in draw_problems(problem, ESTIMATED_COSTS, draws=6, seed=7):
        learned = told(problem, true, placements[:TOLD]).problem
        before.append(np.abs(errors_of(problem, true, placements[TOLD:])).mean())
        after.append(np.abs(errors_of(learned, true, placements[TOLD:])).mean())
    assert np.mean(after) < 0.6 * np.mean(before)


def test_without_news_the_costs_stay(problem: Problem) -> None:
    assert CostLearner(problem, ESTIMATED_COSTS, seed=0).problem is problem


def test_the_order_of_measurements_does_not_count(problem: Problem) -> None:
    (true,) = draw_problems(problem, ESTIMATED_COSTS, draws=1, seed=3)
    placements = random_placements(problem, 8, seed=1)
    forwards = told(problem, true, placements).problem
    backwards = told(problem, true, placements[::-1]).problem
    np.testing.assert_allclose(forwards.cost_ns, backwards.cost_ns, rtol=1e-6, atol=1)


def test_draws_agree_on_what_was_told_and_differ_before(problem: Problem) -> None:
    (true,) = draw_problems(problem, ESTIMATED_COSTS, draws=1, seed=5)
    placements = random_placements(problem, TOLD, seed=2)
    rng = np.random.default_rng(0)

    def spread(learner: CostLearner) -> float:
        rows = [errors_of(learner.draw(rng), true, placements) for _ in range(20)]
        return float(np.std(rows, axis=0).mean())

    before = spread(CostLearner(problem, ESTIMATED_COSTS, seed=0))
    after = spread(told(problem, true, placements))
    assert 0 < after < 0.5 * before


def test_a_placement_that_cannot_run_is_no_news() -> None:
    problem = hp.load_problem("example")
    learner = CostLearner(problem, ESTIMATED_COSTS, seed=0)
    no_memory = problem.replace(device_memory_bytes=np.zeros(problem.num_devices, np.int64))
    other = CostLearner(no_memory, ESTIMATED_COSTS, seed=0)
    other.tell(np.zeros(problem.num_ops, np.int32), 1.0)
    assert other.problem is no_memory
    learner.tell(np.zeros(problem.num_ops, np.int32), 1.0)
    assert learner.problem is not problem


def test_of_very_large_graphs_nothing_is_learned() -> None:
    problem = large_problem(50_000)
    learner = CostLearner(problem, ESTIMATED_COSTS, seed=0)
    learner.tell(np.zeros(problem.num_ops, np.int32), 1.0)
    assert learner.problem is problem
    assert learner.draw(np.random.default_rng(0)) is problem
