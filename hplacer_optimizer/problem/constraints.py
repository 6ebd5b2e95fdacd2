"""The validator of placements: whatever a planner returns passes it before anybody uses it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlanError


def check_constraints(problem: Problem, placement: NDArray[np.int32]) -> None:
    """Raises PlanError if an op is where it may not run, or a colocation group is separated.

    A planner may be anybody's: nothing that TensorFlow would refuse goes into a graph. Memory is
    not looked at: that is the simulator's `feasible`.
    """
    allowed = np.asarray(problem.cost_ns)[:, problem.device_kind] >= 0
    op_of_choice = np.repeat(np.arange(problem.num_ops), np.diff(problem.allowed_ptr))
    chosen = np.zeros_like(allowed)
    chosen[op_of_choice, problem.allowed_device] = True
    allowed[problem.allowed_given] &= chosen[problem.allowed_given]
    wrong = np.flatnonzero(~allowed[np.arange(problem.num_ops), placement])
    if wrong.size:
        op = int(wrong[0])
        raise PlanError(
            f"op {problem.op_names[op]!r} is on "
            f"{problem.device_names[placement[op]]}, where it may not run"
        )
    first = np.zeros(problem.num_units, np.int64)
    first[problem.units[::-1]] = np.arange(problem.num_ops)[::-1]
    split = np.flatnonzero(placement != placement[first[problem.units]])
    if split.size:
        op = int(split[0])
        raise PlanError(f"op {problem.op_names[op]!r} is separated from its colocation group")
