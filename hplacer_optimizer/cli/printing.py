"""What commands print beside tables: step times, counts, JSON."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt

from hplacer_optimizer.problem.bounds import gap
from hplacer_optimizer.support.formats import format_ns


def step_time(step_time_ns: int | None, feasible: bool) -> str:
    if step_time_ns is None:
        return "unknown" if feasible else "infeasible"
    return format_ns(step_time_ns) + ("" if feasible else " (infeasible)")


def certificate(
    step_time_ns: int | None,
    feasible: bool,
    bound_ns: int | None,
    bound_term: str | None,
    *,
    said_ns: int | None = None,
) -> str:
    """`step time 41.2 ms, lower bound 40.1 ms (critical path through sum), gap 2.7%`.

    Without the step time if it is `said_ns`, which stands in the line before.
    """
    parts = []
    if not feasible or step_time_ns is None or step_time_ns != said_ns:
        parts.append(f"step time {step_time(step_time_ns, feasible)}")
    if bound_ns is not None:
        parts.append(f"lower bound {format_ns(bound_ns)} ({bound_term})")
    share = gap(step_time_ns, bound_ns) if feasible else None
    if share is not None:
        parts.append(f"gap {share:.1%}")
    return ", ".join(parts)


def count_per_device(placement: npt.NDArray[np.int32], num_devices: int) -> list[int]:
    return [int(count) for count in np.bincount(placement, minlength=num_devices)]


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))
