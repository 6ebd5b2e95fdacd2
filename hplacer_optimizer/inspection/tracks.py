"""A simulated step as tracks: which slot runs which op, and what a device holds from when on.

Both ways of showing a step use them, `chrome_trace.py` and `report`.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

__all__ = ["assign_slots", "memory_steps"]

_Int32 = NDArray[np.int32]
_Int64 = NDArray[np.int64]


def assign_slots(
    placement: _Int32, start_ns: _Int64, finish_ns: _Int64, device_slots: _Int32
) -> _Int64:
    """For each op the lowest slot of its device that is free when it starts, [n].

    An op that takes no time needs none: where all are busy, it lies within what runs on slot 0.
    """
    slot = np.zeros(len(placement), np.int64)
    running: list[list[tuple[int, int]]] = [[] for _ in device_slots]
    free: list[list[int]] = [[] for _ in device_slots]
    # At one instant those that last no time come first: they leave their slot at once.
    order = np.lexsort((finish_ns, start_ns))
    columns = (order, placement[order], start_ns[order], finish_ns[order])
    for op, device, now, finish in zip(*(column.tolist() for column in columns), strict=True):
        while running[device] and running[device][0][0] <= now:
            heapq.heappush(free[device], heapq.heappop(running[device])[1])
        if len(running[device]) == device_slots[device]:
            continue
        slot[op] = heapq.heappop(free[device]) if free[device] else len(running[device])
        heapq.heappush(running[device], (finish, int(slot[op])))
    return slot


def memory_steps(times_ns: _Int64, held_bytes: _Int64) -> tuple[_Int64, _Int64]:
    """What can be seen of one device's memory timeline, as times and bytes held from then on.

    Of each instant the largest value, if it is above the last one, and the last one.
    """
    if len(times_ns) == 0:
        return times_ns, held_bytes
    begins = np.flatnonzero(np.diff(times_ns, prepend=times_ns[0] - 1))
    largest = np.maximum.reduceat(held_bytes, begins)
    last = held_bytes[np.append(begins[1:], len(held_bytes)) - 1]
    values = np.stack([largest, last], axis=1).ravel()
    seen = np.stack([largest > last, np.ones(len(begins), bool)], axis=1).ravel()
    return np.repeat(times_ns[begins], 2)[seen], values[seen]
