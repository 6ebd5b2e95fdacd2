"""The step simulator: a pure function of a problem and a placement, exact to the nanosecond.

Semantics and sources are described in `cc/engine/simulator/simulator.h`; every planner and every
report scores placements with this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import LAUNCH_ORDERS, Problem, StepTrace
from hplacer_optimizer.errors import OptionError, ProblemError
from hplacer_optimizer.problem.problem_file import check_placement

__all__ = [
    "SIMULATED_PER_S",
    "SIMULATOR_VERSION",
    "StepTrace",
    "simulate",
    "simulate_batch",
    "simulate_default",
]

SIMULATOR_VERSION = 6
"""Raised by every change that gives a problem and a placement another step time.

Step times of two versions are not compared: plans keep the version that predicted them.
"""
SIMULATED_PER_S = 10_000_000
"""Ops that one core simulates in a second, about.

It sizes work that has to take the same steps on a busy machine, where a clock would end it earlier.
"""


def simulate(
    problem: Problem,
    placement: Sequence[int] | NDArray[np.integer[Any]],
    *,
    launch_orders: int = LAUNCH_ORDERS,
) -> StepTrace:
    """Simulates one step.

    Args:
        problem: the graph and the machine.
        placement: one device index per op, [n].
        launch_orders: where TensorFlow's order of launches on GPUs differs from start to start, the
            longest step under so many of these orders, at least 1. Searches score the same ones.

    Returns:
        The trace: `makespan_ns`, `start_ns[n]`, `finish_ns[n]`, `transfers`, `peak_bytes[m]`,
        `feasible` and `infeasible_because`. An infeasible placement keeps its full trace, unless
        a kernel or a link is missing: then the times are None.

    Raises:
        ProblemError: wrong length, an index outside 0..m-1, or no integers.
        OptionError: `launch_orders` is not a positive integer.

    Example:
        >>> import hplacer_optimizer as hp
        >>> problem = hp.load_problem("example")
        >>> hp.simulate(problem, [0] * problem.num_ops).makespan_ns  # all on the CPU
        3140000
        >>> hp.simulate(problem, [0, 1, 1, 1, 2, 2, 2, 2, 2]).makespan_ns  # a branch on each GPU
        438000
    """
    _check_number("launch_orders", launch_orders)
    return _engine.simulate(problem, check_placement(problem, placement), launch_orders)


def simulate_default(problem: Problem) -> tuple[StepTrace, bool] | None:
    """The step under TensorFlow's own placement, and whether it runs within memory.

    None if the problem does not know that placement. TensorFlow need not keep what a plan has to,
    such as the devices of option `devices`, so this is no reason against it.
    """
    if problem.default_device is None:
        return None
    trace = simulate(problem, problem.default_device)
    fits = bool((trace.peak_bytes <= problem.device_memory_bytes).all())
    return trace, trace.has_trace and fits


def simulate_batch(
    problem: Problem,
    placements: NDArray[np.integer[Any]],
    *,
    threads: int = 1,
    launch_orders: int = LAUNCH_ORDERS,
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """Simulates one step under each of many placements; the result is the same for any `threads`.

    Args:
        problem: the graph and the machine.
        placements: device indices, integers [batch, n].
        threads: how many placements to simulate at once, at least 1.
        launch_orders: as of `simulate`.

    Returns:
        `makespan_ns` int64[batch] (-1 where a kernel or a link is missing), `feasible`
        bool[batch], `peak_bytes` int64[batch, m] (zeros where there is no trace).

    Raises:
        ProblemError: wrong shape, an index outside 0..m-1, or no integers.
        OptionError: `threads` or `launch_orders` is not a positive integer.

    Example:
        >>> import hplacer_optimizer as hp
        >>> import numpy as np
        >>> problem = hp.load_problem("example")
        >>> placements = np.zeros([2, problem.num_ops], np.int32)
        >>> placements[1, 1:] = 1
        >>> makespan_ns, feasible, peak_bytes = hp.simulate_batch(problem, placements)
        >>> makespan_ns.tolist(), feasible.tolist()
        ([3140000, 688000], [True, True])
        >>> peak_bytes.tolist()
        [[9200000, 0, 0], [400000, 9200000, 0]]
    """
    _check_number("threads", threads)
    _check_number("launch_orders", launch_orders)
    placements = np.asarray(placements)
    if placements.dtype.kind not in "iu":
        raise ProblemError(f"placements: expected integers, got an array of {placements.dtype}")
    if placements.ndim != 2 or placements.shape[1] != problem.num_ops:
        raise ProblemError(
            f"placements: expected shape [batch, {problem.num_ops}], got {placements.shape}"
        )
    outside = np.argwhere((placements < 0) | (placements >= problem.num_devices))
    if len(outside):
        row, op = outside[0]
        raise ProblemError(
            f"placements[{row}][{op}]: device {placements[row, op]} is out of range, there are "
            f"{problem.num_devices}"
        )
    rows = np.ascontiguousarray(placements, np.int32)
    return _engine.simulate_batch(problem, rows, threads, launch_orders)


def _check_number(name: str, value: object) -> None:
    if type(value) is not int or not 1 <= value < 2**31:
        raise OptionError(f"{name}: must be an integer of at least 1, got {value!r}")
