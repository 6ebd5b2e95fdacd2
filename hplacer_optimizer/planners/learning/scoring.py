"""Rewards of placements: by the simulator, or by whatever the caller measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.machines.host import whole_cores
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.problem.simulator import simulate, simulate_batch

Reward = Callable[[NDArray[np.int32]], float]
"""From a placement, int32[n], to seconds per step; a failure raises or gives no finite number."""

BatchReward = Callable[[NDArray[np.int32]], Sequence[float]]
"""From placements, int32[K, n], to seconds per step; no finite number is a failure."""

_UNKNOWN_FAILING_S = 100.0  # until something was measured; the released controller's signal


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Of R placements."""

    rewards: NDArray[np.float64]  # [R] -sqrt(seconds), of infeasible ones of the failing signal
    seconds: NDArray[np.float64]  # [R] per step; inf where that is not known
    feasible: NDArray[np.bool_]  # [R]
    ranked: NDArray[np.float64]  # [R] less is better among feasible, and among infeasible ones


class Scorer:
    """Scores placements of one problem."""

    def __init__(self, problem: Problem, failing_factor: float, reward: BatchReward | None) -> None:
        """`reward`: None simulates. `failing_factor`: see Settings."""
        self._problem = problem
        self._reward = reward
        self._factor = failing_factor
        self._measured: dict[bytes, float] = {}
        self.slowest_s = None if reward else _slowest_single_device_s(problem)

    def score(self, placements: NDArray[np.int32]) -> Scores:
        """Of int32[R, n]."""
        if self._reward is None:
            makespan_ns, feasible, peak_bytes = simulate_batch(
                self._problem, placements, threads=whole_cores()
            )
            seconds = np.where(makespan_ns < 0, np.inf, makespan_ns / 1e9)
            missing = np.maximum(peak_bytes - self._problem.device_memory_bytes, 0).sum(axis=1)
            ranked = np.where(feasible, seconds, np.where(makespan_ns < 0, np.inf, missing))
        else:
            seconds = self._measure(placements)
            feasible = np.isfinite(seconds)
            ranked = seconds
            slowest_s = max(seconds[feasible], default=0.0)
            self.slowest_s = max(self.slowest_s or 0.0, slowest_s) or None
        failing_s = self._factor * (self.slowest_s or _UNKNOWN_FAILING_S)
        rewards = -np.sqrt(np.where(feasible, seconds, failing_s))
        return Scores(rewards=rewards, seconds=seconds, feasible=feasible, ranked=ranked)

    def _measure(self, placements: NDArray[np.int32]) -> NDArray[np.float64]:
        """A failed measurement is data: inf. What was measured is not measured again."""
        assert self._reward is not None
        keys = [placement.tobytes() for placement in placements]
        rows = {key: row for row, key in enumerate(keys) if key not in self._measured}
        if rows:
            answers = self._reward(placements[list(rows.values())])
            for key, seconds in zip(rows, answers, strict=True):
                known = math.isfinite(seconds) and seconds > 0
                self._measured[key] = seconds if known else math.inf
        return np.array([self._measured[key] for key in keys])


def best_single_device(problem: Problem) -> NDArray[np.int32]:
    """int32[n]: as much as may be on one device, the one that gives the shortest feasible step."""
    return min(_single_devices(problem))[-1]


def _slowest_single_device_s(problem: Problem) -> float | None:
    ranked = [(misses, ns) for misses, ns, _, _ in _single_devices(problem) if ns < math.inf]
    feasible = [ns for misses, ns in ranked if not misses]
    slowest_ns = max(feasible or [ns for _, ns in ranked], default=None)
    return None if slowest_ns is None else slowest_ns / 1e9


def _single_devices(problem: Problem) -> list[tuple[bool, float, int, NDArray[np.int32]]]:
    """(infeasible, makespan in ns, device, placement) for each device."""
    found = []
    for device in range(problem.num_devices):
        placement = on_device(problem, device)
        trace = simulate(problem, placement)
        makespan_ns = math.inf if trace.makespan_ns is None else float(trace.makespan_ns)
        found.append((not trace.feasible, makespan_ns, device, placement))
    return found
