"""The critical path of a simulated step: the chain of events that makes it as long as it is.

From the op that finishes last back to the start of the step: an op starts when it is ready and its
device, or another one that shares its cores, lets go of a slot; it is ready when its last input
arrives, and that is when its producer finishes, or the transfer from there, which starts when its
channel is free. A copy from or to a device that launches its ops ahead waits for what was launched
there before it, and for the copy before it. So each nanosecond of the step is compute, a transfer,
or waiting for a slot, a stream or a channel, and belongs to one stage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.inspection.arrivals import are_copies, last_inputs, tensor_name

__all__ = [
    "CHANNEL_WAIT",
    "COMPUTE",
    "SLOT_WAIT",
    "STREAM_WAIT",
    "TRANSFER",
    "PathShare",
    "Stage",
    "critical_path",
    "path_shares",
]

COMPUTE, TRANSFER, SLOT_WAIT, CHANNEL_WAIT = "compute", "transfer", "slot wait", "channel wait"
STREAM_WAIT = "stream wait"

_Int32 = NDArray[np.int32]
_Int64 = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One part of the critical path."""

    kind: str  # COMPUTE, TRANSFER, SLOT_WAIT, STREAM_WAIT or CHANNEL_WAIT
    what: str  # the op or the tensor
    where: str  # the device or the channel
    begin_ns: int
    end_ns: int
    # Of a wait: the op or tensor that kept the slot, the stream or the channel last. None for an op
    # that waits for its device to start, for its launch or for a thread of the host, and of a copy
    # that nobody sent before.
    behind: str | None
    item: int  # index of the op, or of the transfer in the trace

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.begin_ns


@dataclass(frozen=True, kw_only=True)
class PathShare:
    """What the critical path spends on one kind of stage in one place."""

    kind: str  # as of Stage
    where: str
    stages: int
    ns: int


def critical_path(problem: Problem, placement: _Int32, trace: StepTrace) -> list[Stage]:
    """The stages in the order of time; they cover the step without gap or overlap.

    Stages that last no time are left out. The trace must have times.
    """
    assert trace.start_ns is not None
    assert trace.finish_ns is not None
    if not problem.num_ops:
        return []
    return _Walk(problem, placement, trace, trace.start_ns, trace.finish_ns).run()


def path_shares(path: Iterable[Stage]) -> list[PathShare]:
    """What a path consists of, the largest share first."""
    found: dict[tuple[str, str], list[int]] = {}
    for stage in path:
        found.setdefault((stage.kind, stage.where), []).append(stage.duration_ns)
    shares = [
        PathShare(kind=kind, where=where, stages=len(times), ns=sum(times))
        for (kind, where), times in found.items()
    ]
    return sorted(shares, key=lambda share: -share.ns)


