"""The step at another batch size where the graph does not let it be captured: scaled.

A tensor that is as large as some variable is taken for a weight, a gradient or a slot and keeps its
size; all others grow with the batch. Of an op that reads or writes one of these, the part of the
cost beyond the launch grows, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.inspection.advice.gradients import VARIABLES

__all__ = ["least_costs_ns", "scaled"]

_LEAST_BYTES = 64  # smaller tensors are counts, rates and the like


def scaled(problem: Problem, factor: float, launch_ns: NDArray[np.int64]) -> Problem:
    """The problem with `factor` times the batch; `launch_ns` int64[K] of each cost is fixed."""
    grows = _growing_tensors(problem)
    is_growing = _ops_with(problem, grows)
    cost_ns = problem.cost_ns
    fixed_ns = np.minimum(cost_ns, launch_ns[None, :])
    grown_ns = np.rint(fixed_ns + (cost_ns - fixed_ns) * factor).astype(np.int64)
    changes = is_growing[:, None] & (cost_ns > 0)
    return problem.replace(
        cost_ns=np.where(changes, np.maximum(grown_ns, 1), cost_ns),
        output_bytes=_scaled(problem.output_bytes, grows, factor),
        temp_bytes=_scaled(problem.temp_bytes, is_growing, factor),
    )


def least_costs_ns(problem: Problem) -> NDArray[np.int64]:
    """int64[K], what the cheapest op that costs anything takes on each kind of device."""
    costs = np.where(problem.cost_ns > 0, problem.cost_ns, np.iinfo(np.int64).max)
    least = costs.min(axis=0, initial=np.iinfo(np.int64).max)
    return np.where(least == np.iinfo(np.int64).max, 0, least)


def _scaled(sizes: NDArray[np.int64], grows: NDArray[np.bool_], factor: float) -> NDArray[np.int64]:
    return np.where(grows, np.rint(sizes * factor), sizes).astype(np.int64)


def _growing_tensors(problem: Problem) -> NDArray[np.bool_]:
    """bool, of each output."""
    sizes = problem.output_bytes
    op = np.repeat(np.arange(problem.num_ops), np.diff(problem.output_ptr))
    is_variable = np.array([kind in VARIABLES for kind in problem.op_types], np.bool_)
    held = np.unique(problem.persistent_bytes[problem.persistent_bytes > 0])
    is_weight = np.isin(sizes, held) | is_variable[op]
    grows: NDArray[np.bool_] = ~is_weight & (sizes >= _LEAST_BYTES)
    return grows


def _ops_with(problem: Problem, grows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[n], the ops that read or write a tensor that grows."""
    op = np.repeat(np.arange(problem.num_ops), np.diff(problem.output_ptr))
    found = np.zeros(problem.num_ops, np.bool_)
    found[op[grows]] = True
    src, output, dst = problem.edges.T
    found[dst[grows[problem.output_ptr[src] + output]]] = True
    return found
