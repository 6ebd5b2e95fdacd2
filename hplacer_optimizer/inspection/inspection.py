"""A stored plan, simulated again: what reports, tables and comparisons are made from.

a plan that holds its problem ------------------> problem, placement --simulate--> trace
a plan and its graph --load_graph, map_nodes----> problem, placement --simulate--> trace
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.machines import machine_from_yaml
from hplacer_optimizer.plans.fingerprint import differences
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.problem.bounds import Proof, StepBound, strongest
from hplacer_optimizer.problem.simulator import simulate

__all__ = ["Inspection", "inspect_plan", "map_nodes", "place_by_nodes"]


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A plan with the problem that it solves, its placement there, and the simulated step."""

    plan: Plan
    problem: Problem
    placement: NDArray[np.int32]  # [n]
    trace: StepTrace

    @functools.cached_property
    def bound(self) -> StepBound:
        """As it is found now, or the plan's own where its planner proved a stronger one."""
        plan, proofs = self.plan, []
        is_of_this_problem = plan.packed_problem is not None
        if is_of_this_problem and plan.lower_bound_ns is not None:
            proofs.append(Proof(plan.lower_bound_ns, plan.lower_bound_term or ""))
        return strongest(self.problem, proofs)


def inspect_plan(plan: Plan, graph: object = None, **options: Any) -> Inspection:
    """Simulates a plan again.

    Args:
        plan: a plan, best one that holds its problem.
        graph: what `load_graph` takes; needed, and looked at, only where the plan does not.
        options: those of `load_graph`; without a machine, the plan's own.

    Raises:
        PlanError: the plan holds no problem and there is no graph, or the graph is another one.
        GraphError, MachineError: as `load_graph`.
    """
    problem, placement = plan.problem(), plan.placement()
    if problem is None or placement is None:
        problem, placement = _from_graph(plan, graph, options)
    return Inspection(
        plan=plan, problem=problem, placement=placement, trace=simulate(problem, placement)
    )


def _from_graph(
    plan: Plan, graph: object, options: dict[str, Any]
) -> tuple[Problem, NDArray[np.int32]]:
    if graph is None:
        raise PlanError(
            f"plan {plan.short_fingerprint} of {plan.label} holds no problem to simulate: name the "
            "graph that it is for with --graph, and its machine with --machine"
        )

    if options.get("machine") is None and plan.machine is not None:
        options = {**options, "machine": machine_from_yaml(plan.machine)}
    loaded = load_graph(graph, **options)
    captured = loaded.captured
    if captured.fingerprint != plan.fingerprint:
        found = differences(dict(captured.fingerprint_parts), plan.fingerprint_parts)
        raise PlanError(
            f"plan {plan.short_fingerprint} is not for {graph} as it is loaded here; parts of the "
            f"fingerprint differ: {'; '.join(map(str, found))}"
        )
    node_device = map_nodes(plan, captured.node_names, captured.node_hashes)
    return loaded.problem, place_by_nodes(loaded.problem, captured.node_op, node_device)


def place_by_nodes(
    problem: Problem, node_op: NDArray[np.int32], node_device: NDArray[np.int32]
) -> NDArray[np.int32]:
    """int32[n]: the device of each op, from those of the nodes that belong to it, -1: not known.

    Units of which nothing is known can be in one place only: where they are pinned.
    """
    unit_device = problem.candidates[problem.candidate_ptr[:-1]].astype(np.int32)
    known = node_device >= 0
    unit_device[problem.units[node_op[known]]] = node_device[known]
    placement: NDArray[np.int32] = unit_device[problem.units]
    return placement


def map_nodes(plan: Plan, names: Sequence[str], hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
    """The plan's device index for each node of a graph, -1 for nodes that it does not tell of.

    As the pass does it: by name where name and hash agree, else by hash. Raises PlanError if a node
    of the plan is not there, or if several alike have different devices and lost their names.
    """
    devices = np.full(len(names), -1, np.int32)
    position = {name: i for i, name in enumerate(names)}
    where = [position.get(name, -1) for name in plan.node_names]
    renamed = []
    for entry, (i, value) in enumerate(zip(where, plan.node_hashes.tolist(), strict=True)):
        if i >= 0 and int(hashes[i]) == value:
            devices[i] = plan.node_devices[entry]
        else:
            renamed.append(entry)
    if renamed:
        _map_by_hash(plan, renamed, hashes, devices)
    return devices


def _map_by_hash(
    plan: Plan, entries: list[int], hashes: NDArray[np.uint64], devices: NDArray[np.int32]
) -> None:
    wanted: dict[int, int] = {}
    for entry in entries:
        value, device = int(plan.node_hashes[entry]), int(plan.node_devices[entry])
        if wanted.setdefault(value, device) != device:
            raise PlanError(
                f"plan {plan.short_fingerprint}: several nodes like {plan.node_names[entry]!r} are "
                "alike but have different devices, and their names changed; plan this graph"
            )
    free: dict[int, list[int]] = {}
    for i in np.flatnonzero(devices < 0).tolist():
        free.setdefault(int(hashes[i]), []).append(i)
    counts = Counter(int(plan.node_hashes[entry]) for entry in entries)
    missing = [
        plan.node_names[entry]
        for entry in entries
        if len(free.get(int(plan.node_hashes[entry]), ())) != counts[int(plan.node_hashes[entry])]
    ]
    if missing:
        raise PlanError(
            f"plan {plan.short_fingerprint}: {len(missing)} of its {len(plan.node_names)} nodes "
            f"are not in this graph, such as {missing[0]!r}; `hplacer why --graph` tells what "
            "differs"
        )
    for value, device in wanted.items():
        devices[free[value]] = device
