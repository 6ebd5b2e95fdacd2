"""When the inputs of each op arrive on its device in a simulated step, and by which transfer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace

__all__ = ["LastInputs", "are_copies", "arrivals", "last_inputs", "tensor_name"]

_SIGNAL = -1  # `output` of a transfer that is a control signal

_Int32 = NDArray[np.int32]
_Int64 = NDArray[np.int64]


def are_copies(problem: Problem, sends: NDArray[np.void]) -> NDArray[np.bool_]:
    """bool[transfers]: those from or to a device that launches its ops, which wait for streams."""
    launches = problem.device_launch_ns > 0
    return np.asarray(launches[sends["src_device"]] | launches[sends["dst_device"]])


def arrivals(
    problem: Problem, placement: _Int32, trace: StepTrace
) -> Iterator[tuple[_Int32, _Int32, _Int64, _Int64]]:
    """First for all data edges, then for all control edges: (src, dst, arrival_ns, send).

    `send` is the index of the transfer that brings the input, -1 where src is on dst's device. Of
    ops that signal together, src is the one that does. The trace must have times.
    """
    assert trace.finish_ns is not None
    m, sends = problem.num_devices, trace.transfers
    src, output, dst = problem.edges.T
    arrival_ns, send = trace.finish_ns[src], np.full(len(src), -1, np.int64)
    remote = placement[src] != placement[dst]
    send[remote] = _send_index(problem, sends, src[remote], output[remote], placement[dst[remote]])
    arrival_ns[remote] = sends["finish_ns"][send[remote]]
    yield src, dst, arrival_ns, send

    # The last transfer from an op to a device serves the control edges between them.
    pairs = sends["src_op"].astype(np.int64) * m + sends["dst_device"]
    order = np.lexsort((sends["finish_ns"], pairs))
    src, dst = problem.control_edges.T
    arrival_ns, send = trace.finish_ns[src], np.full(len(src), -1, np.int64)
    remote = placement[src] != placement[dst]
    src = np.where(remote, _speakers(problem, placement, trace)[src], src)
    wanted = src[remote].astype(np.int64) * m + placement[dst[remote]]
    send[remote] = order[np.searchsorted(pairs[order], wanted, side="right") - 1]
    arrival_ns[remote] = sends["finish_ns"][send[remote]]
    yield src, dst, arrival_ns, send


def _speakers(problem: Problem, placement: _Int32, trace: StepTrace) -> _Int32:
    """int32[n], of each op who tells other devices of its end.

    That is the last to finish, of equal ones the highest, of the ops on its device that have the
    control successors that it has. Of equal ones that are launched it is the last launched: the one
    that sends something everywhere.
    """
    assert trace.finish_ns is not None
    finish_ns = trace.finish_ns
    targets = np.unique(trace.transfers[["src_op", "dst_device"]])["src_op"]
    sent = np.bincount(targets, minlength=problem.num_ops)
    sent[problem.device_launch_ns[placement] == 0] = 0
    src, dst = problem.control_edges.T  # sorted
    sources, first = np.unique(src, return_index=True)
    last: dict[tuple[bytes, int], int] = {}
    groups = []
    for op, successors in zip(sources.tolist(), np.split(dst, first[1:]), strict=False):
        group = (successors.tobytes(), int(placement[op]))
        groups.append(group)
        other = last.get(group, op)
        last[group] = max(op, other, key=lambda i: (finish_ns[i], sent[i], i))
    speakers = np.arange(problem.num_ops, dtype=np.int32)
    speakers[sources] = [last[group] for group in groups]
    return speakers


def _send_index(
    problem: Problem, sends: NDArray[np.void], src_op: _Int32, output: _Int32, dst: _Int32
) -> _Int64:
    """Where the transfers (src_op, output, dst) are; the trace has them in that order."""
    width = 1 + int(np.diff(problem.output_ptr).max(initial=0))

    def key(op: _Int32, k: _Int32, device: _Int32) -> _Int64:
        return (op.astype(np.int64) * width + k + 1) * problem.num_devices + device

    keys = key(sends["src_op"], sends["output"], sends["dst_device"])
    found: _Int64 = np.searchsorted(keys, key(src_op, output, dst)).astype(np.int64)
    return found


@dataclass(frozen=True, kw_only=True)
class LastInputs:
    """Of each op the input that arrives last, and so decides when the op is ready."""

    producer: _Int64  # [n] index of an op, -1: no inputs
    send: _Int64  # [n] index of the transfer that brings it, -1: it is made on the op's device
    ready_ns: _Int64  # [n] when it arrives; 0 without inputs


def last_inputs(problem: Problem, placement: _Int32, trace: StepTrace) -> LastInputs:
    """Of several inputs that arrive at once, that of the lowest producer. The trace has times."""
    parts = zip(*arrivals(problem, placement, trace), strict=True)
    src, dst, arrival_ns, send = (np.concatenate(part) for part in parts)
    producer = np.full(problem.num_ops, -1, np.int64)
    by, ready_ns = producer.copy(), np.zeros(problem.num_ops, np.int64)
    order = np.lexsort((-src, arrival_ns, dst))  # the last write wins
    producer[dst[order]], by[dst[order]] = src[order], send[order]
    ready_ns[dst[order]] = arrival_ns[order]
    return LastInputs(producer=producer, send=by, ready_ns=ready_ns)


def tensor_name(op_names: Sequence[str], src_op: int, output: int) -> str:
    """What a transfer carries: "op:0", or "^op" for a control signal."""
    return f"^{op_names[src_op]}" if output == _SIGNAL else f"{op_names[src_op]}:{output}"
