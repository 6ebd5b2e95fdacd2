"""Planners that look at no cost: `cpu_only`, `gpu_only`, `round_robin`, `random`.

None of them searches: budgets change nothing and no progress is reported.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.devices import (
    devices_of_type,
    first_candidate,
    require_devices_of_type,
)
from hplacer_optimizer.planners.result import PlannerResult


def cpu_only(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """All on the first CPU; what may not run there on the next CPU, else its first candidate.

    Raises PlannerUnavailableError without a CPU; otherwise see `Planner`.
    """
    cpus = require_devices_of_type(problem, "CPU", "cpu_only")
    return PlannerResult(placement=first_candidate(problem, cpus)[problem.units])


def gpu_only(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """All on the first GPU; what may not run there on the first CPU, else its first candidate.

    Raises PlannerUnavailableError without a GPU; otherwise see `Planner`.
    """
    gpu = require_devices_of_type(problem, "GPU", "gpu_only")[0]
    devices = [gpu, *devices_of_type(problem, "CPU")]
    return PlannerResult(placement=first_candidate(problem, devices)[problem.units])


def round_robin(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Unit u on the (u mod c)-th of its c candidates; see `Planner`."""
    return _pick(problem, np.arange(problem.num_units))


def random(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Each unit on one of its candidates, uniformly and independently; see `Planner`."""
    uniform = np.random.default_rng(seed).random(problem.num_units)
    counts = np.diff(problem.candidate_ptr)
    return _pick(problem, (uniform * counts).astype(np.int64))


def _pick(problem: Problem, index: NDArray[np.int64]) -> PlannerResult:
    """Places unit u on its candidate number `index[u]`, modulo their number."""
    _engine.check_candidates(problem)
    chosen = problem.candidate_ptr[:-1] + index % np.diff(problem.candidate_ptr)
    return PlannerResult(placement=problem.candidates[chosen][problem.units])
