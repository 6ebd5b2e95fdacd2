"""The `etf` planner: memory-constrained earliest-task-first list scheduling, in one native call.

Jeon et al., "Baechi: Fast Device Placement of Machine Learning Graphs", SoCC 2020;
`cc/engine/schedulers/etf.h` says where it departs from the paper.
"""

from __future__ import annotations

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.result import PlannerResult


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Plans as any `Planner`.

    It neither searches nor draws: budget and seed change nothing and no progress is reported.
    """
    return PlannerResult(placement=_engine.place_etf(problem))
