"""How long a planner may search, and the signature that all planners share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import OptionError

# Called with the steps done so far and the best feasible makespan_ns, or None if none was found.
ProgressCallback = Callable[[int, "int | None"], None]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Where a search stops: at whichever limit it meets first. Raises OptionError."""

    seconds: float | None = None
    """Wall-clock seconds, more than 0; None: no limit."""
    steps: int | None = None
    """Steps of the planner (evaluations, updates), at least 1; None: no limit."""

    def __post_init__(self) -> None:
        if self.seconds is not None and (
            isinstance(self.seconds, bool)
            or not isinstance(self.seconds, (int, float))
            or not self.seconds > 0
        ):
            raise OptionError(f"budget seconds: must be more than 0, got {self.seconds!r}")
        if self.steps is not None and (type(self.steps) is not int or self.steps < 1):
            raise OptionError(f"budget steps: must be an integer of at least 1, got {self.steps!r}")


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
    ) -> NDArray[np.int32]:
        """Returns int32[n], a device index per op.

        Raises InfeasibleError if an op has no device at all. Without a budget a planner takes its
        own default.
        """
