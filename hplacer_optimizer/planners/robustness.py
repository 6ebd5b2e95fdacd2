"""Makes a placement less sensitive to errors of the costs.

    candidates --> the one with the least mean step over drawn costs --moves--> a smaller mean

The placement that a search ends with is the best for the costs as they stand. Part of its lead is
chance: ops and transfers that meet just in time, and no longer do if one of them takes a little
longer. The mean step over costs that are as likely does not reward that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import ProblemError
from hplacer_optimizer.machines.host import whole_cores
from hplacer_optimizer.planners.colocation import scopes_of_units
from hplacer_optimizer.planners.launch_orders import number_searched
from hplacer_optimizer.problem.cost_errors import MEASURED_COSTS, CostErrors, draw_problems
from hplacer_optimizer.problem.simulator import SIMULATED_PER_S, simulate_batch

TOLERANCE = 0.01
"""Share of the shortest step, for the costs as they stand, by which another one may be longer."""
LEAST_GAIN = 0.005
"""Share by which the mean step has to become shorter in all; less may be chance."""
SECONDS = 0.8
"""How long the moves take about, on one idle core."""
_DRAWS = 16
_LEAST_ROUNDS, _MOST_ROUNDS = 8, 200
_MOVES, _SHORTLIST = 32, 8  # a round makes so many moves, and draws costs for so many


def seconds_needed(problem: Problem, seconds: float) -> float:
    """Of `seconds`, how long the moves take about; 0 where there is no time for them."""
    return _rounds(problem, seconds) * _work(problem) / SIMULATED_PER_S


class MeanStep:
    """The mean step time of placements over the same drawn costs.

    Attributes:
        best: the best candidate for the costs as they stand, int32[n].
        rounds: how many rounds of moves there is time for.
        simulations: how many the mean step of a placement takes.
    """

    def __init__(
        self,
        problem: Problem,
        drawn: Sequence[Problem],
        *,
        best: NDArray[np.int32],
        limit_ns: float,
        rounds: int,
    ) -> None:
        self.best, self.rounds = best, rounds
        self.simulations = number_searched(problem) + len(drawn)
        self._problem, self._drawn, self._limit_ns = problem, drawn, limit_ns
        self._threads = whole_cores()  # which reads files, and is asked for in each round

    @classmethod
    def over_draws(
        cls,
        problem: Problem,
        candidates: Sequence[NDArray[np.int32]],
        *,
        errors: CostErrors = MEASURED_COSTS,
        seconds: float = SECONDS,
        seed: int = 0,
    ) -> MeanStep | None:
        """Draws costs.

        Args:
            problem: with the costs as they stand.
            candidates: int32[n] each, at least one; what lasts longer than the best of them by more
                than TOLERANCE, for the costs as they stand, has an infinite mean.
            errors: by which the drawn costs differ.
            seconds: how long the moves may take about, on one idle core.
            seed: of the draws.

        Returns:
            None if no candidate is feasible, or there is no time: for more than 6,000 ops in 0.8 s,
            or 4,400 where GPUs launch ahead.
        """
        rounds = _rounds(problem, seconds)
        if not rounds:
            return None
        step_ns, feasible, _ = simulate_batch(problem, np.stack(candidates), threads=whole_cores())
        if not feasible.any():
            return None
        try:
            drawn = list(draw_problems(problem, errors, draws=_DRAWS, seed=seed))
        except ProblemError:  # times that do not fit into 64 bits
            return None
        best = int(np.where(feasible, step_ns, np.inf).argmin())
        limit_ns = (1 + TOLERANCE) * float(step_ns[best])
        return cls(problem, drawn, best=candidates[best], limit_ns=limit_ns, rounds=rounds)

    def of(self, placement: NDArray[np.int32]) -> float:
        """Of one placement int32[n], ns; infinite as in `of_shortest`."""
        return float(self.of_shortest(placement[None])[0])

    def of_shortest(self, placements: NDArray[np.int32]) -> NDArray[np.float64]:
        """Of placements int32[count, n], ns, float64[count].

        Infinite for those that are infeasible, also with drawn costs, and for all but the eight
        that are shortest for the costs as they stand.
        """
        means_ns = np.full(len(placements), np.inf)
        step_ns, feasible, _ = simulate_batch(self._problem, placements, threads=self._threads)
        near = np.flatnonzero(feasible & (step_ns <= self._limit_ns))
        near = near[np.argsort(step_ns[near], kind="stable")][:_SHORTLIST]
        if len(near):
            rows = [self._steps_ns(drawn, placements[near]) for drawn in self._drawn]
            means_ns[near] = np.mean(rows, axis=0)
        return means_ns

    def _steps_ns(self, drawn: Problem, placements: NDArray[np.int32]) -> NDArray[np.float64]:
        """Each draw of costs has an order of launches, too."""
        step_ns, feasible, _ = simulate_batch(
            drawn, placements, threads=self._threads, launch_orders=1
        )
        return np.where(feasible, step_ns, np.inf)


def make_robust(
    problem: Problem,
    candidates: Sequence[NDArray[np.int32]],
    mean_step: MeanStep,
    *,
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
) -> NDArray[np.int32]:
    """Makes moves of the search (cc/engine/search/move_maker.h) while they shorten the mean step.

    It begins with the best candidate, which stays unless the mean becomes shorter by LEAST_GAIN.
    The result depends on the problem and the seed alone, unless it is stopped.

    Args:
        problem: with the costs as they stand.
        candidates: those that `mean_step` was made of.
        mean_step: what is made shorter.
        seed: of the moves.
        should_stop: asked between rounds of moves.

    Returns:
        int32[n]; feasible, and with a step at most TOLERANCE longer than the best candidate's.
    """
    best = mean_step.best
    best_ns = before_ns = mean_step.of(best)
    scopes = scopes_of_units(problem)
    moves = _engine.RandomMoves(problem, scopes.reshape(int(scopes.size > 0), problem.num_units))
    tried = np.stack(candidates)
    for i in range(1 + mean_step.rounds):
        means_ns = mean_step.of_shortest(tried)
        if len(tried) and means_ns.min() < best_ns:
            best, best_ns = tried[means_ns.argmin()], means_ns.min()
        if should_stop():
            break
        tried = moves.draw(best, _MOVES, (seed + i) % (1 << 64))
    return best if best_ns <= before_ns * (1 - LEAST_GAIN) else mean_step.best


def _rounds(problem: Problem, seconds: float) -> int:
    """By sizes alone, so that results do not depend on how busy the machine is; 0: too few."""
    if not problem.num_ops:
        return 0
    rounds = int(seconds * SIMULATED_PER_S) // _work(problem)
    return min(rounds, _MOST_ROUNDS) if rounds >= _LEAST_ROUNDS else 0


def _work(problem: Problem) -> int:
    """Of a round, in simulated ops."""
    return problem.num_ops * (_MOVES * number_searched(problem) + _SHORTLIST * _DRAWS)
