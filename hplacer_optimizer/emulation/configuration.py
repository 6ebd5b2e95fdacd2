"""A machine as the native part reads it: JSON, see `Machine` in cc/emulator/machine.cc."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hplacer_optimizer.errors import MachineError
from hplacer_optimizer.machines import DeviceKind, Machine, full_device_name

MOST_DEVICES = 16
_HOST = -1
_MODELS = {  # as TensorFlow tells them, with the compute capability
    "k40": ("Tesla K40m", "3.5"),
    "k40-2018": ("Tesla K40m", "3.5"),
    "p100": ("Tesla P100-PCIE-16GB", "6.0"),
    "v100": ("Tesla V100-SXM2-16GB", "7.0"),
    "a100": ("NVIDIA A100-SXM4-40GB", "8.0"),
    "a100-80gb": ("NVIDIA A100-SXM4-80GB", "8.0"),
    "h100": ("NVIDIA H100 80GB HBM3", "9.0"),
    "h200": ("NVIDIA H200", "9.0"),
    "a10": ("NVIDIA A10", "8.6"),
    "l4": ("NVIDIA L4", "8.9"),
    "t4": ("Tesla T4", "7.5"),
}
_UNKNOWN_CAPABILITY = "8.0"


def text(machine: Machine, compute: bool, limit_s: float, kernels: Path) -> str:
    """The file's text; MachineError if the machine is not one host with GPUs."""
    numbers = _device_numbers(machine)
    gpus = sorted((number, name) for name, number in numbers.items() if number != _HOST)
    (host,) = (name for name, number in numbers.items() if number == _HOST)
    kinds = dict(zip(machine.device_names, machine.device_kind, strict=True))
    memory = dict(zip(machine.device_names, machine.memory_bytes, strict=True))
    host_kind = machine.kinds[kinds[host]]
    document = {
        "compute": compute,
        "limit_s": limit_s,
        "kernels": str(kernels),
        "host": {"kind": _rates(host_kind), "slots": host_kind.slots},
        "devices": [
            _device(machine.kinds[kinds[name]], memory[name], number) for number, name in gpus
        ],
        "links": [
            {
                "src": numbers[link.src],
                "dst": numbers[link.dst],
                "channel": link.channel,
                "latency_ns": link.latency_ns,
                "bytes_per_s": link.bytes_per_s,
            }
            for link in machine.links
        ],
    }
    return json.dumps(document, indent=1)


def _device_numbers(machine: Machine) -> dict[str, int]:
    numbers = {}
    for device in machine.devices:
        number = int(device.name.rpartition(":")[2])
        if device.type not in ("CPU", "GPU") or (device.type == "CPU" and number != 0):
            raise MachineError(
                f"machine {machine.name!r}: {device.name} cannot be emulated: a machine with one "
                "CPU device and GPUs can"
            )
        if device.task and full_device_name(device.name) != full_device_name(
            device.name.removeprefix(device.task)
        ):
            raise MachineError(
                f"machine {machine.name!r}: {device.name} is of a cluster, and one host can be "
                "emulated"
            )
        numbers[device.name] = _HOST if device.type == "CPU" else number
    gpus = sorted(number for number in numbers.values() if number != _HOST)
    if not gpus or len(gpus) == len(numbers):
        raise MachineError(
            f"machine {machine.name!r}: cannot be emulated: it needs a CPU device and a GPU"
        )
    if gpus != [*range(len(gpus))] or len(gpus) > MOST_DEVICES:
        raise MachineError(
            f"machine {machine.name!r}: cannot be emulated: name its GPUs /device:GPU:0 and so on, "
            f"{MOST_DEVICES} at most"
        )
    return numbers


def _device(kind: DeviceKind, memory_bytes: int, number: int) -> dict[str, Any]:
    model, capability = _MODELS.get(kind.name, (kind.name, _UNKNOWN_CAPABILITY))
    return {
        "kind": _rates(kind),
        "model": model,
        "compute_capability": capability,
        "pci_bus_id": f"0000:{number + 1:02x}:00.0",
        "memory_bytes": memory_bytes,
        "launch_ns": kind.launch_overhead_ns if kind.launches_ahead else 0,
    }


def _rates(kind: DeviceKind) -> dict[str, Any]:
    """Where the host launches ahead, a launch is no part of a kernel's time."""
    return {
        "name": kind.name,
        "type": kind.type,
        "flops_per_s": dict(kind.flops_per_s),
        "memory_bytes_per_s": kind.memory_bytes_per_s,
        "launch_overhead_ns": 0 if kind.launches_ahead else kind.launch_overhead_ns,
        "executor_overhead_ns": 0 if kind.launches_ahead else kind.executor_overhead_ns,
    }
