"""What each op of a traced step took, from the step statistics of a RunMetadata.

On a CPU, an op's interval is not its time where more ops are under way than a device has slots:
they take turns. Linux lets the op that has just begun run first, for a slice of a few milliseconds,
and then divides the processor evenly; so is the time divided here.

On a GPU, an op's interval is that of its launch, and says nothing of its kernels. The tracer of
NVIDIA's driver tells these on lines of their own, such as "/device:GPU:0/stream:all", with the name
and the type of the op that launched them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SLICE_NS = 3_000_000
_TRANSFER = "RecvTensor"
_WITHIN = "MemcpyD2D"  # in the label of a copy
_ROUNDED_NS = 500  # the mean of what is lost: times of kernels are told in whole microseconds
_START, _AGED, _END = 2, 1, 0  # of equal times an end comes first


def op_times_ns(step_stats: Any, device: str, slots: int) -> dict[str, float]:
    """Nanoseconds by node name, of the ops that ran on a device; several runs of one add up."""
    total: defaultdict[str, float] = defaultdict(float)
    names: list[str] = []
    events: list[tuple[int, int, int]] = []
    for of_device in step_stats.dev_stats:
        if of_device.device != device:
            continue
        for node in of_device.node_stats:
            if node.node_name == _TRANSFER:
                continue
            origin_ns = node.all_start_nanos or node.all_start_micros * 1000
            start_ns = origin_ns + node.op_start_rel_nanos
            end_ns = origin_ns + node.op_end_rel_nanos
            total[node.node_name] += 0.0
            if end_ns == start_ns:
                continue
            index = len(names)
            names.append(node.node_name)
            events += [(start_ns, _START, index), (end_ns, _END, index)]
            if end_ns > start_ns + _SLICE_NS:
                events.append((start_ns + _SLICE_NS, _AGED, index))
    for index, spent_ns in _divided(sorted(events), slots).items():
        total[names[index]] += spent_ns
    return dict(total)


@dataclass(frozen=True, kw_only=True)
class OnGpu:
    """What a traced step did on a GPU."""

    kernels_ns: Mapping[str, float]
    """By node name; several kernels of one add up."""
    launches_ns: Mapping[str, float] | None
    """What the host took for these nodes, which tracing lengthens; None: nothing tells it."""


def times_on_gpu(step_stats: Any, device: str) -> OnGpu:
    """Of a GPU, by its name in full.

    Copies within the device are kernels of the op that asked for them.
    """
    own = device[device.index("/device:") :]
    kernels: defaultdict[str, float] = defaultdict(float)
    host: defaultdict[str, float] = defaultdict(float)
    for line in step_stats.dev_stats:
        for node in line.node_stats:
            if line.device == device:
                host[node.node_name] += node.op_end_rel_nanos - node.op_start_rel_nanos
            elif line.device == f"{own}/stream:all" or (
                line.device == f"{own}/memcpy" and _WITHIN in node.timeline_label
            ):
                name = node.node_name.rpartition(":")[0]
                kernels[name] += node.all_end_rel_micros * 1000 + _ROUNDED_NS
    return OnGpu(
        kernels_ns=dict(kernels),
        launches_ns={name: host[name] for name in kernels if name in host},
    )


def _divided(events: list[tuple[int, int, int]], slots: int) -> dict[int, float]:
    """The processor time of each op."""
    spent: defaultdict[int, float] = defaultdict(float)
    young: dict[int, None] = {}  # under way for less than a slice, in the order of their starts
    old: dict[int, None] = {}
    last_ns = 0
    for now_ns, kind, index in events:
        first = list(young)[-slots:]
        for running in first:
            spent[running] += now_ns - last_ns
        for waiting in old:
            spent[waiting] += (now_ns - last_ns) * min(1.0, (slots - len(first)) / len(old))
        last_ns = now_ns
        if kind == _START:
            young[index] = None
        elif kind == _AGED:
            del young[index]
            old[index] = None
        else:
            young.pop(index, None)
            old.pop(index, None)
    return spent
