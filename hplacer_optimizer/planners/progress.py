"""How far a search has come, in words."""

from __future__ import annotations

from hplacer_optimizer.planners import Budget, Progress
from hplacer_optimizer.support.formats import format_ns


def describe_progress(progress: Progress) -> str:
    """As "step 412, 13,184 placements, best 41.2 ms, mean 57.3 ms, entropy 0.12, 3% infeasible".

    Where placements are measured: "step 3, 48 measured, 2 failed, best ...".
    """
    parts = [f"step {progress.steps:,}"]
    if progress.measured is not None:
        parts.append(f"{progress.measured:,} measured, {progress.failed:,} failed")
    elif progress.placements:
        parts.append(f"{progress.placements:,} placements")
    parts.append("nothing that fits yet" if progress.best_ns is None else _best(progress.best_ns))
    if progress.mean_ns is not None:
        parts.append(f"mean {format_ns(round(progress.mean_ns))}")
    if progress.entropy is not None:
        parts.append(f"entropy {progress.entropy:.2f}")
    if progress.placements and progress.measured is None:
        parts.append(f"{progress.infeasible:.0%} infeasible")
    return ", ".join(parts)


def _best(best_ns: int) -> str:
    return f"best {format_ns(best_ns)}"


def seconds_left(budget: Budget, progress: Progress, elapsed_s: float) -> float | None:
    """Until the first limit of the budget is met; None without one that tells."""
    limits = []
    if budget.seconds is not None:
        limits.append(budget.seconds - elapsed_s)
    if budget.steps is not None and progress.steps:
        limits.append(elapsed_s * (budget.steps / progress.steps - 1))
    return max(min(limits), 0.0) if limits else None
