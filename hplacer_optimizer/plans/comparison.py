"""Two plans compared: what moved, and what that does to the step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.inspection.loads import scope_of
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.matching import map_nodes, place_by_nodes
from hplacer_optimizer.plans.plan import Plan

__all__ = ["Moves", "ScopeMoves", "StepFacts", "compare_nodes", "on_one_problem", "step_facts"]


@dataclass(frozen=True, kw_only=True)
class ScopeMoves:
    """Nodes below one name scope that the two plans have on different devices."""

    scope: str
    nodes: int  # that both plans have
    moved: int
    routes: list[tuple[str, str, int]]  # (device in A, device in B, nodes), the most first


@dataclass(frozen=True, kw_only=True)
class Moves:
    """What two plans say of the nodes that both of them have."""

    common: int
    moved: int
    only_in_a: int
    only_in_b: int
    scopes: list[ScopeMoves]  # with moves, the most first


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """What one plan makes of a step."""

    step_time_ns: int | None
    feasible: bool
    speedup: float | None
    """Over TensorFlow's own placement; None if that is not known."""
    transfers: int | None  # None where nothing simulated them
    transfer_bytes: int | None
    peak_bytes: list[int]  # [m]


def compare_nodes(a: Plan, b: Plan, depth: int) -> Moves:
    """Nodes of one graph are told by name and hash, those of different graphs by name alone."""
    in_b = _devices_in_b(a, b)
    names_a = list(a.node_names)
    total: Counter[str] = Counter()
    routes: dict[str, Counter[tuple[str, str]]] = {}
    for name, index, other in zip(names_a, a.node_devices.tolist(), in_b, strict=True):
        if other is None:
            continue
        scope = scope_of(name, depth)
        total[scope] += 1
        device = a.device_names[index]
        if device != other:
            routes.setdefault(scope, Counter())[device, other] += 1
    scopes = [
        ScopeMoves(
            scope=scope,
            nodes=total[scope],
            moved=moved.total(),
            routes=[(src, dst, count) for (src, dst), count in moved.most_common()],
        )
        for scope, moved in routes.items()
    ]
    common = total.total()
    return Moves(
        common=common,
        moved=sum(scope.moved for scope in scopes),
        only_in_a=len(names_a) - common,
        only_in_b=len(b.node_names) - common,
        scopes=sorted(scopes, key=lambda scope: -scope.moved),
    )


def _devices_in_b(a: Plan, b: Plan) -> Sequence[str | None]:
    """For each node of A the name of its device in B, None if B does not have it."""
    try:
        found = map_nodes(b, a)
    except PlanError:  # another graph
        by_name = dict(zip(b.node_names, b.node_devices.tolist(), strict=True))
        found = np.array([by_name.get(name, -1) for name in a.node_names], np.int32)
    return [b.device_names[index] if index >= 0 else None for index in found.tolist()]


def on_one_problem(a: Plan, b: Plan) -> SimulatedStep | None:
    """Plan B simulated with A's costs and links; None if it is for another graph or machine.

    Two plans of one fingerprint may rest on different rates.
    """
    problem, node_op = a.problem(), a.node_op
    if problem is None or node_op is None or a.device_names != b.device_names:
        return None
    try:
        devices = map_nodes(b, a)
    except PlanError:
        return None
    if not a.fingerprint and not _is_one_graph(problem, b.problem()):
        return None
    return SimulatedStep.of(problem, place_by_nodes(problem, node_op, devices))


def _is_one_graph(a: Problem, b: Problem | None) -> bool:
    """What a fingerprint would tell of the graphs of two problems; costs may differ."""
    return (
        b is not None
        and a.op_names == b.op_names
        and a.op_types == b.op_types
        and np.array_equal(a.edges, b.edges)
        and np.array_equal(a.control_edges, b.control_edges)
    )


def step_facts(plan: Plan, step: SimulatedStep | None) -> StepFacts:
    """As simulated now, else as the plan states it."""
    if step is None:
        return StepFacts(
            step_time_ns=plan.step_time_ns,
            feasible=plan.feasible,
            speedup=plan.speedup,
            transfers=None,
            transfer_bytes=None,
            peak_bytes=list(plan.peak_bytes),
        )
    trace, baseline = step.trace, Baseline.of(step.problem)
    sizes: NDArray[np.int64] = trace.transfers["bytes"]
    return StepFacts(
        step_time_ns=trace.makespan_ns,
        feasible=trace.feasible,
        speedup=baseline.speedup_of(trace.makespan_ns, trace.feasible) if baseline else None,
        transfers=len(trace.transfers),
        transfer_bytes=int(sizes.sum()),
        peak_bytes=trace.peak_bytes.tolist(),
    )
