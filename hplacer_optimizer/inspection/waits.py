"""What keeps each device from computing in a simulated step.

While a device runs nothing, it waits for the op that it starts next. That op waits for its last
input: first for the op on another device that makes it, then for the transfer that brings it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.inspection.arrivals import last_inputs

__all__ = ["DeviceWaits", "device_waits"]

_Int32 = NDArray[np.int32]
_Int64 = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class DeviceWaits:
    """How one device spends the step; the parts add up to it, in ns."""

    name: str
    computes_ns: int  # at least one of its slots runs an op
    others_ns: int  # another device has yet to make the last input of the next op
    transfers_ns: int  # that input is made, and not here yet
    blocked_ns: int  # the next op is ready: cores serve others or transfers, or are not up yet
    done_ns: int  # after its last op; the whole step of a device without ops


def device_waits(problem: Problem, placement: _Int32, trace: StepTrace) -> list[DeviceWaits]:
    """Of every device, in the problem's order. The trace must have times."""
    assert trace.start_ns is not None
    assert trace.finish_ns is not None
    last = last_inputs(problem, placement, trace)
    made_ns = last.ready_ns.copy()
    remote = last.send >= 0
    made_ns[remote] = trace.transfers["issue_ns"][last.send[remote]]
    order = np.lexsort((trace.finish_ns, trace.start_ns, placement))
    ends = np.searchsorted(placement[order], np.arange(problem.num_devices), side="right")
    return [
        _waits(
            name,
            trace.start_ns[ops],
            trace.finish_ns[ops],
            made_ns[ops],
            last.ready_ns[ops],
            trace.makespan_ns or 0,
        )
        for name, ops in zip(problem.device_names, np.split(order, ends[:-1]), strict=True)
    ]


def _waits(
    name: str,
    start_ns: _Int64,
    finish_ns: _Int64,
    made_ns: _Int64,
    ready_ns: _Int64,
    step_ns: int,
) -> DeviceWaits:
    """Of a device's ops in the order in which they start; each may end a time of waiting."""
    free_ns = np.maximum.accumulate(np.append(0, finish_ns))
    begin_ns = np.minimum(free_ns[:-1], start_ns)  # of the wait; no op runs from then on
    made_ns = np.clip(made_ns, begin_ns, start_ns)
    ready_ns = np.clip(ready_ns, begin_ns, start_ns)
    others_ns = int((made_ns - begin_ns).sum())
    transfers_ns = int((ready_ns - made_ns).sum())
    blocked_ns = int((start_ns - ready_ns).sum())
    done_ns = step_ns - int(free_ns[-1])
    return DeviceWaits(
        name=name,
        computes_ns=step_ns - others_ns - transfers_ns - blocked_ns - done_ns,
        others_ns=others_ns,
        transfers_ns=transfers_ns,
        blocked_ns=blocked_ns,
        done_ns=done_ns,
    )
