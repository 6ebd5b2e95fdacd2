"""The step where costs are as wrong as they typically are: other costs, drawn and simulated.

    problem, errors --draw--> problems with other costs --simulate--> step times of a placement

Every cost is multiplied by log-normal factors of mean 1. Costs that come from one estimate or one
measurement share a factor: what is wrong there is wrong for all of them. A draw depends on the
problem and the seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import ProblemError
from hplacer_optimizer.problem.cost_sources import MEASURED
from hplacer_optimizer.problem.simulator import simulate_batch

__all__ = [
    "ESTIMATED_COSTS",
    "MEASURED_COSTS",
    "CostErrors",
    "draw_problems",
    "drawn_steps_ns",
    "number_of_draws",
    "step_spread_ns",
    "typical_errors",
]

_MAX_NS = 1 << 62
_LEAST_DRAWS, _MOST_DRAWS = 8, 32
_OPS = 625_000  # of all draws: to make and to simulate so many takes 0.3 s
_PERCENTILES = (5.0, 95.0)


@dataclass(frozen=True, kw_only=True)
class CostErrors:
    """How wrong costs typically are: the standard deviations of the logarithms of true costs.

    0.1: two of three are wrong by at most 10%. An op's cost has the first three errors, which add
    up; each time and rate of a link has its own.
    """

    device_kind: float
    """Shared by all ops on one kind of device."""
    op_type: float
    """Shared by the ops of one type on one kind of device."""
    op: float
    link: float
    """Shared by links of equal times and rates between the same kinds of devices."""
    turn: float
    """Shared by all devices."""
    start: float

    def times(self, factor: float) -> CostErrors:
        """Errors that are all larger by a factor."""
        return CostErrors(**{name: factor * error for name, error in vars(self).items()})


MEASURED_COSTS = CostErrors(device_kind=0.04, op_type=0.1, op=0.1, link=0.2, turn=0.4, start=0.15)
"""Of calibrated machines and measured op costs.

From docs/results/prediction: steps without transfers are off by 4% (root mean square over the
graphs), half of the waits for a busy device lie within a factor of 2, and steps of one op within
10% and 15%. Two calibrations of an earlier run differed by 23% in what a message costs its
receiver, those of this one by 9%. Errors of op types and of single ops cannot be told apart there;
they are what an op beside a busy neighbour takes longer.
"""
ESTIMATED_COSTS = MEASURED_COSTS.times(2.6)
"""Of costs from data sheets: larger by as much as predicted speedups are more wrong, in logarithms,
with estimated than with measured costs (docs/results/guard).
"""


def typical_errors(cost_source: str) -> CostErrors:
    """Of a plan's costs: "measured", or "analytic" in whole or in part."""
    return MEASURED_COSTS if cost_source == MEASURED else ESTIMATED_COSTS


def number_of_draws(problem: Problem) -> int:
    """How many draws take about 0.3 s, at most 32; 0: less than 8, which tell little.

    It depends on sizes alone, so that results do not depend on how busy the machine is.
    """
    draws = _OPS // max(problem.num_ops, 1)
    return min(draws, _MOST_DRAWS) if draws >= _LEAST_DRAWS else 0


def draw_problems(
    problem: Problem, errors: CostErrors, *, draws: int, seed: int
) -> Iterator[Problem]:
    """The problem with other costs, so many times; what is free stays free.

    Raises ProblemError where the times of a problem would no longer fit into 64 bits.
    """
    _, op_type = np.unique(problem.op_types, return_inverse=True)
    link_class = _link_classes(problem)
    for draw in range(draws):
        random = _Factors(np.random.default_rng([seed, draw]))
        yield problem.replace(
            cost_ns=_longer(problem.cost_ns, _op_factors(problem, op_type, errors, random)),
            device_turn_ns=_longer(problem.device_turn_ns, random.of(errors.turn, ())),
            device_start_ns=_longer(
                problem.device_start_ns, random.of(errors.start, (problem.num_devices,))
            ),
            **_other_links(problem, link_class, errors.link, random),
        )


