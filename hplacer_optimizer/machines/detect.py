"""The machine behind a session: rates, memory and links of its devices.

TensorFlow tells names, types and a description of its devices; the operating system tells about
the processor. GPU rates come from the catalogue of kinds. What none of them knows is taken from the
constants below, and said in the machine's `assumptions`. Devices that are emulated are described as
the machine that they stand for.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from hplacer_optimizer.machines import host, nvidia
from hplacer_optimizer.machines.emulated import emulated_machine
from hplacer_optimizer.machines.machine import (
    INTER_OP_THREADS,
    MAX_THREADS,
    Device,
    DeviceKind,
    Link,
    Machine,
    full_device_name,
)
from hplacer_optimizer.machines.machine_file import shipped_kinds
from hplacer_optimizer.machines.topology import Host, memory_links, network_links

DETECTED = "detected"  # the name of a machine that is described here, and not elsewhere
_UNKNOWN_ACCELERATOR = DeviceKind(
    name="unknown",
    type="GPU",
    flops_per_s={"float32": 10e12},
    memory_bytes_per_s=500_000_000_000,
    memory_bytes=0,
    launch_overhead_ns=10_000,
    executor_overhead_ns=1_000,
    launches_ahead=True,
)
_EXECUTOR_OVERHEAD_NS = 1_000  # per op, which on a CPU is all of its launch
_CPU_MEMORY_BYTES_PER_S = 10e9  # of one core's share of a memory channel
_CPU_EFFICIENCY = 0.5  # of the peak, reached by large contractions

# (latency_ns, bytes_per_s) between two devices.
_WITHIN_HOST_MEMORY = (5_000, 10_000_000_000)
_LOOPBACK = (0, 10_000_000_000)  # between processes of a host, beside the work of gRPC
_NETWORK_LATENCY_NS = 30_000  # beside it, too
_NETWORK_BYTES_PER_S = 1_250_000_000
# What gRPC makes of a message, rounded from calibrations of two workers with a core each.
_MESSAGE_WORK = {
    "send_ns": 25_000,
    "send_bytes_per_s": 5_000_000_000,
    "receive_ns": 45_000,
    "receive_bytes_per_s": 3_000_000_000,
}
_TURN_NS = 1_200_000  # of Linux, in the mean: a busy thread runs on for up to a tick of 4 ms
_COLD_NS = 100_000  # of the same work after ops that filled the caches
_START_NS = 150_000  # of a step in the first task; the others are told of it
_TOLD_NS = 100_000
_SHARED_CORES = "CPU devices of one task share its cores and memory: two are no faster than one"
_DIVIDED = "devices that a GPU was divided into run at the same time, each as fast as all of it"
LIKE_THIS_HOST = "all hosts are like this one"
_SEVERAL_TASKS = (
    f"a message between tasks is {_MESSAGE_WORK['send_ns']} ns of work for its sender and "
    f"{_MESSAGE_WORK['receive_ns']} ns for its receiver, beside its bytes, and waits up to "
    f"{_TURN_NS} ns, over the cores of an op, for each op that runs or is ready there; after ops "
    f"its work takes {_COLD_NS} ns longer"
)


class SessionDevice(Protocol):
    """A device as TensorFlow describes it (`_tf.SessionDevice`)."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def memory_bytes(self) -> int: ...


