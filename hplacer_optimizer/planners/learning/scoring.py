"""Scores of placements: by the simulator, or by whatever the caller measures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.machines.host import whole_cores
from hplacer_optimizer.planners import launch_orders
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.problem.simulator import simulate, simulate_batch

Reward = Callable[[NDArray[np.int32]], float]
"""From a placement, int32[n], to seconds per step; a failure raises or gives no finite number."""

_OPS_AT_ONCE = 4_000_000  # scored before it is looked whether the budget has ended

# Added to the logarithm of the step time of what does not fit, and for each time that it needs a
# memory more; what has no step time gets more than either.
DOES_NOT_FIT, _PER_MEMORY, _MOST_MEMORIES, _NO_TRACE = 0.5, 2.0, 10.0, 25.0


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Of R placements."""

    seconds: NDArray[np.float64]  # [R] per step; inf where that is not known
    feasible: NDArray[np.bool_]  # [R]
    cost: NDArray[np.float64]  # [R] log(seconds), and more where it does not fit; finite
    complete: bool = True  # else the budget ended before all were scored

    @property
    def best(self) -> int:
        """The row of the shortest feasible step; of what fits best where nothing does."""
        return int(np.lexsort((self.cost, ~self.feasible))[0])


class Simulated:
    """Scores placements of one problem by the simulator, on all cores.

    Where the order of launches differs from start to start, batches are scored under different
    orders in turn, and the best placement of each by the worst of these.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._orders = launch_orders.searched(problem)
        self._batches = 0
        self._memory_bytes = np.maximum(problem.device_memory_bytes, 1)
        self._rows = max(whole_cores(), _OPS_AT_ONCE // max(problem.num_ops, 1))

    def score(self, placements: NDArray[np.int32], is_over: Callable[[], bool]) -> Scores:
        """Of the first rows of int32[R, n]: all of them, unless it is over before."""
        order = self._orders[self._batches % len(self._orders)]
        self._batches += 1
        found = []
        for first in range(0, len(placements), self._rows):
            if first and is_over():
                break
            rows = placements[first : first + self._rows]
            found.append(simulate_batch(order, rows, threads=whole_cores(), launch_orders=1))
        makespan_ns, feasible, peak_bytes = map(np.concatenate, zip(*found, strict=True))
        scored = placements[: len(makespan_ns)]
        has_trace = makespan_ns >= 0
        missing = np.maximum(peak_bytes - self._problem.device_memory_bytes, 0)
        memories = np.minimum((missing / self._memory_bytes).sum(axis=1), _MOST_MEMORIES)
        seconds = np.where(has_trace, makespan_ns / 1e9, np.inf)
        cost = np.log(np.maximum(np.where(has_trace, makespan_ns, 1) / 1e9, 1e-9))
        cost += np.where(feasible, 0.0, DOES_NOT_FIT + _PER_MEMORY * memories)
        if not has_trace.all():
            missing_links = _engine.missing_links(self._problem, scored[~has_trace])
            cost[~has_trace] = _NO_TRACE + np.log1p(missing_links)
        complete = len(scored) == len(placements)
        scores = Scores(seconds=seconds, feasible=feasible, cost=cost, complete=complete)
        if len(self._orders) > 1 and feasible[scores.best]:
            self._judge(scored, scores)
        return scores

    def _judge(self, placements: NDArray[np.int32], scores: Scores) -> None:
        """The best placement gets the worst of its steps."""
        row = scores.best
        trace = simulate(self._problem, placements[row])
        if not trace.feasible:
            scores.feasible[row] = False
            scores.cost[row] += DOES_NOT_FIT
            return
        worst_s = (trace.makespan_ns or 0) / 1e9
        scores.seconds[row] = worst_s
        scores.cost[row] = math.log(max(worst_s, 1e-9))


def best_single_device(problem: Problem) -> NDArray[np.int32]:
    """int32[n]: as much as may be on one device, the one that gives the shortest feasible step."""
    found = []
    for device in range(problem.num_devices):
        placement = on_device(problem, device)
        trace = simulate(problem, placement)
        makespan_ns = math.inf if trace.makespan_ns is None else float(trace.makespan_ns)
        found.append((not trace.feasible, makespan_ns, device, placement))
    return min(found)[-1]
