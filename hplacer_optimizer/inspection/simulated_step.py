"""The simulated step of a placement: what reports, tables and exports are made of."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import LowerBound, Problem, StepTrace, lower_bound
from hplacer_optimizer.inspection.critical_path import Stage, critical_path
from hplacer_optimizer.inspection.waits import DeviceWaits, device_waits
from hplacer_optimizer.problem.simulator import simulate

__all__ = ["SimulatedStep"]


@dataclass(frozen=True, kw_only=True)
class SimulatedStep:
    """A step, and what is made of it on first use."""

    trace: StepTrace

    @classmethod
    def of(
        cls, problem: Problem, placement: Sequence[int] | NDArray[np.integer[Any]]
    ) -> SimulatedStep:
        """Simulates the step; raises ProblemError if the placement does not fit the problem."""
        return cls(trace=simulate(problem, placement))

    @property
    def problem(self) -> Problem:
        """The graph and the machine."""
        return self.trace.problem

    @property
    def placement(self) -> NDArray[np.int32]:
        """int32[n]: the device of each op."""
        return self.trace.placement

    @functools.cached_property
    def bound(self) -> LowerBound:
        """What no placement beats."""
        return lower_bound(self.problem)

    @functools.cached_property
    def path(self) -> list[Stage]:
        """The critical path in the order of time. The trace must have times."""
        return critical_path(self.problem, self.placement, self.trace)

    @functools.cached_property
    def waits(self) -> list[DeviceWaits]:
        """What each device does with the time of the step. The trace must have times."""
        return device_waits(self.problem, self.placement, self.trace)