def detect(
    devices: Sequence[SessionDevice],
    *,
    inter_op_threads: int = 0,
    intra_op_threads: int = 0,
    hosts: Mapping[str, str] | None = None,
    is_task: bool = False,
    ask_driver: bool = False,
) -> Machine:
    """Describes the machine of a session's devices.

    The tasks of one host share its cores and memory in equal parts; the CPU devices of one task
    share its part, so that two of them are no faster than one. Other hosts are taken to be like
    this one.

    Args:
        devices: in the session's order, at least one.
        inter_op_threads: ops that TensorFlow runs at once on a CPU, and threads that launch on
            accelerators; 0: as many as cores.
        intra_op_threads: threads of one op; 0: as many as cores.
        hosts: the host of each task ("/job:worker/replica:0/task:1"); by default each task has one
            of its own.
        is_task: this process is one of the tasks. If it may use a part of its host's cores, so may
            each of the others, another part. Otherwise they share what this process may use.
        ask_driver: runs `nvidia-smi` for the links of GPUs, which takes up to a few seconds.

    Returns:
        A machine whose `assumptions` tell what was not known.
    """
    emulated = emulated_machine()
    if emulated is not None and (found := _part_of(emulated, devices)):
        return replace(found, inter_op_threads=inter_op_threads or found.inter_op_threads)
    assumptions: set[str] = set()
    hosts = hosts or {}
    host_of = {d.name: hosts.get(_task(d.name), _task(d.name)) for d in devices}
    tasks = list(dict.fromkeys(_task(device.name) for device in devices))
    cpus_of_task = Counter(_task(device.name) for device in devices if device.type == "CPU")
    kinds: dict[str, DeviceKind] = {}
    described = []
    for device in devices:
        cores = None
        if device.type == "CPU":
            task = _task(device.name)
            sharing = sum(hosts.get(other, other) == host_of[device.name] for other in cpus_of_task)
            if cpus_of_task[task] > 1:
                cores = f"cores of {task or 'this task'}"
                assumptions.add(_SHARED_CORES)
            task_cores = _cores_of_task(sharing, is_task)
            kind = _cpu_kind(sharing, task_cores, inter_op_threads, intra_op_threads, assumptions)
            if len(tasks) > 1:
                kind = _with_messages(kind, task_cores)
            memory = kind.memory_bytes  # TensorFlow reports 256 MB for any CPU
        else:
            kind = _accelerator_kind(device, assumptions)
            memory = max(device.memory_bytes, 0)
        kind = kinds.setdefault(kind.name, kind)
        own_memory = None if memory == kind.memory_bytes else memory
        described.append(
            Device(
                name=device.name,
                kind=kind.name,
                memory_bytes=own_memory,
                cores=cores,
                start_ns=_start_ns(_task(device.name), tasks),
            )
        )
    if len(tasks) > 1:
        assumptions.add(_SEVERAL_TASKS)
    threads = INTER_OP_THREADS
    if any(kind.launches_ahead for kind in kinds.values()):
        threads = inter_op_threads or int(host.usable_cores())
    elif len(tasks) > 1:
        sharing = max(Counter(hosts.get(task, task) for task in tasks).values())
        least_cores = int(_cores_of_task(sharing, is_task))
        threads = inter_op_threads or host.worker_threads(least_cores)
    return Machine(
        name=DETECTED,
        kinds=tuple(kinds.values()),
        devices=tuple(described),
        links=_links(devices, host_of, ask_driver, assumptions),
        assumptions=tuple(sorted(assumptions)),
        inter_op_threads=min(max(1, threads), MAX_THREADS),
    )


def _part_of(machine: Machine, devices: Sequence[SessionDevice]) -> Machine | None:
    """The devices of a machine that a session has, in its order; None if it has others, too.

    The session may have left some out, may have less memory on the others than they have, and may
    have divided some into several.
    """
    given = {full_device_name(device.name): device for device in machine.devices}
    memory = dict(zip(given, machine.memory_bytes, strict=True))
    described = []
    divided: dict[str, list[str]] = {}  # the session's devices, by the machine's
    for device in devices:
        full_name = full_device_name(_undivided(device))
        if full_name not in given:
            return None
        own = given[full_name]
        if device.type != "CPU" and 0 < device.memory_bytes < memory[full_name]:
            own = replace(own, memory_bytes=device.memory_bytes)
        described.append(replace(own, name=device.name))
        divided.setdefault(given[full_name].name, []).append(device.name)
    used = {device.kind for device in described}
    links = [
        replace(link, src=src, dst=dst)
        for link in machine.links
        for src in divided.get(link.src, ())
        for dst in divided.get(link.dst, ())
    ]
    rates = {kind.name: kind.memory_bytes_per_s for kind in machine.kinds}
    for whole, parts in divided.items():
        # A copy within a device reads and writes its memory.
        bytes_per_s = rates[given[full_device_name(whole)].kind] // 2
        links += [
            Link(src=a, dst=b, channel=f"within {whole}", latency_ns=0, bytes_per_s=bytes_per_s)
            for a, b in itertools.permutations(parts, 2)
        ]
    is_divided = len(divided) < len(described)
    return replace(
        machine,
        kinds=tuple(kind for kind in machine.kinds if kind.name in used),
        devices=tuple(described),
        links=tuple(links),
        assumptions=(*machine.assumptions, *([_DIVIDED] if is_divided else [])),
    )


