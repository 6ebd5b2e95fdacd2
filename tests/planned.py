"""Plans that hold their problem, made of any problem and placement."""

from __future__ import annotations

from typing import Any

import numpy as np

from hplacer_optimizer._engine import Problem, lower_bound
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.planned_problem import PackedProblem
from hplacer_optimizer.problem.simulator import simulate


def plan_of(problem: Problem, placement: Any, **changes: Any) -> Plan:
    """A plan whose nodes are the ops of the problem."""
    placement = np.asarray(placement, np.int32)
    trace, bound = simulate(problem, placement), lower_bound(problem)
    fields: dict[str, Any] = {
        "fingerprint": "66b53989" * 4,
        "fingerprint_parts": {"graph": "1" * 16, "targets": "2" * 16, "machine": "3" * 16},
        "label": "function train_step",
        "planner": "etf",
        "planner_notes": [],
        "planner_options": {},
        "seed": 3,
        "budget": {"seconds": 5.0},
        "step_time_ns": trace.makespan_ns,
        "lower_bound_ns": bound.ns,
        "lower_bound_term": bound.term,
        "feasible": trace.feasible,
        "peak_bytes": trace.peak_bytes.tolist(),
        "device_names": list(problem.device_names),
        "device_kinds": [problem.device_kinds[kind] for kind in problem.device_kind],
        "num_ops": problem.num_ops,
        "num_units": problem.num_units,
        "planning_s": 0.25,
        "cost_source": "analytic",
        "assumptions": ["loop_trip_count=10"],
        "versions": {"hplacer": "0.1.0", "tensorflow": "2.21.0"},
        "created": "2026-05-01T12:00:00Z",
        "host": "worker-0",
        "node_names": list(problem.op_names),
        "node_hashes": np.arange(problem.num_ops, dtype=np.uint64),
        "node_devices": placement,
        "packed_problem": PackedProblem.of(problem, placement, np.arange(problem.num_ops)),
    }
    return Plan(**{**fields, **changes})
