"""The signature that all planners share, what they return, and what they tell meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.budget import Budget, Progress, ProgressCallback

_CURVE_POINTS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannerResult:
    """A placement of n ops, and what the planner has to say of it.

    Attributes:
        placement: int32[n], a device index per op.
        notes: a limit that was hit, a quality that was not reached: sentences that name the
            planner.
        curve: how the search went, at most 1,000 points of it, evenly spread.
        steps: of the budget that were used; 0 of a planner that does not search.
        placements: how many were scored.

    Example, a planner of one's own:
        >>> import hplacer_optimizer as hp
        >>> def first_candidate(problem, *, budget=None, seed=0, on_progress=None):
        ...     of_units = problem.candidates[problem.candidate_ptr[:-1]]
        ...     return hp.PlannerResult(placement=of_units[problem.units], notes=["took the first"])
        >>> first_candidate(hp.load_problem("example")).placement.tolist()
        [0, 0, 0, 0, 0, 0, 0, 0, 0]
    """

    placement: NDArray[np.int32]
    notes: Sequence[str] = ()
    curve: Sequence[Progress] = ()
    steps: int = 0
    placements: int = 0


class Planner(Protocol):
    """Chooses a device for every op.

    A planner is deterministic in (problem, budget in steps, seed), and anytime: stopped early, it
    returns the best valid placement so far.
    """

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget | None = None,
        seed: int = 0,
        on_progress: ProgressCallback | None = None,
    ) -> PlannerResult:
        """Without a budget a planner takes its own default.

        Raises InfeasibleError if an op has no device at all.
        """


class Watch:
    """Passes on what searches tell, and keeps it for the result.

    Searches that follow each other, with `begin()` between them, are told of as one.
    """

    def __init__(self, on_progress: ProgressCallback | None = None) -> None:
        self._on_progress = on_progress
        self._before = self.last = Progress(steps=0, best_ns=None)
        self._curve: list[Progress] = []
        self._every = 1
        self._told = 0

    def begin(self) -> None:
        """Another search begins, which counts from zero."""
        self._before = self.last

    def __call__(self, progress: Progress) -> None:
        best = [ns for ns in (self._before.best_ns, progress.best_ns) if ns is not None]
        self.last = replace(
            progress,
            steps=self._before.steps + progress.steps,
            placements=self._before.placements + progress.placements,
            best_ns=min(best, default=None),
        )
        if self._told % self._every == 0:
            self._curve.append(self.last)
        self._told += 1
        if len(self._curve) > _CURVE_POINTS:
            self._every *= 2
            self._curve = self._curve[::2]
        self.pass_on(self.last)

    def pass_on(self, progress: Progress) -> None:
        """Tells it to the caller alone: it is no step of the search."""
        if self._on_progress is not None:
            self._on_progress(progress)

    @property
    def curve(self) -> tuple[Progress, ...]:
        """What was told so far, as `PlannerResult.curve`."""
        return tuple(self._curve)

    def result(
        self,
        placement: NDArray[np.int32],
        *,
        notes: Sequence[str] = (),
    ) -> PlannerResult:
        """The result of the searches that were watched."""
        return PlannerResult(
            placement=placement,
            notes=tuple(notes),
            curve=self.curve,
            steps=self.last.steps,
            placements=self.last.placements,
        )