def _undivided(device: SessionDevice) -> str:
    """The name that a session has for a device if it sees all of them, and divides none.

    TensorFlow describes a GPU by its number among all of the host.
    """
    number = re.match(r"device: (\d+),", device.description)
    return re.sub(r"\d+$", number[1], device.name) if number else device.name


def _start_ns(task: str, tasks: Sequence[str]) -> int:
    """All devices of a single task start together: then it does not matter when."""
    if len(tasks) == 1:
        return 0
    return _START_NS if task == tasks[0] else _START_NS + _TOLD_NS


# ---- kinds ----


def _cores_of_task(sharing: int, is_task: bool) -> float:
    """Of one of `sharing` tasks on a host."""
    if is_task:
        return min(host.usable_cores(), host.all_cores() / sharing)
    return host.usable_cores() / sharing


def _cpu_kind(
    sharing: int, cores: float, inter_op: int, intra_op: int, assumptions: set[str]
) -> DeviceKind:
    """The processor of a task that is one of `sharing` on this host, and has so many cores.

    A slot is what one op gets: its intra-op threads. There are as many as inter-op threads and
    cores allow.
    """
    processor = host.processor()
    slot_cores = min(intra_op, cores) if intra_op else cores
    slots = int(cores / slot_cores)
    if inter_op:
        slots = max(1, min(slots, inter_op))
    peak = slot_cores * processor.hertz * processor.flops_per_cycle * _CPU_EFFICIENCY
    assumptions.add(
        f"a CPU ({processor.model or 'model unknown'}) reaches {_CPU_EFFICIENCY:.0%} of its peak "
        f"of {processor.flops_per_cycle} float32 FLOPs per cycle and core, and "
        f"{_CPU_MEMORY_BYTES_PER_S:.3g} memory bytes/s per core"
    )
    if not processor.hertz_known:
        assumptions.add(f"the clock of the CPU is not known: {processor.hertz:.3g} Hz")
    return DeviceKind(
        name="CPU" if sharing == 1 else f"CPU (1/{sharing} of the cores)",
        type="CPU",
        flops_per_s={"float32": peak, "float64": peak / 2},
        memory_bytes_per_s=int(slot_cores * _CPU_MEMORY_BYTES_PER_S),
        memory_bytes=host.memory_bytes() // sharing,
        launch_overhead_ns=_EXECUTOR_OVERHEAD_NS,
        executor_overhead_ns=_EXECUTOR_OVERHEAD_NS,
        slots=slots,
    )


def _with_messages(kind: DeviceKind, cores: float) -> DeviceKind:
    """That of a task among several. Of the cores of an op, any may be free for a message."""
    slot_cores = max(cores / kind.slots, 1)
    return replace(kind, turn_ns=round(_TURN_NS / slot_cores), cold_ns=_COLD_NS)


def _accelerator_kind(device: SessionDevice, assumptions: set[str]) -> DeviceKind:
    found = re.search(r"name: ([^,]+)", device.description)
    model = found[1].strip() if found else ""
    known = match_model(model, shipped_kinds())
    if known is None:
        known = _UNKNOWN_ACCELERATOR
        assumptions.add(
            f"rates of {model or device.type!r} are not known: "
            f"{known.flops_per_s['float32']:.3g} FLOP/s, {known.memory_bytes_per_s:.3g} bytes/s"
        )
    name = f"{device.type} {model}" if model else device.type
    return replace(
        known, name=name, type=device.type, memory_bytes=max(device.memory_bytes, 0), slots=1
    )


def is_limit(kind: str, device_type: str) -> bool:
    """Whether the memory of a device is what TensorFlow's allocator may take there.

    So it is for accelerators that TensorFlow told, which the name of their kind shows: it holds
    back what the process takes. A data sheet has all of the memory, and so has a CPU.
    """
    return device_type != "CPU" and kind.partition(" ")[0] == device_type


