"""The `metis` planner: METIS cuts the unit graph into one part per accelerator.

Karypis and Kumar, "Multilevel k-way Partitioning Scheme for Irregular Graphs", JPDC 1998, through
the package pymetis. METIS balances compute by the devices' speeds and minimises the bytes cut; it
sees neither precedence nor links nor memory. Units that may run on no accelerator go to their
first candidate, and so does a unit whose part is not among its candidates.
"""

from __future__ import annotations

import numpy as np

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.devices import accelerators, candidate_mask, units_on
from hplacer_optimizer.planners.result import PlannerResult
from hplacer_optimizer.planners.unit_graph import build_unit_graph, place_parts

_WEIGHT_SUM = 1 << 30  # METIS counts in 32 bits


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Plans as any `Planner`.

    METIS cannot be stopped (it takes about a second for 100,000 ops): budgets change nothing, and
    no progress is reported. Raises PlannerUnavailableError without pymetis.
    """
    try:
        import pymetis
    except ImportError as error:
        raise PlannerUnavailableError(
            f"metis: the package pymetis is missing ({error}); "
            "pip install 'hplacer-optimizer[planners]'"
        ) from error

    devices = accelerators(problem)
    mask = candidate_mask(problem)
    graph = build_unit_graph(
        problem,
        devices,
        units_on(mask, devices),
        vertex_weight_sum=_WEIGHT_SUM,
        edge_weight_sum=_WEIGHT_SUM,
    )
    count = len(graph.units)
    if count < len(devices):  # of which METIS complains on stdout; the heaviest to the fastest
        part = np.empty(count, np.int64)
        fastest = np.argsort(-graph.speed, kind="stable")
        part[np.argsort(-graph.vertex_weight, kind="stable")] = fastest[:count]
    elif len(devices) < 2:
        part = np.zeros(count, np.int64)
    else:
        _, parts = pymetis.part_graph(
            len(devices),
            pymetis.CSRAdjacency(graph.ptr, graph.neighbour),
            vweights=graph.vertex_weight,
            eweights=graph.edge_weight,
            tpwgts=graph.speed.tolist(),
            options=pymetis.Options(seed=seed % (1 << 31)),
        )
        part = np.asarray(parts, np.int64)
    return PlannerResult(placement=place_parts(problem, mask, devices, graph, part))
