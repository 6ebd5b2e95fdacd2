"""The data behind the page's charts: tracks of the step, scopes, edges and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.inspection.loads import short_names
from hplacer_optimizer.inspection.report.columns import Columns
from hplacer_optimizer.inspection.tracks import assign_slots, memory_steps

__all__ = ["pack_step"]

_Int32 = NDArray[np.int32]
_Int64 = NDArray[np.int64]


def pack_step(problem: Problem, placement: _Int32, trace: StepTrace) -> str:
    """The text that `data.js` unpacks. The trace must have times."""
    columns = Columns()
    types = {name: i for i, name in enumerate(dict.fromkeys(problem.op_types))}
    type_of = np.array([types[name] for name in problem.op_types], np.int64)
    scopes, scope_of, leaves = _scopes(problem.op_names)
    lanes, spans = _lanes(problem, placement, trace)
    sends = trace.transfers
    document = {
        "makespan_ns": trace.makespan_ns,
        "devices": [
            {
                "name": name,
                "label": label,
                "is_cpu": "CPU" in name.upper(),
                "memory_bytes": int(problem.device_memory_bytes[device]),
                "peak_bytes": int(trace.peak_bytes[device]),
            }
            for device, (name, label) in enumerate(
                zip(problem.device_names, short_names(problem.device_names), strict=True)
            )
        ],
        "lanes": lanes,
        "spans": {name: columns.add(values, delta=name == "start") for name, values in spans},
        "types": list(types),
        "scopes": [{"name": name, "parent": parent} for name, parent in scopes],
        "ops": {
            "leaf": leaves,
            "scope": columns.add(scope_of),
            "type": columns.add(type_of),
            "device": columns.add(placement),
            "output_bytes": columns.add(_output_bytes_of_ops(problem)),
            "persistent_bytes": columns.add(problem.persistent_bytes),
        },
        "edges": _edges(problem, columns),
        "transfers": {
            name: columns.add(sends[name])
            for name in ("src_op", "output", "src_device", "dst_device", "bytes")
        },
        "memory": _memory(problem, trace, columns),
    }
    return columns.pack(document)


def _scopes(names: Sequence[str]) -> tuple[list[tuple[str, int]], _Int64, list[str]]:
    """Scopes as (name, parent; the root is its own), the scope of each op, and its last name."""
    index = {"": 0}
    scopes = [("", 0)]

    def number(path: str) -> int:
        if path not in index:
            parent, _, name = path.rpartition("/")
            above = number(parent)
            index[path] = len(scopes)
            scopes.append((name, above))
        return index[path]

    split = [name.rpartition("/") for name in names]
    scope_of = np.fromiter((number(path) for path, _, _ in split), np.int64, len(names))
    return scopes, scope_of, [leaf for _, _, leaf in split]


def _lanes(
    problem: Problem, placement: _Int32, trace: StepTrace
) -> tuple[list[dict[str, Any]], list[tuple[str, _Int64]]]:
    """One lane per slot and per channel in use, and their spans one lane after the other.

    A span's `item` is an op in a device's lane, a transfer in a channel's.
    """
    assert trace.start_ns is not None
    assert trace.finish_ns is not None
    slot = assign_slots(placement, trace.start_ns, trace.finish_ns, problem.num_devices)
    slots = np.ones(problem.num_devices, np.int64)  # an idle device has a lane, too
    np.maximum.at(slots, placement, slot + 1)
    first_lane = np.concatenate([[0], np.cumsum(slots)])
    lanes: list[dict[str, Any]] = [
        {"device": device, "slot": slot}
        for device in range(problem.num_devices)
        for slot in range(slots[device])
    ]
    sends = trace.transfers
    used = np.unique(sends["channel"])
    lanes += [{"channel": problem.channel_names[channel]} for channel in used]
    lane = np.concatenate(
        [first_lane[placement] + slot, first_lane[-1] + np.searchsorted(used, sends["channel"])]
    )
    start = np.concatenate([trace.start_ns, sends["start_ns"]])
    finish = np.concatenate([trace.finish_ns, sends["carried_ns"]])
    item = np.concatenate([np.arange(len(placement)), np.arange(len(sends))])
    order = np.lexsort((finish, start, lane))
    ends = np.searchsorted(lane[order], np.arange(len(lanes)), side="right")
    for entry, end in zip(lanes, ends.tolist(), strict=True):
        entry["end"] = end
    return lanes, [
        ("start", start[order]),
        ("duration", (finish - start)[order]),
        ("item", item[order]),
    ]


def _output_bytes_of_ops(problem: Problem) -> _Int64:
    sums = np.concatenate([[0], np.cumsum(problem.output_bytes)])
    return np.diff(sums[problem.output_ptr])


def _edges(problem: Problem, columns: Columns) -> dict[str, Any]:
    """Distinct (src, dst) with the bytes of all tensors between them; 0 for control edges."""
    src, output, dst = problem.edges.astype(np.int64).T
    sizes = problem.output_bytes[problem.output_ptr[src] + output]
    control_src, control_dst = problem.control_edges.astype(np.int64).T
    num_ops = max(problem.num_ops, 1)
    keys = np.concatenate([src * num_ops + dst, control_src * num_ops + control_dst])
    distinct, where = np.unique(keys, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, where, np.concatenate([sizes, np.zeros(len(control_src), np.int64)]))
    return {
        "src": columns.add(distinct // num_ops, delta=True),
        "dst": columns.add(distinct % num_ops),
        "bytes": columns.add(total),
    }


def _memory(problem: Problem, trace: StepTrace, columns: Columns) -> list[dict[str, Any]]:
    timeline = trace.memory_timeline()
    held = []
    for device in range(problem.num_devices):
        own = timeline[timeline["device"] == device]
        times_ns, sizes = memory_steps(own["time_ns"], own["bytes"])
        held.append(
            {"time": columns.add(times_ns, delta=True), "bytes": columns.add(sizes, delta=True)}
        )
    return held
