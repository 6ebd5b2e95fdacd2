"""The data behind the page's charts: tracks of each step, scopes, edges and memory.

What follows from other data is left out, and `data.js` works it out again: the size of a transfer
from its tensor, a start from the end of the span before, a duration from another step or a link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.inspection.critical_path import COMPUTE, SLOT_WAIT, Stage
from hplacer_optimizer.inspection.loads import short_names
from hplacer_optimizer.inspection.report.colours import device_colours
from hplacer_optimizer.inspection.report.columns import EXACT, Columns
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.inspection.tracks import assign_slots, memory_steps

__all__ = ["NO_CHANNEL", "pack_steps"]

NO_CHANNEL = "no channel"  # names the lane of transfers that take no time
_WINDOWS = 2500  # of memory over time, more than a screen has pixels

_Int64 = NDArray[np.int64]


def pack_steps(steps: Mapping[str, SimulatedStep]) -> str:
    """The text that `data.js` unpacks.

    Args:
        steps: at least one, under the names that the page shows; all of one problem and with times.
            Memory over time is that of the first.
    """
    first = next(iter(steps.values()))
    problem, columns = first.problem, Columns()
    types = {name: i for i, name in enumerate(dict.fromkeys(problem.op_types))}
    type_of = np.array([types[name] for name in problem.op_types], np.int64)
    scopes, scope_of, leaves = _scopes(problem.op_names)
    document = {
        "devices": _devices(problem, first.trace),
        "types": list(types),
        "scopes": [{"name": name, "parent": parent} for name, parent in scopes],
        "ops": {
            "leaf": leaves,
            "scope": columns.add(scope_of),
            "type": columns.add(type_of),
            "outputs": columns.add(np.diff(problem.output_ptr)),
            "persistent_bytes": columns.add(problem.persistent_bytes),
        },
        "tensor_bytes": columns.add(problem.output_bytes),
        "edges": _edges(problem, columns),
        "links": {name: columns.add(value) for name, value in _links(problem).items()},
        "steps": [_step(name, step, first, columns) for name, step in steps.items()],
        "memory": _memory(problem, first.trace, columns),
    }
    return columns.pack(document)


def _devices(problem: Problem, trace: StepTrace) -> list[dict[str, Any]]:
    names = problem.device_names
    labels, colours = short_names(names), device_colours(names)
    return [
        {
            "name": name,
            "label": label,
            "color": colour,
            "memory_bytes": int(problem.device_memory_bytes[device]),
            "peak_bytes": int(trace.peak_bytes[device]),
        }
        for device, (name, label, colour) in enumerate(zip(names, labels, colours, strict=True))
    ]


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


def _edges(problem: Problem, columns: Columns) -> dict[str, Any]:
    """Data edges, then control edges with the output -1."""
    src, output, dst = problem.edges.T
    control_src, control_dst = problem.control_edges.T
    return {
        "src": columns.add(np.concatenate([src, control_src]), delta=True),
        "output": columns.add(np.concatenate([output, np.full(len(control_src), -1)])),
        "dst": columns.add(np.concatenate([dst, control_dst]), delta=True),
    }


def _links(problem: Problem) -> dict[str, _Int64]:
    """Latency and bandwidth from device to device, [m * m] each; 0 and 1 without a link."""
    pair = problem.link_src * problem.num_devices + problem.link_dst
    latency_ns = np.zeros(problem.num_devices**2, np.int64)
    bytes_per_s = np.ones_like(latency_ns)
    latency_ns[pair], bytes_per_s[pair] = problem.link_latency_ns, problem.link_bytes_per_s
    links = {"latency_ns": latency_ns, "bytes_per_s": bytes_per_s}
    return {name: np.minimum(values, EXACT - 1) for name, values in links.items()}


def _step(name: str, step: SimulatedStep, first: SimulatedStep, columns: Columns) -> dict[str, Any]:
    """One step; its transfers are in the order of the trace."""
    trace, sends = step.trace, step.trace.transfers
    lanes, spans = _lanes(trace, _expected_ns(step, first), columns)
    return {
        "name": name,
        "makespan_ns": trace.makespan_ns,
        "computes": [waits.computes_ns / max(trace.makespan_ns or 0, 1) for waits in step.waits],
        "placement": columns.add(trace.placement),
        "lanes": lanes,
        "spans": spans,
        "transfers": {
            "src_op": columns.add(sends["src_op"], delta=True),
            "output": columns.add(sends["output"]),
            "dst_device": columns.add(sends["dst_device"]),
        },
        "path": _path(step.path, columns),
    }


def _expected_ns(step: SimulatedStep, first: SimulatedStep) -> _Int64:
    """What `data.js` takes for the durations of the ops, then of the transfers.

    That of an op is its duration in the first step, and 0 there. The page does the same
    floating-point operations in the same order, so that it gets the same numbers.
    """
    trace, sends, links = first.trace, step.trace.transfers, _links(step.problem)
    assert trace.start_ns is not None
    assert trace.finish_ns is not None
    ops_ns = np.zeros_like(trace.start_ns) if step is first else trace.finish_ns - trace.start_ns
    pair = sends["src_device"] * step.problem.num_devices + sends["dst_device"]
    ns_per_byte = 1e9 / links["bytes_per_s"][pair]
    carried_ns = np.floor(links["latency_ns"][pair] + sends["bytes"] * ns_per_byte + 0.5)
    return np.concatenate([ops_ns, carried_ns.astype(np.int64)])


def _lanes(
    trace: StepTrace, expected_ns: _Int64, columns: Columns
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """One lane per slot and per channel in use, and their spans one lane after the other.

    A span's `item` is an op in a device's lane, a transfer in a channel's. Its `gap` is the time
    since the span before ended, or since the step began; `extra` is what it lasts longer than
    expected. Spans of a lane never overlap: transfers that take no time, which a busy channel does
    not hold up, have a lane of their own.
    """
    assert trace.start_ns is not None
    assert trace.finish_ns is not None
    problem, placement, sends = trace.problem, trace.placement, trace.transfers
    slot = assign_slots(placement, trace.start_ns, trace.finish_ns, problem.device_slots)
    slots = np.ones(problem.num_devices, np.int64)  # an idle device has a lane, too
    np.maximum.at(slots, placement, slot + 1)
    first_lane = np.concatenate([[0], np.cumsum(slots)])
    lanes: list[dict[str, Any]] = [
        {"device": device, "slot": slot}
        for device in range(problem.num_devices)
        for slot in range(slots[device])
    ]
    names = [*problem.channel_names, NO_CHANNEL]
    takes_time = sends["carried_ns"] > sends["start_ns"]
    channel = np.where(takes_time, sends["channel"], len(problem.channel_names))
    used, send_lane = np.unique(channel, return_inverse=True)
    lanes += [{"channel": names[channel]} for channel in used]
    lane = np.concatenate([first_lane[placement] + slot, first_lane[-1] + send_lane])
    start = np.concatenate([trace.start_ns, sends["start_ns"]])
    finish = np.concatenate([trace.finish_ns, sends["carried_ns"]])
    item = np.concatenate([np.arange(len(placement)), np.arange(len(sends))])
    order = np.lexsort((finish, start, lane))
    ends = np.searchsorted(lane[order], np.arange(len(lanes)), side="right")
    for entry, end in zip(lanes, ends.tolist(), strict=True):
        entry["end"] = end
    return lanes, {
        "gap": columns.add(_gaps(start[order], finish[order], ends)),
        "extra": columns.add((finish - start - expected_ns)[order]),
        "item": columns.add(item[order], delta=True),
    }


def _gaps(start: _Int64, finish: _Int64, ends: NDArray[np.intp]) -> _Int64:
    """From the end of the span before in the same lane, or from 0, to the start of each span."""
    before = np.append(0, finish)[:-1]
    before[ends[:-1][ends[:-1] < len(start)]] = 0
    gaps: _Int64 = start - before
    return gaps


def _path(path: list[Stage], columns: Columns) -> dict[str, Any]:
    """The critical path as stages that follow each other without a gap."""
    return {
        "of_op": columns.add(np.array([x.kind in (COMPUTE, SLOT_WAIT) for x in path], np.uint8)),
        "item": columns.add(np.array([x.item for x in path], np.int64), delta=True),
        "begin": columns.add(np.array([x.begin_ns for x in path], np.int64), delta=True),
    }


def _memory(problem: Problem, trace: StepTrace, columns: Columns) -> list[dict[str, Any]]:
    """Of each device the bytes that it holds from each time on."""
    timeline = trace.memory_timeline()
    held = []
    for device in range(problem.num_devices):
        own = timeline[timeline["device"] == device]
        times_ns, sizes = memory_steps(own["time_ns"], own["bytes"])
        if len(times_ns) > _WINDOWS:
            times_ns, sizes = _most_in_windows(times_ns, sizes, trace.makespan_ns or 0)
        held.append(
            {"time": columns.add(times_ns, delta=True), "bytes": columns.add(sizes, delta=True)}
        )
    return held


def _most_in_windows(times_ns: _Int64, sizes: _Int64, step_ns: int) -> tuple[_Int64, _Int64]:
    """The most that is held in each of _WINDOWS equal parts of the step: no peak is lost."""
    times_ns, sizes = np.append(-1, times_ns), np.append(0, sizes)
    begins_ns = np.array([i * step_ns // _WINDOWS for i in range(_WINDOWS)], np.int64)
    first = np.searchsorted(times_ns, begins_ns)
    ends = np.append(first[1:], len(times_ns))
    most = [sizes[i - 1 : j].max() for i, j in zip(first, ends, strict=True)]  # held before, too
    return begins_ns, np.array(most, np.int64)
