"""The machine behind a session: rates, memory and links of its devices.

TensorFlow tells names, types and a description of its devices; the operating system tells about
the processor. What neither knows is taken from the tables below, and said in `assumptions`.
Rates are those of one slot, times are nanoseconds, sizes bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

# Peak single-precision FLOP/s and memory bytes/s by model, from NVIDIA's data sheets.
_GPU_RATES = {
    "H200": (67e12, 4.8e12),
    "H100": (67e12, 3.35e12),
    "A100": (19.5e12, 1.555e12),
    "V100": (15.7e12, 0.9e12),
    "P100": (9.3e12, 0.732e12),
    "K40": (4.29e12, 0.288e12),
    "A10": (31.2e12, 0.6e12),
    "L4": (30.3e12, 0.3e12),
    "T4": (8.1e12, 0.32e12),
}
_UNKNOWN_GPU_RATES = (10e12, 0.5e12)
_GPU_LAUNCH_OVERHEAD_NS = 5_000  # one kernel launch
_CPU_LAUNCH_OVERHEAD_NS = 1_000  # the executor's work per op
_CPU_MEMORY_BYTES_PER_S = 10e9  # of one core's share of a memory channel
_DEFAULT_CPU_HZ = 2.5e9
_CPU_EFFICIENCY = 0.5  # of the peak, reached by large contractions

# (latency_ns, bytes_per_s) between two devices.
_WITHIN_HOST_MEMORY = (5_000, 10_000_000_000)
_PCIE = (10_000, 12_000_000_000)
_ETHERNET = (100_000, 1_250_000_000)

_TASK = re.compile(r"(/job:[^/]+/replica:\d+/task:\d+)")


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


@dataclass(frozen=True, kw_only=True)
class DeviceKind:
    """Devices with equal rates."""

    name: str  # e.g. "CPU", "GPU NVIDIA H200"
    type: str  # "CPU", "GPU", ...
    flops_per_s: float
    memory_bytes_per_s: float
    launch_overhead_ns: int


@dataclass(frozen=True, kw_only=True)
class Machine:
    """D devices of K kinds."""

    kinds: tuple[DeviceKind, ...]  # [K]
    device_names: tuple[str, ...]  # [D]
    device_kind: tuple[int, ...]  # [D] index into kinds
    memory_bytes: tuple[int, ...]  # [D]
    assumptions: tuple[str, ...]

    def problem_arrays(self) -> dict[str, Any]:
        """The machine's share of the keywords of `Problem`."""
        pairs = [
            (src, dst)
            for src in range(len(self.device_names))
            for dst in range(len(self.device_names))
            if src != dst
        ]
        links = [self._link(src, dst) for src, dst in pairs]
        return {
            "device_kinds": [kind.name for kind in self.kinds],
            "device_names": list(self.device_names),
            "device_kind": np.array(self.device_kind, np.int32),
            "device_memory_bytes": np.array(self.memory_bytes, np.int64),
            "device_slots": np.ones(len(self.device_names), np.int32),
            "link_src": np.array([src for src, _ in pairs], np.int32),
            "link_dst": np.array([dst for _, dst in pairs], np.int32),
            "link_channel": [f"{src}->{dst}" for src, dst in pairs],
            "link_latency_ns": np.array([latency for latency, _ in links], np.int64),
            "link_bytes_per_s": np.array([rate for _, rate in links], np.int64),
        }

    def _link(self, src: int, dst: int) -> tuple[int, int]:
        if _task(self.device_names[src]) != _task(self.device_names[dst]):
            return _ETHERNET
        types = {self.kinds[self.device_kind[device]].type for device in (src, dst)}
        return _WITHIN_HOST_MEMORY if types == {"CPU"} else _PCIE


def detect(devices: Sequence[SessionDevice]) -> Machine:
    """Describes the machine of a session's devices.

    The CPU devices of one task share its cores and memory in equal parts. Other tasks are taken to
    run on hosts like this one.
    """
    kinds: list[DeviceKind] = []
    device_kind: list[int] = []
    memory: list[int] = []
    assumptions: set[str] = set()
    for device in devices:
        if device.type == "CPU":
            sharing = sum(
                other.type == "CPU" and _task(other.name) == _task(device.name) for other in devices
            )
            kind = _cpu_kind(sharing)
            memory.append(_host_memory_bytes() // sharing)  # TensorFlow reports 256 MB for any CPU
        else:
            kind = _accelerator_kind(device, assumptions)
            memory.append(max(device.memory_bytes, 0))
        if kind not in kinds:
            kinds.append(kind)
        device_kind.append(kinds.index(kind))
    return Machine(
        kinds=tuple(kinds),
        device_names=tuple(device.name for device in devices),
        device_kind=tuple(device_kind),
        memory_bytes=tuple(memory),
        assumptions=tuple(sorted(assumptions)),
    )


def _task(device_name: str) -> str:
    match = _TASK.match(device_name)
    return match[1] if match else ""


def _cpu_kind(sharing: int) -> DeviceKind:
    share = _usable_cores() / sharing
    hertz, flops_per_cycle = _processor()
    return DeviceKind(
        name="CPU" if sharing == 1 else f"CPU (1/{sharing} of the cores)",
        type="CPU",
        flops_per_s=share * hertz * flops_per_cycle * _CPU_EFFICIENCY,
        memory_bytes_per_s=share * _CPU_MEMORY_BYTES_PER_S,
        launch_overhead_ns=_CPU_LAUNCH_OVERHEAD_NS,
    )


def _accelerator_kind(device: SessionDevice, assumptions: set[str]) -> DeviceKind:
    model = re.search(r"name: ([^,]+)", device.description)
    name = model[1].strip() if model else device.type
    known = [rates for key, rates in _GPU_RATES.items() if re.search(rf"\b{key}", name)]
    flops_per_s, memory_bytes_per_s = known[0] if known else _UNKNOWN_GPU_RATES
    if not known:
        assumptions.add(
            f"rates of {name!r} are not known: {flops_per_s:.3g} FLOP/s, "
            f"{memory_bytes_per_s:.3g} bytes/s"
        )
    return DeviceKind(
        name=f"{device.type} {name}" if model else name,
        type=device.type,
        flops_per_s=flops_per_s,
        memory_bytes_per_s=memory_bytes_per_s,
        launch_overhead_ns=_GPU_LAUNCH_OVERHEAD_NS,
    )


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _processor() -> tuple[float, int]:
    """Clock in hertz and single-precision FLOPs per cycle and core (vector width, fused add)."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    clock = re.search(r"^cpu MHz\s*:\s*([\d.]+)", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    features = set(flags[1].split()) if flags else set()
    if "avx512f" in features:
        flops_per_cycle = 64
    elif "avx2" in features and "fma" in features:
        flops_per_cycle = 32
    elif "avx" in features:
        flops_per_cycle = 16
    else:
        flops_per_cycle = 8
    return (float(clock[1]) * 1e6 if clock else _DEFAULT_CPU_HZ), flops_per_cycle
