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
    "OtherCosts",
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

From docs/results/prediction: steps without transfers are off by 3% and 6% (root mean square over
the graphs, of two calibrations), and half of the steps of one op lie within 18% to 34%. What a
message costs its sender differed by 12% between the two, what cold caches cost by 21%, turns by a
factor of 2. Errors of op types and of single ops cannot be told apart there. Most ops take up to 4%
longer beside a busy neighbour, some 8% to 21%.
"""
ESTIMATED_COSTS = MEASURED_COSTS.times(3.6)
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

    Where TensorFlow's order of launches differs from start to start, each has another one.

    Raises ProblemError where the times of a problem would no longer fit into 64 bits.
    """
    costs = OtherCosts(problem, errors)
    for draw in range(draws):
        wrong = np.random.default_rng([seed, draw]).standard_normal(costs.size)
        yield costs.problem(wrong, launch_seed=1 + draw)


class OtherCosts:
    """The problem with other costs, as a function of how wrong each of them is.

    Attributes:
        size: how many errors there are.
    """

    def __init__(self, problem: Problem, errors: CostErrors) -> None:
        self._problem, self._errors = problem, errors
        _, self._op_type = np.unique(problem.op_types, return_inverse=True)
        self._link_class = _link_classes(problem)
        kinds, types = len(problem.device_kinds), _count(self._op_type)
        of_ops = problem.num_ops * kinds if errors.op else 0
        of_links = (len(_LINK_TIMES) + len(_LINK_RATES)) * _count(self._link_class)
        self.size = kinds * (1 + types) + of_ops + 1 + problem.num_devices + of_links + 1

    def problem(self, wrong: NDArray[np.float64], *, launch_seed: int = 0) -> Problem:
        """With each cost wrong by so many of its standard deviations, float64[size].

        Raises ProblemError where the times would no longer fit into 64 bits.
        """
        problem, errors, factors = self._problem, self._errors, _Factors(wrong)
        return problem.replace(
            launch_seed=launch_seed,
            cost_ns=_longer(problem.cost_ns, self._op_factors(factors)),
            device_turn_ns=_longer(problem.device_turn_ns, factors.of(errors.turn, ())),
            device_start_ns=_longer(
                problem.device_start_ns, factors.of(errors.start, (problem.num_devices,))
            ),
            **_other_links(problem, self._link_class, errors.link, factors),
            device_cold_ns=_longer(problem.device_cold_ns, factors.of(errors.link, ())),
        )

    def _op_factors(self, factors: _Factors) -> NDArray[np.float64]:
        """float64[n, K]."""
        errors, kinds = self._errors, len(self._problem.device_kinds)
        of_kind = factors.of(errors.device_kind, (kinds,))
        of_type = factors.of(errors.op_type, (_count(self._op_type), kinds))
        of_ops = of_kind * of_type[self._op_type]
        if errors.op:
            of_ops = of_ops * factors.of(errors.op, (self._problem.num_ops, kinds))
        return of_ops


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
        makespan_ns, feasible, _ = simulate_batch(drawn, placements, launch_orders=1)
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
    """Log-normal factors of mean 1, one after the other."""

    def __init__(self, normal: NDArray[np.float64]) -> None:
        self._normal, self._used = normal, 0

    def of(self, error: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
        first, self._used = self._used, self._used + math.prod(shape)
        normal = self._normal[first : self._used].reshape(shape)
        factors: NDArray[np.float64] = np.exp(error * normal - error**2 / 2)
        return factors


def _count(labels: NDArray[np.intp]) -> int:
    return int(labels.max(initial=-1)) + 1


_LINK_TIMES = ("link_latency_ns", "link_send_ns", "link_receive_ns")
_LINK_RATES = ("link_bytes_per_s", "link_send_bytes_per_s", "link_receive_bytes_per_s")


def _link_classes(problem: Problem) -> NDArray[np.intp]:
    """int[L]: equal for links that one measurement stands for."""
    ends = [problem.device_kind[problem.link_src], problem.device_kind[problem.link_dst]]
    figures = [getattr(problem, name) for name in (*_LINK_TIMES, *_LINK_RATES)]
    _, link_class = np.unique(np.stack([*ends, *figures]), axis=1, return_inverse=True)
    return link_class.reshape(-1)


def _other_links(
    problem: Problem, link_class: NDArray[np.intp], error: float, factors: _Factors
) -> dict[str, NDArray[np.int64]]:
    """Times that are longer by a factor, and rates that are smaller by one."""
    classes = (_count(link_class),)
    figures = {}
    for name in _LINK_TIMES:
        figures[name] = _longer(getattr(problem, name), factors.of(error, classes)[link_class])
    for name in _LINK_RATES:
        figures[name] = _longer(getattr(problem, name), 1 / factors.of(error, classes)[link_class])
    return figures


def _longer(figures: NDArray[np.int64], factors: NDArray[np.float64]) -> NDArray[np.int64]:
    """Multiplied and rounded, at least 1; what is 0, or -1 for a missing kernel, stays so."""
    scaled = np.clip(np.rint(figures * factors), 1, _MAX_NS)
    return np.where(figures > 0, scaled, figures).astype(np.int64)
