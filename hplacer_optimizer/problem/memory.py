"""How much memory a step needs on a device, as a range: what is simulated, and what frameworks add.

    least   the simulated peak: variables, optimizer slots, gradients and activations
    most    that and the pieces that an allocator cannot use, workspaces, the process on the device,
            and buffers of replicas for what they exchange

The advice tells the range, and the guard asks whether a plan is tight. docs/how-to/advise.md has
the source of each figure.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ADDED", "Added", "MemoryRange", "memory_range"]

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Added:
    """What a framework adds on a device of a type."""

    fragmentation: float
    """Share of the peak that lies in pieces too small to be used."""
    workspace_bytes: int
    """Scratch memory of convolutions and products, which their libraries take beside tensors."""
    process_bytes: int
    """Held on the device before any tensor is."""


ADDED = {
    "GPU": Added(fragmentation=0.15, workspace_bytes=512 * MIB, process_bytes=500 * MIB),
    "CPU": Added(fragmentation=0.10, workspace_bytes=64 * MIB, process_bytes=400 * MIB),
}
"""By the device's type; others are taken to be like a GPU.

TensorFlow's allocator took 0.80 to 1.87 of the simulated peak on emulated GPUs, whose kernels need
no workspace: what is added here covers 125 of 126 peaks (docs/results/emulation.md).
"""


@dataclass(frozen=True, kw_only=True)
class MemoryRange:
    """Of one device.

    Attributes:
        device: its name.
        least_bytes: needed as simulated.
        most_bytes: with all that frameworks typically add.
        memory_bytes: that it has.
    """

    device: str
    least_bytes: int
    most_bytes: int
    memory_bytes: int

    @property
    def free_bytes(self) -> int:
        """That are left at most; negative: that are missing."""
        return self.memory_bytes - self.least_bytes

    @property
    def fits(self) -> bool:
        """As far as the simulator can tell."""
        return self.least_bytes <= self.memory_bytes

    @property
    def is_tight(self) -> bool:
        """It fits, but perhaps not with what frameworks add."""
        return self.fits and self.most_bytes > self.memory_bytes


def memory_range(
    device: str,
    device_type: str,
    *,
    peak_bytes: int,
    memory_bytes: int,
    is_limit: bool = False,
    buffer_bytes: int = 0,
) -> MemoryRange:
    """Of one device.

    Args:
        device: its name.
        device_type: "GPU", "CPU" or another.
        peak_bytes: as simulated.
        memory_bytes: that it has.
        is_limit: whether that is what the framework's allocator may take; the process then has its
            own beside it.
        buffer_bytes: of replicas, for gradients on their way.
    """
    added = ADDED.get(device_type, ADDED["GPU"])
    most = round((1 + added.fragmentation) * (peak_bytes + buffer_bytes)) + added.workspace_bytes
    return MemoryRange(
        device=device,
        least_bytes=peak_bytes,
        most_bytes=most + (0 if is_limit else added.process_bytes),
        memory_bytes=memory_bytes,
    )
