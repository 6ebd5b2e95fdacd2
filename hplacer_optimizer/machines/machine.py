"""A machine: device kinds with their rates, devices, and the links between them.

Rates are those of one slot, and peaks: what the hardware can do at best, unless the description
says which efficiency is in a figure. Times are nanoseconds, sizes bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hplacer_optimizer.errors import DocumentError, MachineError
from hplacer_optimizer.support.formats import format_devices
from hplacer_optimizer.support.notebook import Described
from hplacer_optimizer.support.quantities import BYTE_RATE, DURATION, FLOP_RATE, SIZE, Dimension

# How products are computed: "tf32" is float32 as TensorFlow multiplies it on GPUs that have TF32.
DTYPES = ("float64", "float32", "tf32", "bfloat16", "float16", "int8")
MAX_DEVICES = 256
MAX_SLOTS = MAX_THREADS = 65_536
INTER_OP_THREADS = 16
_MAX_TEXT = 1_000
_WORK_RATE = replace(BYTE_RATE, lowest=0)  # 0: bytes are no work

_LOCAL_TASK = "/job:localhost/replica:0/task:0"
_TASK = r"/job:[A-Za-z][A-Za-z0-9_]*/replica:\d{1,9}/task:\d{1,9}"
_DEVICE_NAME = re.compile(rf"({_TASK})?/device:([A-Za-z_][A-Za-z0-9_]*):\d{{1,9}}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class DeviceKind:
    """Devices with equal rates, which are those of one slot.

    Raises MachineError, which names the field, when one is out of range.
    """

    name: str  # e.g. "k40"
    type: str  # TensorFlow's: "CPU", "GPU", ...
    # Peak FLOP/s by dtype, "float32" among them; a dtype that is absent runs at float32's. With
    # "tf32" that is the rate of float32, unless a process switches TF32 off.
    flops_per_s: Mapping[str, float] = field(hash=False)
    memory_bytes_per_s: int
    memory_bytes: int  # of one device
    launch_overhead_ns: int  # of an op with a kernel, beside its arithmetic and memory traffic
    executor_overhead_ns: int  # the part of it that an op without a kernel costs, too
    slots: int = 1  # ops that one device runs at once at these rates
    # How long the work of a transfer waits at most for a slot while ops are ready: how long the
    # operating system lets a busy thread run on.
    turn_ns: int = 0
    # How much longer that work takes at most after ops, which filled the processor's caches.
    cold_ns: int = 0
    # Whether the host launches ops ahead of those that run, as it does on a GPU: a step is bound by
    # launches or by kernels, not by their sum. Then `launch_overhead_ns` is no part of a cost.
    launches_ahead: bool = False

    def __post_init__(self) -> None:
        _check_text(self.name, "name")
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,63}", self.type):
            raise MachineError(f"type: {self.type!r} is no device type; write CPU or GPU")
        for dtype, rate in self.flops_per_s.items():
            _check_quantity(FLOP_RATE, rate, f"flops_per_s.{dtype}")
        check_dtypes(self.flops_per_s, "flops_per_s")
        _check_quantity(BYTE_RATE, self.memory_bytes_per_s, "memory_bytes_per_s")
        _check_quantity(SIZE, self.memory_bytes, "memory_bytes")
        _check_quantity(DURATION, self.launch_overhead_ns, "launch_overhead_ns")
        _check_quantity(DURATION, self.executor_overhead_ns, "executor_overhead_ns")
        if self.executor_overhead_ns > self.launch_overhead_ns:
            raise MachineError("executor_overhead_ns: is a part of launch_overhead_ns, but larger")
        if not isinstance(self.slots, int) or not 1 <= self.slots <= MAX_SLOTS:
            raise MachineError(f"slots: {self.slots} is outside 1 to {MAX_SLOTS}")
        _check_quantity(DURATION, self.turn_ns, "turn_ns")
        _check_quantity(DURATION, self.cold_ns, "cold_ns")
        if self.launches_ahead and (self.type == "CPU" or self.slots != 1):
            raise MachineError("launches_ahead: is of accelerators, which run one op at a time")


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device; `kind` is the name of its kind."""

    name: str  # "/device:GPU:0", in a cluster "/job:worker/replica:0/task:1/device:GPU:0"
    kind: str
    memory_bytes: int | None = None  # None: its kind's
    cores: str | None = None  # devices of one name share their slots; None: it has its own
    start_ns: int = 0  # no op of a step starts on it before

    def __post_init__(self) -> None:
        if not _DEVICE_NAME.fullmatch(self.name):
            raise MachineError(
                f"name: {self.name!r} is no device name; write '/device:GPU:0' or "
                "'/job:worker/replica:0/task:0/device:GPU:0'"
            )
        if self.memory_bytes is not None:
            _check_quantity(SIZE, self.memory_bytes, "memory_bytes")
        if self.cores is not None:
            _check_text(self.cores, "cores")
        _check_quantity(DURATION, self.start_ns, "start_ns")

    @property
    def task(self) -> str:
        """As "/job:worker/replica:0/task:1"; "" if the name has none."""
        return self.name[: self.name.index("/device:")]

    @property
    def type(self) -> str:
        return self.name.split(":")[-2]


