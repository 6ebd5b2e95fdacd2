"""What each op of a traced step took, from the step statistics of a RunMetadata.

An op's interval is not its time where more ops are under way than a device has slots: they take
turns. Linux lets the op that has just begun run first, for a slice of a few milliseconds, and then
divides the processor evenly; so is the time divided here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

_SLICE_NS = 3_000_000
_TRANSFER = "RecvTensor"
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
