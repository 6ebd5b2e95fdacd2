"""The `rollout` planner: placements built along the step, by a score of (item, device) pairs.

Event-driven construction by the simulator's own queue rules, in one native call:
`cc/engine/rollout/rollout.h` says how a placement is built, `rollout_search.h` how many are tried,
`placement_policy.h` what the features of a pair mean. A policy is a weight per feature; HEFT's
earliest finish time is one of them. Those below are set by hand.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.colocation import scopes_of_units
from hplacer_optimizer.planners.native_search import search_keywords
from hplacer_optimizer.planners.result import PlannerResult, Watch

_SECONDS_PER_OP, _LEAST_SECONDS, _PATIENCE = 1e-4, 0.5, 1000


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a rollout chooses devices.

    Attributes:
        weights: of features, by name (`_engine.ROLLOUT_FEATURES`); of others 0. All features are
            nanoseconds; the lowest sum wins.
        is_lazy: items wait for an idle device, and the one with the longest way to the end of the
            step is decided first. Otherwise each is decided as soon as its inputs are computed.
    """

    weights: Mapping[str, float]
    is_lazy: bool = False

    def row(self) -> list[float]:
        """The weights in the order of the features, then whether it is lazy."""
        weights = [float(self.weights.get(name, 0.0)) for name in _engine.ROLLOUT_FEATURES]
        return [*weights, float(self.is_lazy)]


EARLIEST_FINISH = Policy(weights={"wait": 1, "late": 1, "work": 1})
"""HEFT's rule, for comparison: no other reason counts."""

BY_HAND = (
    # Balanced. Waiting is the unit of all weights. Tensors between devices cost nearly what they
    # take, more so to neighbours that were there in the last pass: they know where they are. Work
    # at the same time on the same device costs one and a half times what it is, since some of it
    # will be late and hold up others. A full memory is avoided gently; a stronger weight tears
    # apart what belongs together.
    Policy(
        weights={
            "wait": 1,
            "late": 0.6,
            "critical_wait": 0.2,
            "apart": 0.85,
            "apart_before": 1.6,
            "crowding": 1.5,
            "scope_apart": 0.05,
            "moved": 0.1,
            "full": 0.15,
        }
    ),
    # The longest way first: what it needs is decided before what could run elsewhere, so that late
    # inputs count in full. What has moved once stays, which calms the later passes.
    Policy(
        is_lazy=True,
        weights={
            "wait": 1,
            "late": 1.2,
            "critical_wait": 0.3,
            "work": 0.7,
            "transfer": 0.2,
            "apart": 0.5,
            "critical_apart": 0.1,
            "crowding": 2.8,
            "moved": 0.5,
            "full": 0.2,
        },
    ),
    # Close to earliest finish, for machines whose links cost little.
    Policy(
        weights={
            "wait": 1,
            "late": 0.75,
            "critical_wait": 0.25,
            "work": 0.5,
            "transfer": 0.2,
            "apart": 0.12,
            "apart_before": 0.3,
            "critical_apart": 0.2,
            "crowding": 0.15,
            "full": 0.2,
        }
    ),
    # Spreads: for wide steps, and for tight memories.
    Policy(
        weights={
            "wait": 1,
            "late": 1.7,
            "work": 2,
            "apart": 0.06,
            "critical_apart": 0.4,
            "crowding": 8,
            "scope_apart": 0.3,
            "moved": 0.1,
            "full": 1.8,
        }
    ),
)
"""Tried in this order, each with every kind of items."""


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
    policies: Sequence[Policy] = BY_HAND,
    passes: int = 3,
    units_only: bool = False,
    sweeps: bool = True,
    scopes: NDArray[np.int32] | None = None,
) -> PlannerResult:
    """The same with other policies, or without a part of the search, to see what it is worth.

    Args:
        problem: to place.
        budget: see `plan`.
        seed: of the sweeps.
        on_progress: see `Planner`.
        policies: at least one.
        passes: how often a chain decides all items, at least 1.
        units_only: no clusters and no scopes are items.
        sweeps: decide parts of the best placement again until the budget is used.
        scopes: int32[U], `colocation.scopes_of_units(problem)` if that is known already.
    """
    begin_s = time.monotonic()
    _engine.check_candidates(problem)
    budget = (budget or Budget()).or_default(default_budget(problem))
    watch = Watch(on_progress)
    if scopes is None:
        scopes = scopes_of_units(problem)
    placement, evaluations, ended_by_time = _engine.rollout_search(
        problem,
        scopes,
        np.array([policy.row() for policy in policies]),
        passes=passes,
        clusters=not units_only,
        sweeps=sweeps,
        **search_keywords(budget, watch, begin_s=begin_s, seed=seed),
    )
    notes = [f"rollout: {evaluations} placements"] if ended_by_time else []
    return watch.result(placement, notes=notes)