@dataclass(frozen=True, kw_only=True)
class Link:
    """Transfers from one device to another; links of one channel take turns.

    Before a transfer occupies the channel it is work for a slot of its source, and afterwards for
    one of its destination: a fixed time and one that grows with the bytes. A rate of 0 says that
    bytes are no work.
    """

    src: str
    dst: str
    channel: str
    latency_ns: int
    bytes_per_s: int
    send_ns: int = 0
    send_bytes_per_s: int = 0
    receive_ns: int = 0
    receive_bytes_per_s: int = 0

    def __post_init__(self) -> None:
        _check_text(self.channel, "channel")
        _check_quantity(DURATION, self.latency_ns, "latency_ns")
        _check_quantity(BYTE_RATE, self.bytes_per_s, "bytes_per_s")
        _check_quantity(DURATION, self.send_ns, "send_ns")
        _check_quantity(_WORK_RATE, self.send_bytes_per_s, "send_bytes_per_s")
        _check_quantity(DURATION, self.receive_ns, "receive_ns")
        _check_quantity(_WORK_RATE, self.receive_bytes_per_s, "receive_bytes_per_s")


_LINK_NUMBERS = (
    "latency_ns",
    "bytes_per_s",
    "send_ns",
    "send_bytes_per_s",
    "receive_ns",
    "receive_bytes_per_s",
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Machine(Described):
    """K device kinds with their rates, D devices, and the L links between them.

    Attributes:
        name: of the machine, for people.
        kinds: K kinds; their rates are FLOP/s and bytes/s, their sizes bytes, their times ns.
        devices: D devices, in the order of device indices.
        links: L links in the order of (source, destination), at most one per ordered pair; a pair
            without one cannot talk.
        assumptions: what is not known but taken for granted, one sentence each.
        inter_op_threads: of TensorFlow on the host of each task; so many run or launch ops at once.
        device_names: of the D devices, as TensorFlow names them.

    Raises:
        MachineError: the parts do not fit together; has the path of the faulty field.

    Example:
        >>> import hplacer_optimizer as hp
        >>> machine = hp.load_machine("1cpu-2xk40")
        >>> [kind.name for kind in machine.kinds], machine.device_kind
        (['haswell-18', 'k40'], (0, 1, 1))
        >>> machine.memory_bytes
        (50000000000, 12884901888, 12884901888)
        >>> machine.links[0].src, machine.links[0].dst, machine.links[0].bytes_per_s
        ('/device:CPU:0', '/device:GPU:0', 10000000000)
    """

    name: str
    kinds: tuple[DeviceKind, ...]
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    assumptions: tuple[str, ...] = ()
    inter_op_threads: int = INTER_OP_THREADS

    def __post_init__(self) -> None:
        _check_text(self.name, "name")
        threads = self.inter_op_threads
        if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
            raise MachineError(f"inter_op_threads: {threads} is outside 1 to {MAX_THREADS}")
        for index, assumption in enumerate(self.assumptions):
            _check_text(assumption, f"assumptions[{index}]")
        if not 1 <= len(self.devices) <= MAX_DEVICES:
            raise MachineError(f"devices: {len(self.devices)}, but 1 to {MAX_DEVICES} are possible")
        _check_distinct((kind.name for kind in self.kinds), "kinds", "name")
        _check_distinct((device.name for device in self.devices), "devices", "name")
        types = {kind.name: kind.type for kind in self.kinds}
        for index, device in enumerate(self.devices):
            if device.kind not in types:
                known = ", ".join(types) or "none"
                raise MachineError(
                    f"devices[{index}].kind: unknown kind {device.kind!r}; kinds here: {known}"
                )
            if device.type != types[device.kind]:
                raise MachineError(
                    f"devices[{index}].kind: {device.kind!r} is of type {types[device.kind]}, "
                    f"but the device's name says {device.type}"
                )
        self._check_cores()
        object.__setattr__(self, "links", self._sorted_links())

    def _check_cores(self) -> None:
        kinds = {kind.name: kind for kind in self.kinds}
        first: dict[str, Device] = {}
        for index, device in enumerate(self.devices):
            if device.cores is None:
                continue
            other = first.setdefault(device.cores, device)
            mine, its = kinds[device.kind], kinds[other.kind]
            if mine.slots != its.slots:
                raise MachineError(
                    f"devices[{index}].cores: {device.kind!r} has {mine.slots} slots, but "
                    f"{other.name!r}, which has the same cores, has {its.slots}"
                )
            for name in ("turn", "cold"):
                ns, its_ns = getattr(mine, f"{name}_ns"), getattr(its, f"{name}_ns")
                if ns != its_ns:
                    raise MachineError(
                        f"devices[{index}].cores: {device.kind!r} has a {name} of "
                        f"{DURATION.format(ns)}, but {other.name!r}, which has the same "
                        f"cores, has one of {DURATION.format(its_ns)}"
                    )

    def _sorted_links(self) -> tuple[Link, ...]:
        order = {device.name: index for index, device in enumerate(self.devices)}
        pairs = set()
        for index, link in enumerate(self.links):
            for end in ("src", "dst"):
                if getattr(link, end) not in order:
                    raise MachineError(
                        f"links[{index}].{end}: unknown device {getattr(link, end)!r}"
                    )
            if link.src == link.dst:
                raise MachineError(f"links[{index}].dst: {link.dst!r} is the source, too")
            if (link.src, link.dst) in pairs:
                raise MachineError(
                    f"links[{index}]: a second link from {link.src!r} to {link.dst!r}"
                )
            pairs.add((link.src, link.dst))
        return tuple(sorted(self.links, key=lambda link: (order[link.src], order[link.dst])))

    @property
    def device_names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)

    @property
    def device_kind(self) -> tuple[int, ...]:
        """Index into `kinds` of each device, [D]."""
        index = {kind.name: number for number, kind in enumerate(self.kinds)}
        return tuple(index[device.kind] for device in self.devices)

    @property
    def memory_bytes(self) -> tuple[int, ...]:
        """Of each device, [D]."""
        return tuple(
            self.kinds[kind].memory_bytes if device.memory_bytes is None else device.memory_bytes
            for device, kind in zip(self.devices, self.device_kind, strict=True)
        )

    def _describe(self) -> tuple[str, dict[str, str]]:
        kinds = [device.kind for device in self.devices]
        channels = {link.channel for link in self.links}
        facts = {
            "devices": format_devices(kinds, self.memory_bytes),
            "links": f"{len(self.links)} on {len(channels)} channels",
        }
        if self.assumptions:
            facts["assumes"] = "; ".join(self.assumptions)
        return f"Machine {self.name!r}", facts

    def problem_arrays(self) -> dict[str, Any]:
        """The machine's share of the keywords of `Problem`."""
        order = {name: index for index, name in enumerate(self.device_names)}
        kinds = [self.kinds[kind] for kind in self.device_kind]
        links = {
            f"link_{field}": np.array([getattr(link, field) for link in self.links], np.int64)
            for field in _LINK_NUMBERS
        }
        return {
            "device_kinds": [kind.name for kind in self.kinds],
            "device_names": list(self.device_names),
            "device_kind": np.array(self.device_kind, np.int32),
            "device_memory_bytes": np.array(self.memory_bytes, np.int64),
            "device_slots": np.array([kind.slots for kind in kinds], np.int32),
            "device_cores": [device.cores or "" for device in self.devices],
            "device_start_ns": np.array([device.start_ns for device in self.devices], np.int64),
            "device_turn_ns": np.array([kind.turn_ns for kind in kinds], np.int64),
            "device_cold_ns": np.array([kind.cold_ns for kind in kinds], np.int64),
            "device_launch_ns": np.array(
                [kind.launch_overhead_ns if kind.launches_ahead else 0 for kind in kinds], np.int64
            ),
            "inter_op_threads": self.inter_op_threads,
            "link_src": np.array([order[link.src] for link in self.links], np.int32),
            "link_dst": np.array([order[link.dst] for link in self.links], np.int32),
            "link_channel": [link.channel for link in self.links],
            **links,
        }


def full_device_name(name: str) -> str:
    """As TensorFlow names it in a session: of the local task, if the name has no task."""
    return name if name.startswith("/job:") else _LOCAL_TASK + name


def check_dtypes(flops_per_s: Mapping[str, object], path: str) -> None:
    """Raises MachineError if a dtype is unknown or float32 is missing."""
    for dtype in flops_per_s:
        if dtype not in DTYPES:
            raise MachineError(f"{path}.{dtype}: unknown dtype; dtypes: {', '.join(DTYPES)}")
    if "float32" not in flops_per_s:
        raise MachineError(f"{path}.float32: is missing; dtypes without a rate run at float32's")


def _check_quantity(dimension: Dimension, value: object, path: str) -> None:
    try:
        dimension.check(value, path)
    except DocumentError as error:
        raise MachineError(str(error)) from None


def _check_text(text: str, path: str) -> None:
    if not 1 <= len(text) <= _MAX_TEXT or not text.isprintable():
        raise MachineError(f"{path}: must be 1 to {_MAX_TEXT} printable characters")


def _check_distinct(names: Iterable[str], path: str, what: str) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise MachineError(f"{path}[{index}].{what}: {name!r} is there twice")
        seen.add(name)
