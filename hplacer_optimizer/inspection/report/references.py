"""What a plan is compared with: TensorFlow's own placement and those of cheap planners.

All are simulated, and the latter planned, when the report is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.problem.simulator import simulate, simulate_default

__all__ = ["DEFAULT", "REFERENCES", "Reference", "default_reference", "simulate_references"]

REFERENCES = ("cpu_only", "gpu_only", "human_expert", "topo", "metis", "etf", "heft")
DEFAULT = "TensorFlow's own placement"
_BUDGET_S = 5.0  # each; they take well below a second for 50,000 ops


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What one planner achieves, or why it cannot."""

    planner: str
    step_time_ns: int | None = None
    feasible: bool = False
    reason: str = ""  # why there is no step time, or why it does not fit
    trace: StepTrace | None = None  # of TensorFlow's own placement, if it is feasible


def default_reference(problem: Problem) -> Reference | None:
    """TensorFlow's own placement; None if the problem does not know it."""
    found = simulate_default(problem)
    if found is None:
        return None
    trace, feasible = found
    return Reference(
        planner=DEFAULT,
        step_time_ns=trace.makespan_ns,
        feasible=feasible,
        reason="" if feasible else "; ".join(trace.infeasible_because),
        trace=trace if feasible else None,
    )


def simulate_references(problem: Problem) -> list[Reference]:
    """One entry for each of REFERENCES."""
    return [_simulate(problem, name) for name in REFERENCES]


def _simulate(problem: Problem, name: str) -> Reference:
    try:
        found = get_planner(name).plan(problem, budget=Budget(seconds=_BUDGET_S))
        trace = simulate(problem, found.placement)
    except HPlacerError as error:
        return Reference(planner=name, reason=str(error))
    return Reference(
        planner=name,
        step_time_ns=trace.makespan_ns,
        feasible=trace.feasible,
        reason="; ".join(trace.infeasible_because),
    )
