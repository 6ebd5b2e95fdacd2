"""What the operating system tells about this host: processor, memory, network.

Linux only: /proc and /sys, and the control group's limits, which a container sees as its own.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

THREADS = "HPLACER_THREADS"

_DEFAULT_HZ = 2.5e9
# float32 operations per cycle and core: lanes, times 2 for fused multiply-add, times 2 units.
_FLOPS_PER_CYCLE = (
    ({"avx512f"}, 64),
    ({"avx2", "fma"}, 32),
    ({"avx"}, 16),
    ({"asimd"}, 16),  # 64-bit Arm
    (set[str](), 8),
)
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_AMD_WITH_FULL_AVX512 = 26  # family: older ones take two cycles for 512 bits


@dataclass(frozen=True, kw_only=True)
class Processor:
    """The processor of this host; one core of it."""

    model: str  # "" if unknown
    hertz: float
    hertz_known: bool
    flops_per_cycle: int  # float32


def name() -> str:
    """Of this host, by which it is known again.

    A container has a new name at each start. There it is the boot of the host that all its
    containers have in common.
    """
    boot = _read(Path("/proc/sys/kernel/random/boot_id")).strip()
    if boot and _is_container():
        return f"containers of boot {boot[:8]}"
    return socket.gethostname()


def _is_container() -> bool:
    """By the marks that Docker, Podman, systemd and Kubernetes leave."""
    marked = any(map(os.environ.get, ("container", "KUBERNETES_SERVICE_HOST")))
    return marked or any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv")))


def usable_cores() -> float:
    """Cores that this process may use; a fraction if its control group has a CPU quota."""
    cores, quota = float(len(os.sched_getaffinity(0))), quota_cores()
    return cores if quota is None else min(cores, quota)


def all_cores() -> float:
    """Cores of this host that processes here may use, though this one may be bound to a part."""
    cores, quota = float(os.cpu_count() or 1), quota_cores()
    files = [directory / "cpuset.cpus.effective" for directory in _control_groups()]
    files += [directory / "cpuset.effective_cpus" for directory in _control_groups("cpuset")]
    found = [_number_in(_read(file)) for file in files]
    return min(filter(None, (cores, quota, *found)))


def _number_in(ranges: str) -> int:
    """Of processors, as "0-3,8" has five."""
    parts = [part.split("-") for part in ranges.strip().split(",") if part]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in parts)


def quota_cores() -> float | None:
    """Cores that the control groups of this process may use, by their CPU quotas; None: any."""
    found = [directory / "cpu.max" for directory in _control_groups()]
    quotas = [_read(file).split() for file in found]
    for directory in _control_groups("cpu"):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quotas.append([_read(directory / name).strip() for name in names])
    return min(
        (
            int(quota[0]) / int(quota[1])
            for quota in quotas  # "max" or -1: none
            if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit()
        ),
        default=None,
    )


def processor_seconds_of_group() -> float | None:
    """That the control group of this process has run so far; None: it does not tell."""
    for directory in _control_groups():
        used = re.search(r"^usage_usec (\d+)$", _read(directory / "cpu.stat"), re.MULTILINE)
        if used:
            return int(used[1]) / 1e6
    for directory in _control_groups("cpuacct"):
        if (text := _read(directory / "cpuacct.usage").strip()).isdigit():
            return int(text) / 1e9
    return None


def whole_cores() -> int:
    """Usable cores as a number of threads, at least 1: more would wait for each other.

    HPLACER_THREADS, which a process that searches beside a training has, sets a lower limit.
    """
    most = _number(os.environ.get(THREADS, ""))
    return max(min(int(usable_cores()), most or sys.maxsize), 1)


def memory_bytes() -> int:
    """Physical memory, or less if a control group allows less."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = [directory / "memory.max" for directory in _control_groups()]
    files += [directory / "memory.limit_in_bytes" for directory in _control_groups("memory")]
    for limit in (_read(file).strip() for file in files):
        if limit.isdigit():  # without a limit, "max" or more than there is
            size = min(size, int(limit))
    return size


