"""Which of two plans for one graph is better, and which of them a store keeps.

What a verdict says of them, measured beside TensorFlow's placement, comes before all predictions.
Else the plan with the shorter step is better, both simulated alike.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.plans.comparison import on_one_problem
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.verdict import FASTER, NO_DIFFERENCE, SLOWER, Hardware, Verdict
from hplacer_optimizer.problem.simulator import SIMULATOR_VERSION

__all__ = ["better_than", "predicted_alike", "replaces"]


def better_than(plan: Plan, other: Plan) -> bool:
    """Feasible beats infeasible, then measured beats simulated, then the newer simulator's
    prediction the older one's, then the smaller step time wins; a tie is not better.
    """
    return _rank(plan) < _rank(other)


def _rank(plan: Plan) -> tuple[bool, bool, int, float]:
    is_simulated = plan.measured_ns is None
    age = -(plan.simulator_version or 0) if is_simulated else 0
    time_ns = math.inf if plan.step_ns is None else float(plan.step_ns)
    return not plan.feasible, is_simulated, age, time_ns


def predicted_alike(plan: Plan, other: Plan) -> bool:
    """Whether the simulated step times of both can be compared as they stand.

    That is so if one simulator predicted them, for one machine and with costs from one source.
    """
    if None in (plan.simulator_version, plan.machine):
        return False
    basis = ("simulator_version", "machine", "cost_source", "assumptions")
    return all(getattr(plan, name) == getattr(other, name) for name in basis)


def replaces(plan: Plan, existing: Plan, here: Hardware, *, stored_fits: bool) -> bool:
    """Whether it takes the place of the plan that is there (`PlanStore.put`)."""
    if stored_fits:
        by_verdict = _by_verdict(plan, existing, here)
        return _is_better(plan, existing) if by_verdict is None else by_verdict
    # A fingerprint covers devices and nodes: a plan of others fits no graph at all.
    if set(existing.device_names) != set(plan.device_names):
        return True
    if not np.isin(existing.node_hashes, plan.node_hashes).all():
        return True
    if _placements_scored(plan) < _placements_scored(existing):
        return False
    if better_than(plan, existing):
        return True
    # A plan without ranks fits no graph with other names.
    fits_more = len(plan.node_ranks) > 0 and not len(existing.node_ranks)
    return fits_more and not better_than(existing, plan)


def _by_verdict(plan: Plan, existing: Plan, here: Hardware) -> bool | None:
    """The same, by what was measured beside TensorFlow's placement; None: that does not tell.

    A verdict of emulated devices never takes the place of one of real devices, and chooses between
    placements only where the devices are emulated as the same machine.
    """
    if plan.places_as(existing):
        if plan.verdict:
            return plan.verdict.replaces(existing.verdict)
        return False if existing.verdict else None
    verdicts = [p.verdict for p in (plan, existing)]
    are_real = any(verdict and verdict.emulated is None for verdict in verdicts)
    new, old = (_outcome(verdict, here, are_real) for verdict in verdicts)
    if FASTER in (new, old) and new != old:  # never for one that is only predicted to be better
        return new == FASTER
    if SLOWER in (new, old) and new != old:
        return old == SLOWER and plan.feasible
    if plan.verdict and existing.verdict and new and old and new != NO_DIFFERENCE:
        return plan.verdict.speedup > existing.verdict.speedup
    return None


def _outcome(verdict: Verdict | None, here: Hardware, are_real: bool) -> str | None:
    """What a verdict says between placements; None: nothing."""
    if verdict is None or (verdict.emulated is not None and are_real):
        return None
    return verdict.outcome if are_real else verdict.outcome_on(here)


def _is_better(plan: Plan, existing: Plan) -> bool:
    """Whether it is better where both are simulated under the costs and links of the new one."""
    if plan.measured_ns is not None or existing.measured_ns is not None:
        return better_than(plan, existing)
    again = on_one_problem(plan, existing)
    if again is None:
        return better_than(plan, existing)
    found = _with_step(existing, again)
    if plan.simulator_version != SIMULATOR_VERSION:
        plan = _with_step(plan, plan.simulated())
    return better_than(plan, found)


def _with_step(plan: Plan, step: SimulatedStep) -> Plan:
    """The plan with what this version of the simulator predicts."""
    trace = step.trace
    return replace(
        plan,
        step_time_ns=trace.makespan_ns,
        feasible=trace.feasible,
        simulator_version=SIMULATOR_VERSION,
    )


def _placements_scored(plan: Plan) -> int:
    """How much was searched for it."""
    scored = plan.budget.get("placements_scored")
    return scored if isinstance(scored, int) else 0
