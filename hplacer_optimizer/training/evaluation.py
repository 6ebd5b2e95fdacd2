"""Compares portfolios of policies at equal effort: one chain, the best of 16, with sweeps.

Beside a trained one stand policies set by hand, earliest finish alone, and random weights. The
chains of each are chosen on the same training problems, so that all have their best one first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners import rollout
from hplacer_optimizer.planners.budget import Budget
from hplacer_optimizer.planners.colocation import scopes_of_units
from hplacer_optimizer.planners.policies import BY_HAND, EARLIEST_FINISH, Portfolio
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.training.problems import TrainingProblem, chain_steps_ns
from hplacer_optimizer.training.selection import CHAINS, random_portfolio, select

EFFORTS = ("one rollout", "best of 16", "with sweeps")
SECONDS_PER_OP = 1e-4
"""Of a search with sweeps, on one core."""


def rivals(problems: Sequence[TrainingProblem], *, seed: int = 0) -> dict[str, Portfolio]:
    """What a trained portfolio is compared with, by name; chains are chosen on these problems."""
    portfolios = {
        "by hand": BY_HAND,
        "earliest finish": EARLIEST_FINISH,
        "random weights": random_portfolio(seed),
    }
    return {name: select(one.policies, problems) for name, one in portfolios.items()}


def compare(
    problem: Problem, portfolios: Mapping[str, Portfolio], *, seeds: Sequence[int] = (0,)
) -> dict[str, dict[str, float]]:
    """The step of each portfolio at each effort, ns: result[portfolio][effort].

    Infinite where nothing fits the memories. No placement of another planner is among the
    candidates but single devices. With sweeps it is the median over the seeds, on one core.
    """
    scope = scopes_of_units(problem)
    found = {}
    for name, portfolio in portfolios.items():
        chains_ns = chain_steps_ns(problem, scope, portfolio)[:CHAINS]
        swept_ns = [_swept_ns(problem, portfolio, seed) for seed in seeds]
        steps = (chains_ns[0], chains_ns.min(), np.median(swept_ns))
        found[name] = dict(zip(EFFORTS, map(float, steps), strict=True))
    return found


def as_json(found: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """The same with None in place of infinity, which JSON does not know."""
    return {
        row: {effort: ns if np.isfinite(ns) else None for effort, ns in steps.items()}
        for row, steps in found.items()
    }


def _swept_ns(problem: Problem, portfolio: Portfolio, seed: int) -> float:
    budget = Budget(seconds=SECONDS_PER_OP * problem.num_ops)
    with one_core():
        result = rollout.search(problem, budget=budget, seed=seed, portfolio=portfolio)
    trace = simulate(problem, result.placement)
    return float(trace.makespan_ns) if trace.feasible and trace.makespan_ns else np.inf


@contextmanager
def one_core() -> Iterator[None]:
    """Within, this thread and the threads that it starts run on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def mean_ratio(steps: Sequence[float], others: Sequence[float]) -> float:
    """The geometric mean of steps over others, where both are finite; NaN if nowhere."""
    mine, theirs = np.array(steps), np.array(others)
    both = np.isfinite(mine) & np.isfinite(theirs)
    return float(np.exp(np.log(mine[both] / theirs[both]).mean())) if both.any() else np.nan
