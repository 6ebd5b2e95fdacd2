"""A stored plan, simulated again.

a plan that holds its problem --Plan.simulated--> problem, placement --simulate--> step
a plan and its graph ---load_graph, map_nodes---> problem, placement --simulate--> step
"""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.machines import machine_from_yaml
from hplacer_optimizer.plans.fingerprint import differences
from hplacer_optimizer.plans.matching import map_nodes, place_by_nodes
from hplacer_optimizer.plans.plan import Plan

__all__ = ["simulate_plan"]


def simulate_plan(plan: Plan, graph: object = None, **options: Any) -> SimulatedStep:
    """Simulates a plan again.

    Args:
        plan: a plan, best one that holds its problem.
        graph: what `load_graph` takes; needed, and looked at, only where the plan does not.
        options: those of `load_graph`; without a machine, the plan's own.

    Raises:
        PlanError: the plan holds no problem, and there is no graph, or it is another one.
        GraphError, MachineError: as `load_graph`.
    """
    if graph is None or plan.packed_problem is not None:
        return plan.simulated()
    plan.check_fingerprint()
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
    node_device = map_nodes(plan, captured)
    placement = place_by_nodes(loaded.problem, captured.node_op, node_device)
    return SimulatedStep.of(loaded.problem, placement)
