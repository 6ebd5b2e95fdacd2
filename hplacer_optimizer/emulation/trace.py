"""What ran on emulated devices, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hplacer_optimizer.capture import native

HOST = -1
_KINDS = ("kernel", "copy", "host op")
_NEVER = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A kernel, a copy or an op of the host; times are virtual, in ns.

    `source` and `destination` are numbers of devices, -1 the host; of kernels both are their own.
    """

    kind: str  # "kernel", "copy" or "host op"
    source: int
    destination: int
    enqueued_ns: int
    start_ns: int
    end_ns: int
    bytes: int  # of a copy
    name: str  # of the op; "" for copies
    type: str


@contextmanager
def traced() -> Iterator[list[Ran]]:
    """Records what runs in the block; the list is filled at its end, when devices are idle."""
    emulator = native.load_emulator()
    ran: list[Ran] = []
    emulator.synchronise()
    emulator.trace(True)
    try:
        yield ran
        emulator.synchronise()
    finally:
        rows = emulator.take_records()
        emulator.trace(False)
    for kind, source, destination, enqueued, start, end, size, name, op_type in rows:
        if end == _NEVER:
            continue
        ran.append(
            Ran(
                kind=_KINDS[kind],
                source=source,
                destination=destination,
                enqueued_ns=enqueued,
                start_ns=start,
                end_ns=end,
                bytes=size,
                name=name,
                type=op_type,
            )
        )
