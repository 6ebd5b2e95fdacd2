"""What a device kind reaches of its data sheet, fitted to published steps on one device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.machines import DeviceKind


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """What a device kind reaches."""

    rates: float
    """Share of the peak FLOP/s and memory bytes/s."""
    overhead: float
    """Factor on the launch and executor overheads."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A published step on one device."""

    task: str
    overhead_s: float  # of all ops, not calibrated
    work_s: float  # of all ops at peak rates
    published_s: float

    def predicted_s(self, efficiency: Efficiency) -> float:
        """The step time at this efficiency."""
        return efficiency.overhead * self.overhead_s + self.work_s / efficiency.rates


def observe(
    problem: Problem, placement: NDArray[np.int32], kind: DeviceKind, task: str, published_s: float
) -> Observation:
    """Splits the costs of the ops that a placement has on devices of a kind.

    `problem` must be of the machine as described, without calibration: an op that launches no
    kernel costs the executor's overhead there, any other at least the launch overhead.
    """
    index = problem.device_kinds.index(kind.name)
    here = np.asarray(problem.device_kind)[placement] == index
    cost_ns = np.asarray(problem.cost_ns)[here, index]
    launches = cost_ns >= kind.launch_overhead_ns
    overhead_ns = np.where(launches, kind.launch_overhead_ns, cost_ns)
    return Observation(
        task=task,
        overhead_s=float(overhead_ns.sum()) / 1e9,
        work_s=float((cost_ns - overhead_ns).sum()) / 1e9,
        published_s=published_s,
    )


def fit(observations: Sequence[Observation]) -> Efficiency:
    """The efficiency with the least squared error of the logarithm. Needs two observations."""
    from scipy.optimize import minimize

    def loss(logarithms: NDArray[np.float64]) -> float:
        overhead, rates = np.exp(logarithms)
        efficiency = Efficiency(rates=rates, overhead=overhead)
        return sum(
            math.log(seen.predicted_s(efficiency) / seen.published_s) ** 2 for seen in observations
        )

    overhead, rates = np.exp(minimize(loss, np.zeros(2), method="Nelder-Mead").x)
    return Efficiency(rates=float(rates), overhead=float(overhead))
