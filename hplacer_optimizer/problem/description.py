"""What `repr` and notebooks say of the native classes, as a title and facts (support/notebook.py).

python/engine_arrays.h asks these functions by name.
"""

from __future__ import annotations

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.support.formats import format_bytes, format_devices, format_ns

__all__ = ["describe_problem", "describe_trace"]


def describe_problem(problem: Problem) -> tuple[str, dict[str, str]]:
    """Sizes of the graph and of the machine."""
    title = (
        f"Problem {problem.name!r}: {problem.num_ops} ops in {problem.num_units} units "
        f"on {problem.num_devices} devices"
    )
    kinds = [problem.device_kinds[kind] for kind in problem.device_kind]
    size_bytes = int(problem.output_bytes.sum())
    return title, {
        "tensors": f"{len(problem.output_bytes)}, {format_bytes(size_bytes)} in all",
        "edges": f"{len(problem.edges)} data, {len(problem.control_edges)} control",
        "devices": format_devices(kinds, problem.device_memory_bytes.tolist()),
        "links": f"{len(problem.link_src)} on {len(problem.channel_names)} channels",
    }


def describe_trace(trace: StepTrace) -> tuple[str, dict[str, str]]:
    """How long the step takes, and what it asks of links and memory."""
    problem = trace.problem
    step_ns = trace.makespan_ns
    outcome = "no step" if step_ns is None else f"step time {format_ns(step_ns)}"
    facts = {}
    if trace.infeasible_because:
        first, *more = trace.infeasible_because
        facts["does not fit"] = f"{first} (and {len(more)} more)" if more else first
    if trace.has_trace:
        sent_bytes = int(trace.transfers["bytes"].sum())
        facts["transfers"] = f"{len(trace.transfers)}, {format_bytes(sent_bytes)} in all"
    if trace.has_trace and problem.num_devices:
        memory_bytes = problem.device_memory_bytes.clip(1)
        fullest = int((trace.peak_bytes / memory_bytes).argmax())
        facts["fullest device"] = (
            f"{problem.device_names[fullest]}, {format_bytes(int(trace.peak_bytes[fullest]))} "
            f"of {format_bytes(int(memory_bytes[fullest]))}"
        )
    return f"StepTrace of {problem.name!r}: {outcome}", facts