def drawn_steps_ns(
    problem: Problem,
    placements: NDArray[np.int32],
    errors: CostErrors,
    *,
    draws: int,
    seed: int,
) -> NDArray[np.float64]:
    """Step times of placements int32[count, n], float64[draws, count]; infinite where infeasible.

    All placements meet the same draws. Raises as `draw_problems`.
    """
    rows = np.full((draws, len(placements)), math.inf)
    for row, drawn in zip(
        rows, draw_problems(problem, errors, draws=draws, seed=seed), strict=True
    ):
        makespan_ns, feasible, _ = simulate_batch(drawn, placements)
        row[feasible] = makespan_ns[feasible]
    return rows


def step_spread_ns(
    problem: Problem, placement: NDArray[np.int32], errors: CostErrors, *, seed: int = 0
) -> tuple[int, int] | None:
    """The 5th and the 95th percentile of the step, ns.

    None where the placement is infeasible in a draw, or the problem is too large for enough draws
    in 0.3 s (about 80,000 ops).
    """
    draws = number_of_draws(problem)
    if not draws:
        return None
    try:
        steps_ns = drawn_steps_ns(problem, placement[None], errors, draws=draws, seed=seed)
    except ProblemError:
        return None
    if not np.isfinite(steps_ns).all():
        return None
    low, high = np.percentile(steps_ns, _PERCENTILES)
    return round(float(low)), round(float(high))


class _Factors:
    """Log-normal factors of mean 1."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def of(self, error: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
        normal = self._random.standard_normal(shape)
        factors: NDArray[np.float64] = np.exp(error * normal - error**2 / 2)
        return factors


def _op_factors(
    problem: Problem, op_type: NDArray[np.intp], errors: CostErrors, random: _Factors
) -> NDArray[np.float64]:
    """float64[n, K]."""
    kinds = len(problem.device_kinds)
    types = int(op_type.max(initial=-1)) + 1
    of_kind = random.of(errors.device_kind, (kinds,))
    of_type = random.of(errors.op_type, (types, kinds))
    return of_kind * of_type[op_type] * random.of(errors.op, (problem.num_ops, kinds))


_LINK_TIMES = ("link_latency_ns", "link_send_ns", "link_receive_ns")
_LINK_RATES = ("link_bytes_per_s", "link_send_bytes_per_s", "link_receive_bytes_per_s")


def _link_classes(problem: Problem) -> NDArray[np.intp]:
    """int[L]: equal for links that one measurement stands for."""
    ends = [problem.device_kind[problem.link_src], problem.device_kind[problem.link_dst]]
    figures = [getattr(problem, name) for name in (*_LINK_TIMES, *_LINK_RATES)]
    _, link_class = np.unique(np.stack([*ends, *figures]), axis=1, return_inverse=True)
    return link_class.reshape(-1)


def _other_links(
    problem: Problem, link_class: NDArray[np.intp], error: float, random: _Factors
) -> dict[str, NDArray[np.int64]]:
    """Times that are longer by a factor, and rates that are smaller by one."""
    classes = (int(link_class.max(initial=-1)) + 1,)
    figures = {}
    for name in _LINK_TIMES:
        figures[name] = _longer(getattr(problem, name), random.of(error, classes)[link_class])
    for name in _LINK_RATES:
        figures[name] = _longer(getattr(problem, name), 1 / random.of(error, classes)[link_class])
    return figures


def _longer(figures: NDArray[np.int64], factors: NDArray[np.float64]) -> NDArray[np.int64]:
    """Multiplied and rounded, at least 1; what is 0, or -1 for a missing kernel, stays so."""
    scaled = np.clip(np.rint(figures * factors), 1, _MAX_NS)
    return np.where(figures > 0, scaled, figures).astype(np.int64)
