"""What measured steps tell of the costs of a problem.

    typical errors --draw--> an ensemble of problems --simulate--> steps of measured placements
    steps as measured --regression over the ensemble--> how wrong each cost is --> a better problem

The errors of the costs are unknowns with a normal prior (cost_errors.py). An ensemble that is
drawn once tells how steps depend on them: each of its members simulates every measured placement,
and the errors are moved by the regression of errors on logarithms of steps. That is the analysis
step of the ensemble Kalman filter (Evensen, "The Ensemble Kalman Filter: theoretical formulation
and practical implementation", Ocean Dynamics 2003), used for inversion as by Iglesias, Law and
Stuart ("Ensemble Kalman methods for inverse problems", Inverse Problems 2013). It starts from the
prior each time, so the order of the measurements does not count.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import ProblemError
from hplacer_optimizer.problem.cost_errors import CostErrors, OtherCosts
from hplacer_optimizer.problem.simulator import simulate_batch

_MEMBERS, _LEAST_MEMBERS = 96, 24
_OPS = 1_000_000  # of all members
_UNEXPLAINED = 0.05
"""Standard deviation of the logarithm of a measured step, with the right costs: what no cost of the
model explains. Steps without transfers are off by 3% to 6% (docs/results/prediction)."""


class CostLearner:
    """Learns the costs of one problem from measured steps of placements."""

    def __init__(self, problem: Problem, errors: CostErrors, *, seed: int) -> None:
        """With typical errors as the prior, but for those of single ops: no few steps tell them.

        Of more than 40,000 ops nothing is learned, since it would take too long.
        """
        self._problem = problem
        self._costs = OtherCosts(problem, replace(errors, op=0.0))
        members = min(_MEMBERS, _OPS // max(problem.num_ops, 1))
        if members < _LEAST_MEMBERS:
            members = 0
        self._wrong = np.random.default_rng(seed).standard_normal((members, self._costs.size))
        try:
            self._members = [self._costs.problem(wrong) for wrong in self._wrong]
        except ProblemError:  # times that do not fit into 64 bits
            self._members = []
        self._simulated: list[NDArray[np.float64]] = []  # logarithms of steps, of each member
        self._measured: list[float] = []

    def tell(self, placement: NDArray[np.int32], seconds: float) -> None:
        """A placement int32[n] takes so long per step; one that cannot run is no news."""
        rows = [simulate_batch(member, placement[None]) for member in self._members]
        if not rows or not all(feasible[0] for _, feasible, _ in rows):
            return
        self._simulated.append(np.log([max(int(step_ns[0]), 1) for step_ns, _, _ in rows]))
        self._measured.append(np.log(seconds * 1e9))

    @property
    def problem(self) -> Problem:
        """With the costs that are most likely by what was told; the problem itself before that."""
        if not self._measured:
            return self._problem
        return self._moved(self._wrong.mean(axis=0), np.mean(self._simulated, axis=1))

    def draw(self, rng: np.random.Generator) -> Problem:
        """With costs that are as likely as they are by what was told."""
        if not self._members:
            return self._problem
        member = rng.integers(len(self._members))
        if not self._measured:
            return self._members[member]
        noise = _UNEXPLAINED * rng.standard_normal(len(self._measured))
        return self._moved(self._wrong[member], np.array(self._simulated)[:, member] + noise)

    def _moved(self, wrong: NDArray[np.float64], simulated: NDArray[np.float64]) -> Problem:
        """From errors float64[size], with which steps take so long, towards the measured steps."""
        steps = np.array(self._simulated)
        steps -= steps.mean(axis=1, keepdims=True)  # [told, members]
        noise = (len(self._members) - 1) * _UNEXPLAINED**2 * np.eye(len(steps))
        missing = np.array(self._measured) - simulated
        by_member = steps.T @ np.linalg.solve(steps @ steps.T + noise, missing)
        return self._costs.problem(wrong + (self._wrong - self._wrong.mean(axis=0)).T @ by_member)