def match_model(model: str, kinds: Mapping[str, DeviceKind]) -> DeviceKind | None:
    """The kind all of whose name's parts begin a word of a model as the driver spells it.

    "a100-80gb" matches "NVIDIA A100 80GB PCIe", as does "a100"; the longer name wins. A digit
    after the part is another model: "a10" is not "A100".
    """
    words = model.lower()

    def matches(kind: DeviceKind) -> bool:
        parts = kind.name.split("-")
        return all(re.search(rf"\b{re.escape(part)}(?!\d)", words) for part in parts)

    found = [kind for kind in kinds.values() if kind.type != "CPU" and matches(kind)]
    return max(found, key=lambda kind: len(kind.name), default=None)


# ---- links ----


def _links(
    devices: Sequence[SessionDevice],
    host_of: Mapping[str, str],
    ask_driver: bool,
    assumptions: set[str],
) -> tuple[Link, ...]:
    """Within a task, then between tasks of one host, then between hosts."""
    found: list[Link] = []
    tasks: dict[str, list[SessionDevice]] = {}
    for device in devices:
        tasks.setdefault(_task(device.name), []).append(device)
    for members in tasks.values():
        cpus = [device.name for device in members if device.type == "CPU"]
        gpus = {device.name: device.description for device in members if device.type != "CPU"}
        if len({_undivided(device) for device in members if device.type != "CPU"}) < len(gpus):
            assumptions.add(_DIVIDED)
        if gpus:
            found += nvidia.links(cpus, gpus, ask_driver and len(tasks) == 1, assumptions)
        if len(cpus) > 1:
            found += memory_links(cpus, *_WITHIN_HOST_MEMORY)
            assumptions.add(_assume("CPU devices of one task", *_WITHIN_HOST_MEMORY))
    hosts = list(dict.fromkeys(host_of.values()))
    for name in hosts:
        here = [task for task, members in tasks.items() if host_of[members[0].name] == name]
        ends = [
            Host(
                name=task or "task",
                devices=tuple(device.name for device in tasks[task]),
                bytes_per_s=_LOOPBACK[1],
            )
            for task in here
        ]
        found += _with_work(network_links("loopback", ends, _LOOPBACK[0]), devices)
        if len(here) > 1:
            assumptions.add(_assume("tasks of one host", *_LOOPBACK))
    if len(hosts) > 1:
        found += _with_work(_between_hosts(hosts, host_of, assumptions), devices)
    first: dict[tuple[str, str], Link] = {}
    for link in found:
        first.setdefault((link.src, link.dst), link)
    return tuple(first.values())


def _between_hosts(
    hosts: Sequence[str], host_of: Mapping[str, str], assumptions: set[str]
) -> Iterator[Link]:
    bytes_per_s = host.network_bytes_per_s()
    if bytes_per_s is None:
        bytes_per_s = _NETWORK_BYTES_PER_S
        assumptions.add(_assume("hosts", _NETWORK_LATENCY_NS, bytes_per_s))
    assumptions.add(LIKE_THIS_HOST)
    adapters = [
        Host(
            name=name or "host",
            devices=tuple(device for device, at in host_of.items() if at == name),
            bytes_per_s=bytes_per_s,
        )
        for name in hosts
    ]
    return network_links("network", adapters, _NETWORK_LATENCY_NS)


def _with_work(links: Iterable[Link], devices: Sequence[SessionDevice]) -> Iterator[Link]:
    """The links between tasks, with the work of messages where an end is a CPU.

    A message of another device is work of its host, which takes time but no slot of the device.
    """
    types = {device.name: device.type for device in devices}
    for link in links:
        for end, part in ((link.src, "send"), (link.dst, "receive")):
            names = (f"{part}_ns", f"{part}_bytes_per_s")
            if types[end] == "CPU":
                work: dict[str, Any] = {name: _MESSAGE_WORK[name] for name in names}
                link = replace(link, **work)
            else:
                link = replace(link, latency_ns=link.latency_ns + _MESSAGE_WORK[names[0]])
        yield link


def _assume(ends: str, latency_ns: int, bytes_per_s: int) -> str:
    return f"links between {ends}: {latency_ns} ns and {bytes_per_s:.3g} bytes/s"


def _task(device_name: str) -> str:
    return device_name[: device_name.index("/device:")]
