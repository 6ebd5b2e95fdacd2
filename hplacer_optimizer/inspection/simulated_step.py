"""A placement of a problem and its simulated step: what reports, tables and exports are made of."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.problem.bounds import Proof, StepBound, strongest
from hplacer_optimizer.problem.files import check_placement
from hplacer_optimizer.problem.simulator import simulate

__all__ = ["SimulatedStep"]


@dataclass(frozen=True, kw_only=True)
class SimulatedStep:
    """A problem of n ops, where each of them is, and the step that comes of it."""

    problem: Problem
    placement: NDArray[np.int32]  # [n]
    trace: StepTrace
    proofs: tuple[Proof, ...] = ()  # bounds of this problem that somebody proved

    @classmethod
    def of(
        cls,
        problem: Problem,
        placement: Sequence[int] | NDArray[np.integer[Any]],
        proofs: Sequence[Proof] = (),
    ) -> SimulatedStep:
        """Simulates the step; raises ProblemError if the placement does not fit the problem."""
        devices = check_placement(problem, placement)
        return cls(
            problem=problem,
            placement=devices,
            trace=simulate(problem, devices),
            proofs=tuple(proofs),
        )

    @functools.cached_property
    def bound(self) -> StepBound:
        """What no placement beats, as it is found now or as it was proved."""
        return strongest(self.problem, self.proofs)
