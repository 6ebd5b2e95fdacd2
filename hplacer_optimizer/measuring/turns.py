"""Alternatives measured in turn, until it is known how they compare.

In a turn each of them has some steps, so that a machine that is slow for a while is slow for all.
The logarithm of a turn's ratio of medians is one observation; an interval of their mean tells how
well the ratio is known.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.errors import MeasuringError
from hplacer_optimizer.measuring.measurer import Effort, Measurer

WIDTH = 0.03
_MIN_TURNS = 6  # before an interval counts as narrow
_LEAST_TURNS = 2  # for any interval at all
_DECIDING_TURNS = 3  # before an interval that is far from 1 counts
EFFORT = Effort(steps=20, warmup=3)  # of a placement in a turn

# Quantiles of Student's t distribution at 97.5%, for 1, 2, ... degrees of freedom.
_T = (
    *(12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157),
    *(2.228139, 2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922),
    *(2.093024, 2.085963, 2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831),
    *(2.048407, 2.045230, 2.042272),
)
_NORMAL = 1.959964  # the limit


@dataclass(kw_only=True)
class Turns:
    """What one alternative did."""

    times_s: list[float] = field(default_factory=list)
    """Of each step."""
    logarithms: list[float] = field(default_factory=list)
    """Of the speedup over the base, by turn; none for the base itself."""
    known: tuple[float, float, float] | None = None
    """The speedup and its interval, where they were found in another way than from the mean."""

    @property
    def step_s(self) -> float:
        """The median step."""
        return statistics.median(self.times_s)

    @property
    def spread_s(self) -> float:
        """The interquartile range of the steps."""
        low, high = np.quantile(self.times_s, (0.25, 0.75))
        return float(high - low)

    @property
    def speedup(self) -> float:
        """The geometric mean over the turns; 1 for the base."""
        if self.known is not None:
            return self.known[0]
        return math.exp(statistics.fmean(self.logarithms)) if self.logarithms else 1.0

    @property
    def interval(self) -> tuple[float, float]:
        """Of the speedup, at 95%."""
        if self.known is not None:
            return self.known[1:]
        if not self.logarithms:
            return 1.0, 1.0
        low, high = interval(self.logarithms)
        return math.exp(low), math.exp(high)


def take_turns(
    names: Sequence[str],
    measure: Callable[[str, int], Sequence[float]],
    *,
    limit_s: float,
    is_known: Callable[[Sequence[float]], bool] | None = None,
    least: int = _LEAST_TURNS,
) -> dict[str, Turns]:
    """Measures all of these against the first one, the base.

    Args:
        names: each at most once.
        measure: seconds of each step of this name, in the turn of this number, from 1.
        limit_s: begins no turn after so many seconds, however wide the intervals are.
        is_known: of the logarithms of a name, at least two: it needs no further turn; None:
            `is_narrow`.
        least: turns that are taken in any case, at least two.

    Raises what `measure` raises.
    """
    base, *others = names
    known = is_known or is_narrow
    found = {name: Turns() for name in names}
    ends = time.monotonic() + limit_s
    for number in itertools.count(1):
        left = [name for name in others if not known(found[name].logarithms)]
        if number > 1 and not left:  # the base has a turn in any case
            break
        if number > least and time.monotonic() > ends:
            break
        turn = [base, *left]
        medians = {}
        for name in turn if number % 2 else turn[::-1]:
            times_s = measure(name, number)
            medians[name] = statistics.median(times_s)
            found[name].times_s += times_s
        for name in left:
            found[name].logarithms.append(math.log(medians[base] / medians[name]))
    return found


def take_turns_of_placements(
    measurer: Measurer,
    placements: Mapping[str, NDArray[np.int32]],
    base: str,
    *,
    limit_s: float,
    on_start: Callable[[str], None] = lambda what: None,
    is_known: Callable[[Sequence[float]], bool] | None = None,
) -> dict[str, Turns]:
    """Measures all placements against one of them.

    Args:
        measurer: of their step.
        placements: int32[n] by name; those equal to the base are not measured.
        base: the name of the one that the others are compared with.
        limit_s: begins no third turn after so many seconds.
        on_start: told what begins.
        is_known: as for `take_turns`.

    Raises MeasuringError, which names the placement, if one does not run.
    """
    others = [n for n in placements if not np.array_equal(placements[n], placements[base])]

    def measure(name: str, number: int) -> Sequence[float]:
        on_start(f"{name}, turn {number}")
        measured = measurer.measure(placements[name])
        if measured.error is not None:
            raise MeasuringError(f"{name}: {measured.error}")
        return measured.times_s

    found = take_turns([base, *others], measure, limit_s=limit_s, is_known=is_known)
    same = Turns(times_s=found[base].times_s)
    return {name: found.get(name, same) for name in placements}


def interval(logarithms: Sequence[float]) -> tuple[float, float]:
    """Of the mean of two or more, at 95%, by Student's t distribution."""
    mean, count = statistics.fmean(logarithms), len(logarithms)
    half = t_quantile(count - 1) * statistics.stdev(logarithms) / math.sqrt(count)
    return mean - half, mean + half


def t_quantile(freedom: int) -> float:
    """Of Student's t distribution with so many degrees of freedom, at 97.5%."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    # The first two terms of the expansion around the normal distribution: exact to 1e-4 from here.
    z = _NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def is_narrow(logarithms: Sequence[float]) -> bool:
    """Whether the ratio is known to within WIDTH."""
    if len(logarithms) < _MIN_TURNS:
        return False
    low, high = interval(logarithms)
    return high - low < WIDTH


def is_decided(logarithms: Sequence[float]) -> bool:
    """The same, or whether the ratio is certainly more than WIDTH above or below 1.

    Three turns may do for that.
    """
    if len(logarithms) < _DECIDING_TURNS:
        return False
    low, high = interval(logarithms)
    return low > WIDTH or high < -WIDTH or is_narrow(logarithms)
