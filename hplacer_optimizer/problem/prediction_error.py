"""By how much a predicted gain over TensorFlow's own placement may be too large.

    measured costs     one error for all plans: what predictions of earlier plans were off by
    estimated costs    an error of the plan's own: would it still pay if the estimates were as wrong
                       as they are, all of them against the plan?
    launches ahead     the model of launches adds its own error, as a factor; and measured costs
                       count as estimated ones

On the CPU workers of docs/results/guard, ops are faster than data sheets have it: processors reach
more than the assumed share of their peak, and small tensors stay in caches. So what a plan wins by
computing on several devices is too large beside what it pays for messages.

On the GPU of docs/results/accelerators, steps with ops on the CPU took up to 3.7 times as long as
predicted: such ops take longer than estimated on a host of many cores, and so do copies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.problem.cost_sources import MEASURED
from hplacer_optimizer.problem.simulator import simulate_batch

__all__ = [
    "LEAST_GAIN",
    "against_the_plan",
    "launches_ahead",
    "prediction_error",
    "prediction_error_of",
]

# By how much the predicted speedups of plans exceed the measured ones, at the 95th percentile, in
# docs/results/guard (`python benchmarks/guard.py`).
ERROR_OF_MEASURED_COSTS = 0.23
ERROR_OF_ESTIMATED_COSTS = 1.12
# The same with costs that are exact, where devices launch ahead, in docs/results/emulation
# (`python -m benchmarks.agreement` and `python -m benchmarks.drawn_agreement`).
ERROR_OF_LAUNCHES = 0.05

FASTER = 8
"""How many times as fast as estimated a device may compute. Calibrations found 2.1 to 2.9 times the
floating-point rate and 6 to 18 times the rate of memory on an Intel Xeon, 1.7 and 7.7 times on the
AMD EPYC of docs/results/guard. It was chosen with the plans of the Xeon known."""
LATER = 2
"""How many times as late as estimated another device may begin."""
SLOWER_COPIES = 22
"""How many times as long as estimated a copy from or to a device that launches ahead may take,
beside its bytes. 10 us are estimated. On the GPU of docs/results/accelerators steps took longer by
up to 220 us a copy in a first run, where ops on the CPU had their part in that. A plan over two
parts of the GPU took 2.2 times as long as predicted."""
LEAST_GAIN = 0.03
"""What a plan has to gain even then."""


def prediction_error(cost_source: str, *, launches_ahead: bool = False) -> float:
    """By how much a predicted gain may be too large; 0.5: twice as fast may be 1.33 times.

    Args:
        cost_source: where the costs came from: "measured", or "analytic" in whole or in part. For
            the latter it is what holds where the plan's own error is not known.
        launches_ahead: whether devices do, which has an error beside that of the costs.
    """
    if launches_ahead:
        return _with_launches(ERROR_OF_ESTIMATED_COSTS)
    return ERROR_OF_MEASURED_COSTS if cost_source == MEASURED else ERROR_OF_ESTIMATED_COSTS


def launches_ahead(problem: Problem) -> bool:
    """Whether any of its devices does."""
    return bool(problem.device_launch_ns.any())


def prediction_error_of(
    problem: Problem, placement: NDArray[np.int32], cost_source: str
) -> float | None:
    """By how much the predicted gain of a placement may be too large.

    With costs that count as estimated, a gain above it is one of LEAST_GAIN or more in
    `against_the_plan`. Where devices launch ahead, that error and the one of launches are
    multiplied.

    Args:
        problem: with the costs that the placement was found with.
        placement: int32[n].
        cost_source: where these came from.

    Returns:
        At most `prediction_error`. None: that one; or the step of the placement, or of
        TensorFlow's own, is not known.
    """
    ahead = launches_ahead(problem)
    if cost_source == MEASURED and not ahead:
        return None
    error = _error_of_estimates(problem, placement)
    return error if error is None or not ahead else _with_launches(error)


def _with_launches(error: float) -> float:
    return (1 + error) * (1 + ERROR_OF_LAUNCHES) - 1


def _error_of_estimates(problem: Problem, placement: NDArray[np.int32]) -> float | None:
    """At least LEAST_GAIN; None: the step of the placement, or of TensorFlow's, is not known."""
    if problem.default_device is None:
        return None
    both = np.stack([problem.default_device, placement])
    default_ns, step_ns = _steps_ns(problem, both)
    slow_default_ns, slow_step_ns = _steps_ns(against_the_plan(problem), both)
    if min(default_ns, step_ns) < 0:
        return None
    predicted, least = default_ns / max(step_ns, 1), slow_default_ns / max(slow_step_ns, 1)
    error = (1 + LEAST_GAIN) * predicted / max(least, 1e-9) - 1
    return float(min(max(error, LEAST_GAIN), ERROR_OF_ESTIMATED_COSTS))


def against_the_plan(problem: Problem) -> Problem:
    """The problem if estimates are as wrong as they may be, in favour of TensorFlow's placement.

    Every op is FASTER on the kind of device where TensorFlow has it, but not on another kind, and
    devices that TensorFlow does not use begin LATER. Copies from or to those that launch ahead are
    slower by SLOWER_COPIES; other messages stay as they are.
    """
    default = problem.default_device
    assert default is not None
    cost_ns, op = problem.cost_ns.copy(), np.arange(problem.num_ops)
    kind = problem.device_kind[default]
    own_ns = cost_ns[op, kind]
    cost_ns[op, kind] = np.where(own_ns > 0, np.maximum(own_ns // FASTER, 1), own_ns)
    start_ns = problem.device_start_ns.copy()
    others = np.setdiff1d(np.arange(problem.num_devices), default)
    start_ns[others] *= LATER
    ahead = problem.device_launch_ns > 0
    is_copy = ahead[problem.link_src] | ahead[problem.link_dst]
    latency_ns = np.where(is_copy, SLOWER_COPIES, 1) * problem.link_latency_ns
    return problem.replace(cost_ns=cost_ns, device_start_ns=start_ns, link_latency_ns=latency_ns)


def _steps_ns(problem: Problem, placements: NDArray[np.int32]) -> tuple[int, int]:
    """Of two placements, -1 where it is not known."""
    first, second = simulate_batch(problem, placements)[0].tolist()
    return first, second
