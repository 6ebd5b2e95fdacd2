"""Data parallelism: every device runs the whole step on its share of the batch.

    step = the replica's step + what the exchange of gradients adds to it

How much that is depends on how much happens beside the backward pass, so it is a range. At most:
the wire, then the work of sending, receiving and adding up, and nothing beside anything. At least:
each bucket of gradients goes as soon as they are there, one after the other, and work and wire go
on together; work delays the step, and of the wire what is left after the last gradient.

Between accelerators the figure is the middle, as frameworks differ. Between CPUs it is the least:
TensorFlow sends each gradient by itself, as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.inspection.advice.allreduce import (
    AllReduce,
    all_gather,
    all_reduce,
    hosts_of,
)
from hplacer_optimizer.inspection.advice.gradients import Gradients
from hplacer_optimizer.machines import Machine
from hplacer_optimizer.planners.devices import device_types

__all__ = ["Exchange", "equal_devices", "exchange", "messages", "shared_ns", "with_exchange"]

BUCKET_BYTES = 25 << 20
"""Of gradients that travel together between accelerators, as PyTorch's DistributedDataParallel has
it by default. Between CPUs each gradient is a message of its own, as TensorFlow sends it."""
_FILLS = 4  # times what cold caches cost, ops take to fill them: as in step_simulation.cc
_PASSES = 3  # over memory, to add a part: two are read, one is written


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What data parallelism adds to the step of one replica, ns."""

    kind: str  # of the all-reduce
    least_ns: int
    most_ns: int
    figure_ns: int


def equal_devices(problem: Problem) -> list[int]:
    """The devices of the fastest kind that has two or more with slots of their own; else none."""
    found: dict[int, list[int]] = {}
    pools: set[int] = set()
    for device, kind in enumerate(problem.device_kind.tolist()):
        if (pool := int(problem.device_pool[device])) not in pools:
            pools.add(pool)
            found.setdefault(kind, []).append(device)
    several = {kind: devices for kind, devices in found.items() if len(devices) > 1}
    return min(several.items(), key=lambda item: _speed(problem, item[0]), default=(0, []))[1]


def _speed(problem: Problem, kind: int) -> tuple[int, int]:
    """Ops without a kernel there, then the time of all others: small is fast."""
    cost_ns = problem.cost_ns[:, kind]
    return int((cost_ns < 0).sum()), int(cost_ns[cost_ns > 0].sum())


