"""What a simulated step asks of each device, each channel and each name scope."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace

__all__ = [
    "ChannelLoad",
    "DeviceLoad",
    "LinkLoad",
    "ScopeLoad",
    "channel_loads",
    "device_loads",
    "link_loads",
    "scope_counts",
    "scope_loads",
    "scope_of",
    "short_names",
    "short_place",
]

_FULL_NAME = re.compile(
    r"/job:(?P<job>[^/]+)/replica:(?P<replica>\d+)/task:(?P<task>\d+)/device:(?P<device>[^/]+)"
)
_Int32 = NDArray[np.int32]
_Int64 = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class DeviceLoad:
    """One device during the step."""

    name: str
    ops: int
    busy: float  # share of the step and of the slots, which other devices may use, too
    peak_bytes: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class ChannelLoad:
    """One channel during the step."""

    name: str
    transfers: int
    bytes: int
    busy: float  # share of the step


@dataclass(frozen=True, kw_only=True)
class LinkLoad:
    """Transfers from one device to another during the step."""

    src: str
    dst: str
    channel: str
    transfers: int
    bytes: int
    busy: float  # share of the step


@dataclass(frozen=True, kw_only=True)
class ScopeLoad:
    """The ops below one name scope, during the step."""

    scope: str  # "" for ops without one
    ops: int
    ops_per_device: list[int]  # [m]
    busy_ns: int  # sum of the durations
    persistent_bytes: int


def short_names(names: Sequence[str]) -> list[str]:
    """Device names without what they have in common.

    "/job:a/replica:0/task:0/device:GPU:0" is "GPU:0", and "a/0 GPU:0" beside a device of another
    task.
    """
    found = [_FULL_NAME.fullmatch(name) for name in names]
    full = [match for match in found if match is not None]
    if len(full) < len(names) or len({match["replica"] for match in full}) > 1:
        return _without_common_parts(names)
    if len({(match["job"], match["task"]) for match in full}) == 1:
        return [match["device"] for match in full]
    return [f"{match['job']}/{match['task']} {match['device']}" for match in full]


def short_place(where: str, short: Mapping[str, str]) -> str:
    """A device or a channel, whose name may hold names of devices, by their short names."""
    return " ".join(short.get(word, word) for word in where.split(" "))


def _without_common_parts(names: Sequence[str]) -> list[str]:
    split = [name.split("/") for name in names]
    while split and len(split[0]) > 1 and all(parts[0] == split[0][0] for parts in split):
        if any(len(parts) == 1 for parts in split):
            break
        split = [parts[1:] for parts in split]
    return ["/".join(parts).replace("device:", "") for parts in split]


def busy_ns(trace: StepTrace) -> _Int64 | None:
    """How long each op runs, int64[n]; None without a trace."""
    if trace.start_ns is None or trace.finish_ns is None:
        return None
    return trace.finish_ns - trace.start_ns


def device_loads(problem: Problem, placement: _Int32, trace: StepTrace) -> list[DeviceLoad]:
    """Of every device, in the problem's order."""
    per_device_ns = np.zeros(problem.num_devices)
    durations_ns = busy_ns(trace)
    if durations_ns is not None:
        np.add.at(per_device_ns, placement, durations_ns)
    capacity_ns = np.maximum((trace.makespan_ns or 0) * problem.device_slots.astype(float), 1)
    counts = np.bincount(placement, minlength=problem.num_devices)
    return [
        DeviceLoad(
            name=name,
            ops=int(counts[device]),
            busy=float(per_device_ns[device] / capacity_ns[device]),
            peak_bytes=int(trace.peak_bytes[device]),
            memory_bytes=int(problem.device_memory_bytes[device]),
        )
        for device, name in enumerate(problem.device_names)
    ]


def channel_loads(problem: Problem, trace: StepTrace) -> list[ChannelLoad]:
    """Of the channels that carry anything."""
    transfers = trace.transfers
    names = problem.channel_names
    counts = np.bincount(transfers["channel"], minlength=len(names))
    sizes, sending_ns = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    np.add.at(sizes, transfers["channel"], transfers["bytes"])
    np.add.at(sending_ns, transfers["channel"], transfers["carried_ns"] - transfers["start_ns"])
    step_ns = max(trace.makespan_ns or 0, 1)
    return [
        ChannelLoad(
            name=names[channel],
            transfers=int(counts[channel]),
            bytes=int(sizes[channel]),
            busy=float(sending_ns[channel] / step_ns),
        )
        for channel in np.flatnonzero(counts)
    ]


def link_loads(problem: Problem, trace: StepTrace) -> list[LinkLoad]:
    """Of the links that carry anything, by falling bytes."""
    transfers, m = trace.transfers, problem.num_devices
    pair = transfers["src_device"].astype(np.int64) * m + transfers["dst_device"]
    used, first, where = np.unique(pair, return_index=True, return_inverse=True)
    counts = np.bincount(where, minlength=len(used))
    sizes, sending_ns = np.zeros(len(used), np.int64), np.zeros(len(used), np.int64)
    np.add.at(sizes, where, transfers["bytes"])
    np.add.at(sending_ns, where, transfers["carried_ns"] - transfers["start_ns"])
    step_ns = max(trace.makespan_ns or 0, 1)
    return [
        LinkLoad(
            src=problem.device_names[used[i] // m],
            dst=problem.device_names[used[i] % m],
            channel=problem.channel_names[transfers["channel"][first[i]]],
            transfers=int(counts[i]),
            bytes=int(sizes[i]),
            busy=float(sending_ns[i] / step_ns),
        )
        for i in np.argsort(-sizes, kind="stable")
    ]


def scope_of(name: str, depth: int) -> str:
    """The first `depth` parts of the scope of an op: ("a/b/c", 1) -> "a", ("c", 1) -> ""."""
    return "/".join(name.split("/")[:-1][:depth])


def scope_counts(
    names: Sequence[str], devices: NDArray[np.integer], num_devices: int, depth: int
) -> tuple[list[str], _Int64, _Int32]:
    """Scopes in the order of their first op, int64[scopes, m] counts, and int32[n] scopes."""
    index: dict[str, int] = {}
    scope = np.fromiter(
        (index.setdefault(scope_of(name, depth), len(index)) for name in names),
        np.int32,
        len(names),
    )
    counts = np.zeros((len(index), num_devices), np.int64)
    np.add.at(counts, (scope, devices), 1)
    return list(index), counts, scope


def scope_loads(
    problem: Problem, placement: _Int32, trace: StepTrace, depth: int
) -> list[ScopeLoad]:
    """Of every scope of at most `depth` parts, the busiest first."""
    scopes, counts, scope = scope_counts(problem.op_names, placement, problem.num_devices, depth)
    total_ns, persistent = np.zeros(len(scopes), np.int64), np.zeros(len(scopes), np.int64)
    durations_ns = busy_ns(trace)
    if durations_ns is not None:
        np.add.at(total_ns, scope, durations_ns)
    np.add.at(persistent, scope, problem.persistent_bytes)
    return [
        ScopeLoad(
            scope=scopes[i],
            ops=int(counts[i].sum()),
            ops_per_device=counts[i].tolist(),
            busy_ns=int(total_ns[i]),
            persistent_bytes=int(persistent[i]),
        )
        for i in np.argsort(-total_ns, kind="stable")
    ]
