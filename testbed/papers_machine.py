"""What a device kind reaches of its data sheet, fitted to published steps on one device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.machines import DeviceKind
from hplacer_optimizer.problem.simulator import simulate


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
    problem: Problem
    """Of the machine as described."""
    placement: NDArray[np.int32]
    kind: DeviceKind
    """Of the device that has the step."""
    published_s: float

    def predicted_s(self, efficiency: Efficiency) -> float:
        """The simulated step time at this efficiency.

        An op that launches no kernel costs the executor's overhead, any other at least the launch
        overhead. A kind that launches ahead has neither in its costs.
        """
        problem, kind = self.problem, self.kind
        index = problem.device_kinds.index(kind.name)
        cost_ns = np.array(problem.cost_ns)
        overhead_ns = np.zeros(len(cost_ns), np.int64)
        if not kind.launches_ahead:
            overhead_ns = np.minimum(cost_ns[:, index], kind.launch_overhead_ns)
        work_ns = cost_ns[:, index] - overhead_ns
        cost_ns[:, index] = np.rint(
            efficiency.overhead * overhead_ns + work_ns / efficiency.rates
        ).astype(np.int64)
        launch_ns = np.array(problem.device_launch_ns)
        of_kind = np.asarray(problem.device_kind) == index
        launch_ns[of_kind] = np.rint(efficiency.overhead * launch_ns[of_kind]).astype(np.int64)
        scaled = problem.replace(cost_ns=cost_ns, device_launch_ns=launch_ns)
        return simulate(scaled, self.placement).makespan_ns / 1e9


def fit(observations: Sequence[Observation]) -> Efficiency:
    """The efficiency with the least squared error of the logarithm. Needs two observations."""
    from scipy.optimize import minimize

    def loss(logarithms: NDArray[np.float64]) -> float:
        overhead, rates = np.exp(logarithms)
        efficiency = Efficiency(rates=rates, overhead=overhead)
        return sum(
            math.log(seen.predicted_s(efficiency) / seen.published_s) ** 2 for seen in observations
        )

    found = minimize(loss, np.log([4.0, 0.5]), method="Nelder-Mead", options={"xatol": 1e-3})
    overhead, rates = np.exp(found.x)
    return Efficiency(rates=float(rates), overhead=float(overhead))
