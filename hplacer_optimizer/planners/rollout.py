"""The `rollout` planner: placements built along the step, by a score of (item, device) pairs.

Event-driven construction by the simulator's own queue rules, in one native call:
`cc/engine/rollout/rollout.h` says how a placement is built, `rollout_search.h` how many are tried,
`policies.py` which policies there are.
"""

from __future__ import annotations

import time

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.colocation import scopes_of_units
from hplacer_optimizer.planners.native_search import search_keywords
from hplacer_optimizer.planners.policies import BY_HAND, Portfolio
from hplacer_optimizer.planners.result import PlannerResult, Watch

_SECONDS_PER_OP, _LEAST_SECONDS, _PATIENCE = 1e-4, 0.5, 1000


def default_budget(problem: Problem) -> Budget:
    """A second for 10,000 ops, at least half a second; less where nothing gets better."""
    seconds = max(_LEAST_SECONDS, _SECONDS_PER_OP * problem.num_ops)
    return Budget(seconds=seconds, patience=_PATIENCE)


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Plans as any `Planner`.

    A step of the budget is a placement built and scored. A note tells how many there were if the
    time ended the search: a budget of so many steps repeats it.
    """
    return search(problem, budget=budget, seed=seed, on_progress=on_progress)


def search(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
    portfolio: Portfolio = BY_HAND,
    passes: int = 3,
    sweeps: bool = True,
) -> PlannerResult:
    """The same with other policies, or without a part of the search, to see what it is worth.

    Args:
        problem: to place.
        budget: see `plan`.
        seed: of the sweeps.
        on_progress: see `Planner`.
        portfolio: the chains that are tried; sweeps draw of its policies and kinds of items.
        passes: how often a chain decides all items, at least 1.
        sweeps: decide parts of the best placement again until the budget is used.
    """
    begin_s = time.monotonic()
    _engine.check_candidates(problem)
    budget = (budget or Budget()).or_default(default_budget(problem))
    watch = Watch(on_progress)
    placement, evaluations, ended_by_time = _engine.rollout_search(
        problem,
        scopes_of_units(problem),
        portfolio.rows(),
        portfolio.chain_table(),
        passes=passes,
        sweeps=sweeps,
        **search_keywords(budget, watch, begin_s=begin_s, seed=seed),
    )
    notes = [f"rollout: {evaluations} placements"] if ended_by_time else []
    return watch.result(placement, notes=notes)
