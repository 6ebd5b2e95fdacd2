"""Learns around a placement: where `hierarchical` begins with the graph alone, this begins with it.

One policy, of name scopes cut where the placement cuts them, draws it with some groups and items
elsewhere, and follows its policy gradient until it is certain. Its draws change many groups at
once, and what they have in common when they are good: another neighbourhood than that of a search
by single moves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.budget import Budget, Progress, ProgressCallback
from hplacer_optimizer.planners.learning.hierarchical import HierarchicalPolicy
from hplacer_optimizer.planners.learning.scoring import Simulated
from hplacer_optimizer.planners.learning.settings import Settings
from hplacer_optimizer.planners.learning.training import PolicyTraining

PLACEMENTS = 5_000
"""Drawn and scored in all."""
_SETTINGS = Settings(schedule=PLACEMENTS, off_one_device=20.0, race=False, finer=False)


def learn_around(
    problem: Problem,
    placement: NDArray[np.int32],
    *,
    budget: Budget,
    seed: int,
    on_progress: ProgressCallback,
) -> NDArray[np.int32]:
    """The best placement drawn, int32[n], which may be worse than the one given.

    `budget`: its seconds, and whether it is stopped. A step that is told is a placement.
    """
    policy = HierarchicalPolicy(problem, "hierarchical", _SETTINGS, seed, near=placement)
    training = PolicyTraining(policy, Simulated(problem))

    def tell(progress: Progress) -> None:
        on_progress(
            Progress(
                steps=progress.placements,
                best_ns=progress.best_ns,
                placements=progress.placements,
            )
        )

    updates = PLACEMENTS // _SETTINGS.batch
    training.run(Budget(seconds=budget.seconds, steps=updates, stop=budget.stop), tell)
    assert training.best is not None  # there is one step at least
    return training.best
