"""What all searches of the engine are told: seed, cores, the limits of a budget, whom to tell."""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.machines.host import whole_cores
from hplacer_optimizer.planners.budget import Budget, Progress
from hplacer_optimizer.planners.result import Watch


def search_keywords(budget: Budget, watch: Watch, *, begin_s: float, seed: int) -> dict[str, Any]:
    """Keywords of `_engine.local_search` and `_engine.rollout_search`.

    The search began at `begin_s`, a `time.monotonic()`. A step of the budget is an evaluation.
    """

    def report(evaluations: int, best_ns: int | None) -> bool:
        if evaluations:
            watch(Progress(steps=evaluations, best_ns=best_ns, placements=evaluations))
        return not budget.stopped

    return {
        "seed": seed % (1 << 64),
        "threads": whole_cores(),
        "seconds": budget.left(begin_s).seconds,
        "max_evaluations": budget.steps,
        "patience": budget.patience,
        "on_progress": report,
    }
