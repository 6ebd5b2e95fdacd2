"""The planners that learn, with their default preset; `planners/learning/` has the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.budget import Budget, Planner, ProgressCallback
from hplacer_optimizer.planners.learning import learn


def learned(model: str) -> Planner:
    """The planner of that name, one of LEARNED_PLANNERS."""

    def plan(
        problem: Problem,
        *,
        budget: Budget | None = None,
        seed: int = 0,
        on_progress: ProgressCallback | None = None,
    ) -> NDArray[np.int32]:

        found = learn(problem, model=model, budget=budget, seed=seed, on_progress=on_progress)
        return found.placement

    return plan
