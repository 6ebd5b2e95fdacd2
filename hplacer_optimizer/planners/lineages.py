"""Local search that goes on from elsewhere when it stalls.

    starts --race--> start --search--> best --stalls--> a policy learns around the best, its draw
                                                        is searched on
                                            --stalls--> others race from the start, the best one
                                                        is searched on
                                            --stalls--> ...

Which of several starts is the best one shows after a short search from each, not before. On
recurrent graphs one search ends 10% above another that differs by its seed alone, and which one
shows early. Elsewhere a search gains as long as it lasts: then it never stalls, and nothing else is
tried.

The result depends on the problem, the starts, the seed and the number of evaluations, not on
threads. A placement that the policy drew is an evaluation.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.machines.host import whole_cores
from hplacer_optimizer.planners import local_search
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.learning.around import PLACEMENTS, learn_around
from hplacer_optimizer.planners.result import PlannerResult, Watch
from hplacer_optimizer.problem.simulator import SIMULATED_PER_S, simulate

PARTS = ("learner", "race")  # and those of `local_search`
_RACERS = 4
_RACED_SHARE = 1 / 16  # of the evaluations of the first search, for each racer
_START_SHARE = 0.1  # of the budget, for the search from each of several starts
_MOST_LEARNED_OPS = 50_000  # a policy of more takes seconds to make, which nothing interrupts
_LEAST_S = 0.02  # a search of less finds nothing
_SEEDS_APART = 7919  # those of one search are near each other

_Int32 = NDArray[np.int32]


def search(
    problem: Problem,
    starts: Sequence[_Int32],
    *,
    budget: Budget,
    seed: int,
    on_progress: ProgressCallback | None = None,
    without: Collection[str] = (),
) -> PlannerResult:
    """Plans as `local_search.search`, from one start or several.

    The result is no worse than any start, unless the budget ended before a search from it.

    `without`: what is left out, to see what it gives: of PARTS, without which it is `local_search`,
    and of that search's parts.
    """
    of_search = [part for part in without if part not in PARTS]
    searching = _Lineages(problem, starts, budget, seed, Watch(on_progress), of_search)
    return searching.run([part for part in PARTS if part not in without])


class _Lineages:
    """Searches that follow each other, and the best placement that they found."""

    def __init__(
        self,
        problem: Problem,
        starts: Sequence[_Int32],
        budget: Budget,
        seed: int,
        watch: Watch,
        without: Collection[str],
    ) -> None:
        self._problem, self._starts, self._seed, self._watch = problem, starts, seed, watch
        self._without = without
        self._budget, self._begin_s = budget, time.monotonic()
        self._start = self._best = starts[0]
        self._best_ns = math.inf
        self._searches = self._improved = 0  # how many, and the evaluations until the last gain

    def run(self, parts: Sequence[str]) -> PlannerResult:
        """Searches until the budget ends; where the first search ends otherwise, so does this."""
        found = self._first(until_stalled=bool(parts))
        notes = list(found.notes)
        if found.ended_by_time:
            notes[0] = self._evaluations()
        raced = max(int(_RACED_SHARE * found.steps), 1)
        turns = itertools.cycle(parts)
        while found.was_stalled and (left := self._left()) is not None:
            part = next(turns)
            if part == "learner" and self._can_learn(left):
                begin = self._learn(left)
            else:
                begin = self._race(raced) if "race" in parts else self._best
            if (left := self._left()) is None:
                break
            found = self._search(begin, left, until_stalled=True)
            if found.ended_by_time:
                notes = [self._evaluations()]
        return self._watch.result(self._best, notes=notes)

    def _first(self, *, until_stalled: bool) -> local_search.Searched:
        """The first search, from the start that wins a race if there are several."""
        if len(self._starts) == 1:
            return self._search(self._start, self._budget, until_stalled=until_stalled)
        winner = self._race_starts()
        if (left := self._left()) is None:
            return winner
        return self._search(winner.placement, left, until_stalled=until_stalled)

    def _evaluations(self) -> str:
        return f"local_search: {self._watch.last.steps} evaluations"

    def _left(self) -> Budget | None:
        """Of the budget; None: it is over."""
        left, evaluations = self._budget.left(self._begin_s), self._watch.last.steps
        steps = None if left.steps is None else left.steps - evaluations
        patience = left.patience
        if patience is not None:
            patience -= evaluations - self._improved
        limits = [steps, patience, None if left.seconds is None else left.seconds - _LEAST_S]
        if left.stopped or any(limit is not None and limit <= 0 for limit in limits):
            return None
        return replace(left, steps=steps, patience=patience)

    def _search(
        self, start: _Int32, budget: Budget, *, until_stalled: bool
    ) -> local_search.Searched:
        self._watch.begin()
        found = local_search.search(
            self._problem,
            [start],
            budget=budget,
            seed=self._seed + _SEEDS_APART * self._searches,
            on_progress=self._watch,
            until_stalled=until_stalled,
            without=self._without,
        )
        self._keep(found.placement)
        self._searches += 1
        return found

    def _keep(self, placement: _Int32) -> None:
        """What is better, and the last one as long as nothing fits."""
        step_ns = self._step_ns(placement)
        if step_ns < self._best_ns or self._best_ns == math.inf:
            self._best, self._best_ns, self._improved = placement, step_ns, self._watch.last.steps

    def _step_ns(self, placement: _Int32) -> float:
        trace = simulate(self._problem, placement)
        return float(trace.makespan_ns or 0) if trace.feasible else math.inf

    def _race_starts(self) -> local_search.Searched:
        """The best of short searches, one from each start; later races begin where it began."""
        found: list[local_search.Searched] = []
        short = self._budget.share(_START_SHARE)
        for start in self._starts:
            if found and self._left() is None:
                break
            found.append(self._search(start, short, until_stalled=False))
        steps_ns = [self._step_ns(each.placement) for each in found]
        winner = steps_ns.index(min(steps_ns))
        self._start = self._starts[winner]
        return found[winner]

    def _race(self, evaluations: int) -> _Int32:
        """The best of short searches from the first start, each with a seed of its own."""
        found: list[_Int32] = []
        while len(found) < _RACERS and (left := self._left()) is not None:
            steps = evaluations if left.steps is None else min(evaluations, left.steps)
            short = replace(left, steps=steps, patience=None)
            found.append(self._search(self._start, short, until_stalled=False).placement)
        return min(found, key=self._step_ns, default=self._best)

    def _can_learn(self, left: Budget) -> bool:
        """Whether there is time to learn, and to search on what was learned."""
        num_ops = self._problem.num_ops
        seconds = PLACEMENTS * num_ops / (SIMULATED_PER_S * whole_cores())
        return (
            num_ops <= _MOST_LEARNED_OPS
            and (left.steps is None or left.steps // 2 >= PLACEMENTS)
            and (left.seconds is None or seconds <= left.seconds / 2)
        )

    def _learn(self, left: Budget) -> _Int32:
        """The best placement, or one that a policy drew around it if that is better."""
        self._watch.begin()
        seed = self._seed + self._searches
        drawn = learn_around(
            self._problem, self._best, budget=left, seed=seed, on_progress=self._watch
        )
        self._keep(drawn)
        return self._best
