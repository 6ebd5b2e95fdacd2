"""Placements of one step compared in turn, until it is known how they compare.

In a turn each placement has some steps, so that a machine that is slow for a while is slow for all.
The logarithm of a turn's ratio of medians is one observation; an interval of their mean is narrow
when it is known to within WIDTH.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.bench.measured import Bench
from hplacer_optimizer.capture.loading import LoadedGraph
from hplacer_optimizer.errors import BenchError
from hplacer_optimizer.measuring import Effort

WIDTH = 0.03
_MIN_TURNS = 6  # before an interval counts as narrow
_LEAST_TURNS = 2  # for any interval at all
_EFFORT = Effort(steps=20, warmup=3)


@dataclass(kw_only=True)
class Turns:
    """What one placement did."""

    times_s: list[float] = field(default_factory=list)
    """Of each step."""
    logarithms: list[float] = field(default_factory=list)
    """Of the speedup over the base, by turn; none for the base itself."""

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
        return math.exp(statistics.fmean(self.logarithms)) if self.logarithms else 1.0

    @property
    def interval(self) -> tuple[float, float]:
        """Of the speedup, at 95%."""
        if not self.logarithms:
            return 1.0, 1.0
        low, high = _interval(self.logarithms)
        return math.exp(low), math.exp(high)


def take_turns(
    bench: Bench,
    loaded: LoadedGraph,
    placements: Mapping[str, NDArray[np.int32]],
    base: str,
    limit_s: float,
) -> dict[str, Turns]:
    """Measures all placements against one of them.

    Args:
        bench: where they run.
        loaded: the step; its problem is that of the placements.
        placements: by name; those equal to the base are not measured.
        base: the name of the one that the others are compared with.
        limit_s: begins no third turn after so many seconds, however wide the intervals are.

    Raises BenchError, which names the placement, if one does not run.
    """
    found = {name: Turns() for name in placements}
    others = [n for n in placements if not np.array_equal(placements[n], placements[base])]
    ends = time.monotonic() + limit_s
    with bench.measurer(loaded, _EFFORT) as measurer:
        for number in itertools.count():
            open_ones = [n for n in others if not _is_narrow(found[n].logarithms)]
            if number and not open_ones:  # the base has a turn in any case
                break
            if number >= _LEAST_TURNS and time.monotonic() > ends:
                break
            medians = {}
            turn = [base, *open_ones]
            for name in turn if number % 2 == 0 else turn[::-1]:
                bench.on_start(f"{name}, turn {number + 1}")
                measured = measurer.measure(placements[name])
                if measured.error is not None or measured.step_s is None:
                    bench.cluster.check()
                    raise BenchError(f"{name}: {measured.error}")
                medians[name] = measured.step_s
                found[name].times_s += measured.times_s
            for name in open_ones:
                found[name].logarithms.append(math.log(medians[base] / medians[name]))
    for name in placements.keys() - {base, *others}:  # the same placement
        found[name] = Turns(times_s=found[base].times_s)
    return found


def _interval(logarithms: Sequence[float]) -> tuple[float, float]:
    """Of the mean of two or more, at 95%, by Student's t distribution."""
    from scipy.stats import t

    mean, count = statistics.fmean(logarithms), len(logarithms)
    half = float(t.ppf(0.975, count - 1)) * statistics.stdev(logarithms) / math.sqrt(count)
    return mean - half, mean + half


def _is_narrow(logarithms: Sequence[float]) -> bool:
    if len(logarithms) < _MIN_TURNS:
        return False
    low, high = _interval(logarithms)
    return high - low < WIDTH