def messages(problem: Problem, device: int, gradients: Gradients) -> int:
    """How many pieces dense gradients travel in."""
    if _bucket_bytes(problem, device) == 0:
        return max(len(gradients.producers) - gradients.sparse, 1)
    return max(-(-gradients.dense_bytes // BUCKET_BYTES), 1)


def _sparse_messages(problem: Problem, device: int, gradients: Gradients) -> int:
    """Rows and their numbers, of each table; between accelerators all together."""
    return max(2 * gradients.sparse, 1) if _bucket_bytes(problem, device) == 0 else 1


def _bucket_bytes(problem: Problem, device: int) -> int:
    """0: each gradient goes alone."""
    return 0 if device_types(problem)[device] == "CPU" else BUCKET_BYTES


def exchange(
    problem: Problem,
    devices: Sequence[int],
    gradients: Gradients,
    trace: StepTrace,
    machine: Machine | None,
) -> Exchange:
    """The gradients of one replica, whose step is `trace`, over the links of `problem`.

    Raises InfeasibleError where a link is missing.
    """
    pieces = messages(problem, devices[0], gradients)
    added = all_reduce(problem, devices, gradients.dense_bytes, messages=pieces)
    rows = _sparse_messages(problem, devices[0], gradients)
    gathered = all_gather(problem, devices, gradients.sparse_bytes, messages=rows)
    sent = pieces * bool(gradients.dense_bytes) + rows * bool(gradients.sparse_bytes)
    cold_ns = _cold_ns(problem, devices[0], sent, trace)
    both = AllReduce(
        kind=added.kind,
        wire_ns=added.wire_ns + gathered.wire_ns,
        work_ns=added.work_ns + gathered.work_ns + cold_ns,
        added_bytes=added.added_bytes,
    )
    return with_exchange(both, gradients, trace, machine, devices[0])


def _cold_ns(problem: Problem, device: int, sent: int, trace: StepTrace) -> int:
    """How much longer it takes to send and receive so many messages between the step's ops.

    As the simulator has it, for messages with equally many ops before each.
    """
    most_ns = sent * int(problem.device_cold_ns[device])
    return 2 * min(most_ns, (trace.makespan_ns or 0) // _FILLS)


def with_exchange(
    both: AllReduce, gradients: Gradients, trace: StepTrace, machine: Machine | None, device: int
) -> Exchange:
    """The range of what it adds to the step of a replica, on this device.

    Adding up takes no time where the device's memory is not known.
    """
    busy_ns = both.work_ns
    if machine is not None:
        rate = machine.kinds[machine.device_kind[device]].memory_bytes_per_s
        busy_ns += round(_PASSES * both.added_bytes / rate * 1e9)
    least_ns = max(busy_ns, _left_after_backward(both.wire_ns, gradients, trace, device))
    most_ns = busy_ns + both.wire_ns
    goes_alone = _bucket_bytes(trace.problem, device) == 0
    figure_ns = least_ns if goes_alone else (least_ns + most_ns) // 2
    return Exchange(kind=both.kind, least_ns=least_ns, most_ns=most_ns, figure_ns=figure_ns)


def _left_after_backward(wire_ns: int, gradients: Gradients, trace: StepTrace, device: int) -> int:
    """What of the wire's time comes after the last gradient, if buckets go one after the other."""
    if trace.finish_ns is None or not len(gradients.producers) or not gradients.size_bytes:
        return wire_ns
    ready_ns = trace.finish_ns[gradients.producers]
    order = np.argsort(ready_ns, kind="stable")
    ends = 0.0
    least_bytes = _bucket_bytes(trace.problem, device)
    for ready, size in _buckets(ready_ns[order], gradients.sizes_bytes[order], least_bytes):
        ends = max(ends, ready) + wire_ns * size / gradients.size_bytes
    return max(0, min(wire_ns, round(ends - float(ready_ns.max()))))


def _buckets(
    ready_ns: NDArray[np.int64], sizes_bytes: NDArray[np.int64], least_bytes: int
) -> list[tuple[float, float]]:
    """When each bucket has so many bytes or more, and how many; the last one may have less."""
    found, size = [], 0.0
    for ready, added in zip(ready_ns.tolist(), sizes_bytes.tolist(), strict=True):
        size += added
        if size >= least_bytes:
            found.append((float(ready), size))
            size = 0.0
    if size:
        found.append((float(ready_ns[-1]), size))
    return found


def shared_ns(
    problem: Problem, devices: Sequence[int], placement: NDArray[np.int32], trace: StepTrace
) -> int:
    """How long the busiest device or channel that replicas of a host share works in a step."""
    if trace.finish_ns is None or trace.start_ns is None:
        return 0
    host = hosts_of(problem, devices)[0]
    busy_ns = np.zeros(problem.num_devices)
    np.add.at(busy_ns, placement, trace.finish_ns - trace.start_ns)
    busy_ns = busy_ns / np.maximum(problem.device_slots, 1)
    busy_ns[list(devices)] = 0
    channels = _channel_ns(problem, host, trace)
    return round(max(float(busy_ns.max(initial=0)) * len(host), *channels, 0.0))


def _channel_ns(problem: Problem, replicas: Sequence[int], trace: StepTrace) -> list[float]:
    """Of each channel, if every replica sends and receives what the first one does."""
    ends = zip(problem.link_src.tolist(), problem.link_dst.tolist(), strict=True)
    link_of = {pair: link for link, pair in enumerate(ends)}
    total: dict[str, float] = {}
    pairs: dict[tuple[int, int], int] = {}
    for row in trace.transfers:
        pair = int(row["src_device"]), int(row["dst_device"])
        pairs[pair] = pairs.get(pair, 0) + int(row["bytes"])
    for replica in replicas:
        for pair, size in pairs.items():
            src, dst = (replica if end == replicas[0] else end for end in pair)
            link = link_of.get((src, dst))
            if link is not None:
                channel = problem.link_channel[link]
                rate = int(problem.link_bytes_per_s[link])
                total[channel] = total.get(channel, 0.0) + size / rate * 1e9
    return list(total.values())