class _Walk:
    """Backwards from the last finish."""

    def __init__(
        self,
        problem: Problem,
        placement: _Int32,
        trace: StepTrace,
        start_ns: _Int64,
        finish_ns: _Int64,
    ) -> None:
        self._problem, self._placement, self._sends = problem, placement, trace.transfers
        self._start_ns, self._finish_ns = start_ns, finish_ns
        self._op_names = problem.op_names
        last = last_inputs(problem, placement, trace)
        self._producer, self._send, self._ready_ns = last.producer, last.send, last.ready_ns
        sends, pool = self._sends, problem.device_pool
        self._slots_ending = _Ending(  # ops, then what is sent, then what is received
            np.concatenate([pool[placement], pool[sends["src_device"]], pool[sends["dst_device"]]]),
            np.concatenate([finish_ns, sends["sent_ns"], sends["finish_ns"]]),
        )
        self._sends_ending = _Ending(self._sends["channel"], self._sends["carried_ns"])
        self._is_copy = are_copies(problem, sends)
        self._ops_ending = _Ending(placement, finish_ns)
        self._streams = _copy_streams(problem, sends)
        self._copies_ending = _Ending(self._streams, sends["carried_ns"])
        self._stages: list[Stage] = []

    def run(self) -> list[Stage]:
        op = int(self._finish_ns.argmax())
        while op >= 0:
            self._add_op(op)
            if (send := int(self._send[op])) >= 0:
                self._add_transfer(send)
            op = int(self._producer[op])
        return self._stages[::-1]

    def _add_op(self, op: int) -> None:
        device, start_ns = int(self._placement[op]), int(self._start_ns[op])
        where = self._problem.device_names[device]
        what = self._op_names[op]
        self._add(COMPUTE, what, where, start_ns, int(self._finish_ns[op]), op)
        if start_ns > self._ready_ns[op]:
            pool = int(self._problem.device_pool[device])
            behind = self._slot_user(self._slots_ending.at(pool, start_ns))
            self._add(SLOT_WAIT, what, where, int(self._ready_ns[op]), start_ns, op, behind)

    def _add_transfer(self, index: int) -> None:
        send = self._sends[index]
        channel, start_ns = int(send["channel"]), int(send["start_ns"])
        where = self._problem.channel_names[channel]
        what = self._tensor(index)
        self._add(TRANSFER, what, where, start_ns, int(send["finish_ns"]), index)
        sent_ns = int(send["sent_ns"])
        if start_ns > sent_ns:
            before = self._sends_ending.at(channel, start_ns)
            behind = None if before is None else self._tensor(before)
            self._add(CHANNEL_WAIT, what, where, sent_ns, start_ns, index, behind)
        issue_ns = int(send["issue_ns"])
        if self._is_copy[index]:
            behind = self._before_copy(index)
            self._add(STREAM_WAIT, what, where, issue_ns, sent_ns, index, behind)
        else:
            self._add(TRANSFER, what, where, issue_ns, sent_ns, index)

    def _before_copy(self, index: int) -> str | None:
        """What ended on one of its devices, or in its stream, when it could go."""
        send = self._sends[index]
        sent_ns = int(send["sent_ns"])
        for device in (int(send["src_device"]), int(send["dst_device"])):
            if (op := self._ops_ending.at(device, sent_ns)) is not None:
                return self._op_names[op]
        before = self._copies_ending.at(int(self._streams[index]), sent_ns)
        return None if before is None or before == index else self._tensor(before)

    def _slot_user(self, index: int | None) -> str | None:
        """An op, or the tensor whose transfer was work; None if there is none."""
        if index is None:
            return None
        num_ops = self._problem.num_ops
        if index < num_ops:
            return self._op_names[index]
        return self._tensor((index - num_ops) % len(self._sends))

    def _tensor(self, send: int) -> str:
        row = self._sends[send]
        return tensor_name(self._op_names, int(row["src_op"]), int(row["output"]))

    def _add(
        self,
        kind: str,
        what: str,
        where: str,
        begin_ns: int,
        end_ns: int,
        item: int,
        behind: str | None = None,
    ) -> None:
        if end_ns > begin_ns:
            self._stages.append(
                Stage(
                    kind=kind, what=what, where=where, begin_ns=begin_ns, end_ns=end_ns,
                    behind=behind, item=item,
                )
            )  # fmt: skip


def _copy_streams(problem: Problem, sends: NDArray[np.void]) -> _Int32:
    """int32[transfers]: equal for copies that go one after the other (see simulator.h)."""
    launches = problem.device_launch_ns > 0
    src, dst = sends["src_device"], sends["dst_device"]
    return np.where(launches[src], 3 * src + 2 * launches[dst], 3 * dst + 1).astype(np.int32)


class _Ending:
    """Finds what ends at a place at a time."""

    def __init__(self, place: _Int32, end_ns: _Int64) -> None:
        self._order = np.lexsort((end_ns, place))
        self._place, self._end_ns = place[self._order], end_ns[self._order]

    def at(self, place: int, time_ns: int) -> int | None:
        first, last = np.searchsorted(self._place, [place, place + 1])
        found = first + np.searchsorted(self._end_ns[first:last], time_ns)
        if found == last or self._end_ns[found] != time_ns:
            return None
        return int(self._order[found])
