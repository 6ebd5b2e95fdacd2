"""Local search by measured step time: the best of what the simulator likes, then moves of clusters.

    starts    placements that are fast in the simulator, found in different ways, and single devices
    move      one of those of the search by simulation (cc/engine/search/move_maker.h); of a few the
              one with the shortest simulated step is measured
    accept    if its median is less than the best one's, and still is when both are measured again

A step of the budget is a measured placement.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.measuring.measurement import Measurement
from hplacer_optimizer.measuring.reward import MeasuredReward
from hplacer_optimizer.planners.budget import Budget, Progress, ProgressCallback
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.planners.result import Planner
from hplacer_optimizer.problem.simulator import simulate_batch

DEFAULT_BUDGET = Budget(seconds=600)

_SIZES = (256, 64, 16)  # clusters of units, from fine to coarse
_CLUSTERS_PER_DEVICE = 8
_DRAWS = 8  # new moves of which the simulator chooses one
_MOST_DRAWS = 400  # of which some are new
_SIMULATED = 3  # starts of the simulated search, with different seeds
_SIMULATED_EVALUATIONS = 5_000
_SIMULATED_S = 10.0
_SHARE = 0.1  # of the time, at most, for each of these
_LOOK_S = 0.1

_Int32 = NDArray[np.int32]


def search(
    problem: Problem,
    reward: MeasuredReward,
    planner: Planner,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> list[str]:
    """Measures placements until the budget ends; `reward.best` is the answer.

    `planner` searches by simulation, for starts. Returns what it had to say of them. Raises what
    `Measurer.measure` raises.
    """
    running = _Search(
        problem, reward, (budget or Budget()).or_default(DEFAULT_BUDGET), seed, on_progress
    )
    if running.measure(running.starts(planner)):
        running.climb()
    return list(dict.fromkeys(running.notes))


class _Search:
    def __init__(
        self,
        problem: Problem,
        reward: MeasuredReward,
        budget: Budget,
        seed: int,
        on_progress: ProgressCallback | None,
    ) -> None:
        self._problem, self._reward, self._budget = problem, reward, budget
        self._seed, self._drawn = seed, 0
        self._on_progress = on_progress
        self.notes: list[str] = []
        self._ends = math.inf if budget.seconds is None else time.monotonic() + budget.seconds
        clusters = _engine.cluster_units(problem, list(_SIZES), _CLUSTERS_PER_DEVICE)
        self._random_moves = _engine.RandomMoves(problem, np.array(clusters, np.int32))

    def starts(self, planner: Planner) -> list[_Int32]:
        """The simulator's favourites first."""
        seconds = min(_SIMULATED_S, _SHARE * (self._budget.seconds or math.inf))
        budget = replace(
            self._budget, seconds=seconds, steps=_SIMULATED_EVALUATIONS, patience=None
        )  # the steps repeat it wherever there is the time
        results = [
            planner(self._problem, budget=budget, seed=self._seed + i) for i in range(_SIMULATED)
        ]
        self.notes += [note for result in results for note in result.notes]
        found = [result.placement for result in results]
        found += [on_device(self._problem, i) for i in range(self._problem.num_devices)]
        return list({start.tobytes(): start for start in found}.values())

    def measure(self, placements: Sequence[_Int32]) -> bool:
        """As many as the budget allows; False if it ended meanwhile."""
        left = len(placements)
        if self._budget.steps is not None:
            left = min(left, max(self._budget.steps - self._reward.measured, 0))
        return self._wait([self._reward.submit(placement) for placement in placements[:left]])

    def climb(self) -> None:
        """From the best start, one move after the other."""
        improved = self._reward.measured
        while (best := self._reward.best) and not self._is_over(improved):
            moves = self._moves(best[0])
            if not moves or not self.measure(moves):
                return
            rival = self._reward.best
            if rival and not np.array_equal(rival[0], best[0]):
                improved = self._reward.measured
                self._wait([self._reward.submit_again(placement) for placement, _ in (rival, best)])

    def _is_over(self, improved: int) -> bool:
        measured, budget = self._reward.measured, self._budget
        return (
            (budget.steps is not None and measured >= budget.steps)
            or (budget.patience is not None and measured - improved >= budget.patience)
            or self._is_late()
        )

    def _is_late(self) -> bool:
        return self._budget.stopped or time.monotonic() > self._ends

    def _moves(self, placement: _Int32) -> list[_Int32]:
        """As many as are measured at once, each new; empty if there seem to be no more."""
        new: dict[bytes, _Int32] = {}
        parallel = self._reward.parallel
        wanted = draws = _DRAWS * parallel
        while len(new) < wanted and draws <= _MOST_DRAWS * parallel:
            self._drawn += 1
            for move in self._random_moves.draw(
                placement, draws, (self._seed + self._drawn) % (1 << 64)
            ):
                if len(new) < wanted and not self._reward.is_known(move):
                    new[move.tobytes()] = move
            draws *= 2
        if not new:
            return []
        moves = list(new.values())
        makespan_ns, _, _ = simulate_batch(self._problem, np.array(moves))
        order = np.where(makespan_ns < 0, np.inf, makespan_ns).argsort(kind="stable")
        return [moves[i] for i in order[:parallel]]

    def _wait(self, futures: Sequence[Future[Measurement]]) -> bool:
        """Until all are done; False if the budget ended before."""
        told = -1
        while not all(future.done() for future in futures):
            wait(futures, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            if self._is_late():
                return False
            if self._on_progress and self._reward.measured != told:
                told = self._reward.measured
                self._on_progress(self._progress())
        for future in futures:
            future.result()  # raises what no placement can help
        return True

    def _progress(self) -> Progress:
        return Progress(
            steps=self._reward.measured,
            best_ns=self._reward.best_ns,
            placements=self._reward.measured,
            measured=self._reward.measured,
            failed=self._reward.failed,
        )
