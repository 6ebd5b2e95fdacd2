"""Simulated steps as Chrome traces, for https://ui.perfetto.dev and chrome://tracing.

The file is the JSON object format of the "Trace Event Format": every device is a process with a
track per slot and a counter of the memory it holds; the channels are tracks of one more process.
Ops and transfers are complete events, arrows lead from an op to its transfers and on to the first
op that waits for each. Times are microseconds with three decimals, so no nanosecond is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.errors import InfeasibleError
from hplacer_optimizer.inspection.arrivals import arrivals, tensor_name
from hplacer_optimizer.inspection.tracks import assign_slots, memory_steps
from hplacer_optimizer.problem.problem_file import check_placement
from hplacer_optimizer.support.new_file import new_file

__all__ = ["write_chrome_trace"]

_Int32 = NDArray[np.int32]
_Int64 = NDArray[np.int64]

_EVENTS_PER_WRITE = 8192


def write_chrome_trace(
    problem: Problem,
    placement: Sequence[int] | NDArray[np.integer[Any]],
    trace: StepTrace,
    path: str | os.PathLike[str],
) -> None:
    """Writes a simulated step, gzip-compressed if the name ends with `.gz`.

    Args:
        problem: the graph and the machine.
        placement: one device index per op, [n].
        trace: what `simulate(problem, placement)` returned.
        path: the file; a reader sees the old one or the new one, never a part.

    Raises:
        InfeasibleError: the step has no trace, since a kernel or a link is missing.
        ProblemError: `placement` is none of this problem.
        OSError: the file cannot be written.
    """
    placement = check_placement(problem, placement)
    if trace.start_ns is None or trace.finish_ns is None:
        raise InfeasibleError(f"placement: there is no trace: {trace.infeasible_because[0]}")
    step = _StepEvents(problem, placement, trace, trace.start_ns, trace.finish_ns)
    events = chain(step.tracks(), step.ops(), step.transfers(), step.arrows(), step.memory())
    with new_file(path, may_compress=True) as file:
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        separator = ""
        while lines := list(islice(events, _EVENTS_PER_WRITE)):
            file.write((separator + ",\n".join(lines)).encode())
            separator = ",\n"
        file.write(b"\n]}\n")


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _rows(table: NDArray[np.void]) -> Iterator[Any]:
    """The rows as tuples; a million of them at once would take hundreds of megabytes."""
    for begin in range(0, len(table), _EVENTS_PER_WRITE):
        yield from table[begin : begin + _EVENTS_PER_WRITE].tolist()


def _quoted(names: Iterable[str]) -> list[str]:
    return [json.dumps(name) for name in names]


class _StepEvents:
    """The events of one step, each as a line of JSON.

    Process `d + 1` is device d, process `m + 1` are the channels.
    """

    def __init__(
        self,
        problem: Problem,
        placement: _Int32,
        trace: StepTrace,
        start_ns: _Int64,
        finish_ns: _Int64,
    ) -> None:
        self._problem = problem
        self._trace = trace
        self._placement = placement
        self._start_ns = start_ns
        self._finish_ns = finish_ns
        self._sends = trace.transfers
        self._channels_pid = problem.num_devices + 1
        self._lane = assign_slots(placement, start_ns, finish_ns, problem.device_slots)

    def tracks(self) -> Iterator[str]:
        kinds = self._problem.device_kinds
        lanes = np.zeros(self._problem.num_devices, np.int64)
        np.maximum.at(lanes, self._placement, self._lane + 1)
        for device, name in enumerate(self._problem.device_names):
            kind = kinds[self._problem.device_kind[device]]
            yield from _name("process", device + 1, 0, f"{name} ({kind})", device)
            for lane in range(lanes[device]):
                yield from _name("thread", device + 1, lane + 1, f"slot {lane}", lane)
        channels = self._problem.channel_names
        if channels:
            yield from _name(
                "process", self._channels_pid, 0, "channels", self._problem.num_devices
            )
        for channel, name in enumerate(channels):
            yield from _name("thread", self._channels_pid, channel + 1, name, channel)

    def ops(self) -> Iterator[str]:
        sizes = np.concatenate([[0], np.cumsum(self._problem.output_bytes)])
        output_bytes = np.diff(sizes[self._problem.output_ptr])
        columns = zip(
            _quoted(self._problem.op_names),
            _quoted(self._problem.op_types),
            self._placement.tolist(),
            self._lane.tolist(),
            self._start_ns.tolist(),
            self._finish_ns.tolist(),
            (self._start_ns - self._ready_ns()).tolist(),
            output_bytes.tolist(),
            self._problem.persistent_bytes.tolist(),
            strict=True,
        )
        for name, kind, device, lane, start, finish, wait, outputs, persistent in columns:
            yield (
                f'{{"ph":"X","pid":{device + 1},"tid":{lane + 1},"ts":{_us(start)},'
                f'"dur":{_us(finish - start)},"name":{name},"cat":{kind},"args":{{'
                f'"type":{kind},"wait_ns":{wait},"output_bytes":{outputs},'
                f'"persistent_bytes":{persistent}}}}}'
            )

    def transfers(self) -> Iterator[str]:
        devices = _quoted(self._problem.device_names)
        names = self._problem.op_names
        for send in _rows(self._sends):
            src_op, output, src, dst, channel, _, sent, start, carried, _, size = send
            name = tensor_name(names, src_op, output)
            yield (
                f'{{"ph":"X","pid":{self._channels_pid},"tid":{channel + 1},"ts":{_us(start)},'
                f'"dur":{_us(carried - start)},"name":{json.dumps(name)},"cat":"transfer","args":{{'
                f'"bytes":{size},"from":{devices[src]},"to":{devices[dst]},'
                f'"wait_ns":{start - sent}}}}}'
            )

    def arrows(self) -> Iterator[str]:
        """From the producer's last nanosecond over the transfer to its first consumer."""
        pids, tids = (self._placement + 1).tolist(), (self._lane + 1).tolist()
        sent_ns = np.maximum(self._start_ns, self._finish_ns - 1).tolist()
        read_ns = self._start_ns.tolist()
        consumers = self._first_consumers().tolist()
        for flow, (send, op) in enumerate(zip(_rows(self._sends), consumers, strict=True)):
            src_op, channel, start_ns = send[0], send[4], send[7]
            yield _arrow("s", flow, pids[src_op], tids[src_op], sent_ns[src_op])
            yield _arrow("t", flow, self._channels_pid, channel + 1, start_ns)
            yield _arrow("f", flow, pids[op], tids[op], read_ns[op])

    def memory(self) -> Iterator[str]:
        timeline = self._trace.memory_timeline()
        for device in range(self._problem.num_devices):
            held = timeline[timeline["device"] == device]
            columns = (column.tolist() for column in memory_steps(held["time_ns"], held["bytes"]))
            for time_ns, size in zip(*columns, strict=True):
                yield (
                    f'{{"ph":"C","pid":{device + 1},"tid":0,"ts":{_us(time_ns)},'
                    f'"name":"memory","args":{{"bytes":{size}}}}}'
                )

    def _ready_ns(self) -> _Int64:
        ready_ns = np.zeros(self._problem.num_ops, np.int64)
        for _, dst, arrival_ns, _ in arrivals(self._problem, self._placement, self._trace):
            np.maximum.at(ready_ns, dst, arrival_ns)
        return ready_ns

    def _first_consumers(self) -> _Int32:
        """For each transfer a reader, else an op behind a control edge, that starts first."""
        first = np.full(len(self._sends), -1, np.int32)
        for _, dst, _, send in arrivals(self._problem, self._placement, self._trace):
            # The last write wins: hence those that start first come last.
            order = np.lexsort((-dst, -self._start_ns[dst]))
            order = order[send[order] >= 0]
            later = first[send[order]]
            first[send[order]] = np.where(later < 0, dst[order], later)
        return first


def _arrow(phase: str, flow: int, pid: int, tid: int, time_ns: int) -> str:
    return (
        f'{{"ph":"{phase}","id":{flow + 1},"pid":{pid},"tid":{tid},"ts":{_us(time_ns)},'
        f'"name":"transfer","cat":"transfer","bp":"e"}}'
    )


def _name(what: str, pid: int, tid: int, name: str, position: int) -> Iterator[str]:
    head = f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{what}'
    yield f'{head}_name","args":{{"name":{json.dumps(name)}}}}}'
    yield f'{head}_sort_index","args":{{"sort_index":{position}}}}}'