def free_memory_bytes() -> int:
    """That processes here may still take: of the host, or less if a control group allows less."""
    free = 1024 * _number(_entry(_read(Path("/proc/meminfo")), "MemAvailable").removesuffix(" kB"))
    found = [(directory, "memory.max", "memory.current") for directory in _control_groups()]
    for directory in _control_groups("memory"):
        found.append((directory, "memory.limit_in_bytes", "memory.usage_in_bytes"))
    for directory, limit, used in found:
        if most := _number(_read(directory / limit).strip()):
            stat = _read(directory / "memory.stat")
            cached = re.search(r"^inactive_file (\d+)$", stat, re.MULTILINE)
            taken = _number(_read(directory / used).strip()) - (int(cached[1]) if cached else 0)
            free = min(free, max(most - taken, 0))
    return free


@functools.cache
def processor() -> Processor:
    """From /proc/cpuinfo, and the base clock from /sys where the kernel tells it."""
    text = _read(Path("/proc/cpuinfo"))
    model = _entry(text, "model name")
    base_khz = _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency")).strip()
    nominal = re.search(r"@ ([\d.]+)GHz", model)
    current_mhz = _entry(text, "cpu MHz")
    if base_khz.isdigit():
        hertz = float(base_khz) * 1e3
    elif nominal:
        hertz = float(nominal[1]) * 1e9
    else:
        hertz = float(current_mhz) * 1e6 if current_mhz else 0.0
    features = set((_entry(text, "flags") or _entry(text, "Features")).split())
    flops = next(flops for needed, flops in _FLOPS_PER_CYCLE if needed <= features)
    family = _entry(text, "cpu family")
    is_amd = _entry(text, "vendor_id") == "AuthenticAMD" and family.isdigit()
    if is_amd and int(family) < _AMD_WITH_FULL_AVX512:
        flops = min(flops, 32)
    return Processor(
        model=model,
        hertz=hertz or _DEFAULT_HZ,
        hertz_known=hertz > 0,
        flops_per_cycle=flops,
    )


@functools.cache
def models() -> tuple[str, ...]:
    """Of the processor and of the GPUs that NVIDIA's driver shows; () if nothing is known."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    found = [processor().model, *(_entry(_read(file), "Model") for file in files)]
    return tuple(filter(None, found))


def numa_nodes() -> int:
    """How many memory nodes the kernel sees, at least 1."""
    return max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))))


def tensorflow_threads(inter_op: int = 0, intra_op: int = 0) -> tuple[int, int]:
    """How many threads TensorFlow has between ops and within one; 0: as many as cores.

    Its environment variables count where a program or session has set nothing, which is 0.
    """
    return (
        inter_op or _number(os.environ.get("TF_NUM_INTEROP_THREADS", "")),
        intra_op or _number(os.environ.get("TF_NUM_INTRAOP_THREADS", "")),
    )


def worker_threads(cores: int) -> int:
    """The inter-op threads of a worker: with a single one, a chain runs before its tensors go."""
    return max(4, cores)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def network_bytes_per_s() -> int | None:
    """Of the fastest adapter that is up and tells its speed; None: none does.

    Bridges and the ends of containers say 10 Gbit/s, whatever is behind them: they are no adapters.
    """
    speeds = []
    for adapter in Path("/sys/class/net").glob("*"):
        is_real = (adapter / "device").exists()
        if is_real and _read(adapter / "operstate").strip() == "up":
            megabits = _read(adapter / "speed").strip()  # -1 or unreadable: unknown
            if megabits.isdigit() and int(megabits) > 0:
                speeds.append(int(megabits) * 125_000)
    return max(speeds, default=None)


def _control_groups(controller: str = "") -> Iterator[Path]:
    """The control group of this process and those around it.

    A controller is one of version 1, which has groups for each; "": the groups of version 2. In a
    container the root may be its own group, while the kernel tells the path that the host sees.
    """
    root = _CONTROL_GROUPS / controller
    line = rf"^\d+:(?:[^:]+,)?{controller}(?:,[^:]+)?:/(.*)$" if controller else r"^0::/(.*)$"
    match = re.search(line, _read(_OWN_GROUPS), re.MULTILINE)
    group = root / match[1] if match else root
    for directory in (group, *group.parents):
        yield directory
        if directory == root:
            return


def _entry(text: str, key: str) -> str:
    match = re.search(rf"^{re.escape(key)}\s*: *(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
