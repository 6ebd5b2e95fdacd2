"""Search by measured step time, which learns from it what the simulator does not know.

    starts    placements that are fast in the simulator, found in different ways, and single devices
    learn     the costs with which the simulator would have told the measured steps
              (problem/cost_learning.py)
    plan      a search by simulation with these costs; its placement is measured
    move      of the best measured placement, one of those of the search by simulation
              (cc/engine/search/move_maker.h); of a few the one with the shortest simulated step,
              with these costs, is measured
    accept    if its median is less than the best one's, and still is when both are measured again

Plans and moves take turns. A step of the budget is a measured placement.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
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
from hplacer_optimizer.planners.local_search import search as simulated_search
from hplacer_optimizer.planners.result import Planner
from hplacer_optimizer.problem.cost_errors import MEASURED_COSTS, CostErrors
from hplacer_optimizer.problem.cost_learning import CostLearner
from hplacer_optimizer.problem.simulator import simulate_batch

DEFAULT_BUDGET = Budget(seconds=600)

_SIZES = (256, 64, 16)  # clusters of units, from fine to coarse
_CLUSTERS_PER_DEVICE = 8
_DRAWS = 8  # new moves of which the simulator chooses one
_MOST_DRAWS = 400  # of which some are new
_SIMULATED = 3  # starts of the simulated search, with different seeds
_SIMULATED_EVALUATIONS = 5_000
_SIMULATED_S = 10.0
_PLANNING_EVALUATIONS = 1_500  # of a plan with learned costs
_PLANNING_S = 3.0
_STARTS = 4  # the fastest that were measured
_PLANNINGS = 3  # till one is new
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
    errors: CostErrors = MEASURED_COSTS,
    without: Collection[str] = (),
) -> list[str]:
    """Measures placements until the budget ends; `reward.best` is the answer.

    Args:
        problem: as it was before anything was measured.
        reward: what measures.
        planner: searches by simulation, for starts.
        budget: a step is a measured placement.
        seed: of what is drawn.
        on_progress: is told of each measurement.
        errors: how wrong the problem's costs typically are.
        without: parts that are left out, to see what they give: "learning" plans with the costs as
            they stand, or as likely ones where that is nothing new; "plans" makes moves only.

    Returns what the planner had to say of its starts. Raises what `Measurer.measure` raises.
    """
    running = _MeasuredSearch(
        problem,
        reward,
        (budget or Budget()).or_default(DEFAULT_BUDGET),
        seed,
        on_progress,
        CostLearner(problem, errors, seed=seed),
        frozenset(without),
    )
    if running.measure(running.starts(planner)):
        running.climb()
    return list(dict.fromkeys(running.notes))


class _MeasuredSearch:
    def __init__(
        self,
        problem: Problem,
        reward: MeasuredReward,
        budget: Budget,
        seed: int,
        on_progress: ProgressCallback | None,
        costs: CostLearner,
        without: frozenset[str],
    ) -> None:
        self._problem, self._reward, self._budget = problem, reward, budget
        self._costs, self._without = costs, without
        self._seed, self._drawn, self._plans, self._told = seed, 0, 0, 0
        self._on_progress = on_progress
        self.notes: list[str] = []
        self._ends = math.inf if budget.seconds is None else time.monotonic() + budget.seconds
        clusters = _engine.cluster_units(problem, list(_SIZES), _CLUSTERS_PER_DEVICE)
        self._random_moves = _engine.RandomMoves(problem, np.array(clusters, np.int32))

    def starts(self, planner: Planner) -> list[_Int32]:
        """The simulator's favourites first."""
        seconds = min(_SIMULATED_S, _SHARE * (self._budget.seconds or math.inf))
        budget = self._simulating(_SIMULATED_EVALUATIONS, seconds)
        results = [
            planner(self._problem, budget=budget, seed=self._seed + i) for i in range(_SIMULATED)
        ]
        self.notes += [note for result in results for note in result.notes]
        found = [result.placement for result in results]
        found += [on_device(self._problem, i) for i in range(self._problem.num_devices)]
        return list({start.tobytes(): start for start in found}.values())

    def _simulating(self, evaluations: int, seconds: float) -> Budget:
        """The evaluations repeat a search by simulation wherever there is the time."""
        return replace(self._budget, seconds=seconds, steps=evaluations, patience=None)

    def measure(self, placements: Sequence[_Int32]) -> bool:
        """As many as the budget allows; False if it ended meanwhile."""
        left = len(placements)
        if self._budget.steps is not None:
            left = min(left, max(self._budget.steps - self._reward.measured, 0))
        return self._wait([self._reward.submit(placement) for placement in placements[:left]])

    def climb(self) -> None:
        """From the best start, plans and moves in turn."""
        improved = self._reward.measured
        may_plan = plans = "plans" not in self._without
        while (best := self._reward.best) and not self._is_over(improved):
            self._learn()
            tried = (self._new_plans() if plans else []) or self._moves(best[0])
            plans = may_plan and not plans
            if not tried or not self.measure(tried):
                return
            rival = self._reward.best
            if rival and not np.array_equal(rival[0], best[0]):
                improved = self._reward.measured
                self._wait([self._reward.submit_again(placement) for placement, _ in (rival, best)])

    def _learn(self) -> None:
        """From what was measured since."""
        if "learning" in self._without:
            return
        steps_s = self._reward.steps_s
        for placement, seconds in steps_s[self._told :]:
            self._costs.tell(placement, seconds)
        self._told = len(steps_s)

    def _new_plans(self) -> list[_Int32]:
        """As many as are measured at once, each new; empty if none is found."""
        new: dict[bytes, _Int32] = {}
        left = self._ends - time.monotonic()  # learning may have taken what there was
        seconds = min(_PLANNING_S, max(left, _LOOK_S))
        budget = self._simulating(_PLANNING_EVALUATIONS, seconds)
        starts = self._fastest(_STARTS)
        for attempt in range(_PLANNINGS + self._reward.parallel - 1):
            self._plans += 1
            rng = np.random.default_rng([self._seed, self._plans])
            problem = self._costs.draw(rng) if attempt else self._costs.problem
            found = simulated_search(
                problem, starts, budget=budget, seed=self._seed + self._plans, on_progress=None
            ).placement
            if not self._reward.is_known(found):
                new[found.tobytes()] = found
            if len(new) == self._reward.parallel or self._is_late():
                break
        return list(new.values())

    def _fastest(self, count: int) -> list[_Int32]:
        measured = sorted(self._reward.steps_s, key=lambda pair: pair[1])
        return [placement for placement, _ in measured[:count]]

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
        makespan_ns, _, _ = simulate_batch(self._costs.problem, np.array(moves))
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
