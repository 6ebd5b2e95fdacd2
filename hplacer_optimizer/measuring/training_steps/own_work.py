"""What a script itself does between its steps, in real seconds, where steps take virtual ones.

Virtual time stands still while a script computes in Python, reads its input or writes a file. Real
time does not. It also passes while a script waits for emulated devices, which compute on this
host. So a gap between two steps counts in full if virtual time stood still in it. Else the script
has waited for a device, and of that gap the thread's processor time counts: the least that its own
work took.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable


class _Ended(threading.local):
    """Of a thread: the virtual, the real and the processor time when its last step had ended."""

    times: tuple[float, float, float] | None = None


class OwnWork:
    """Of a process; its two clocks tell the time of a step, and note what passes between."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ended = _Ended()
        self._gaps_s: list[float] = []

    def begins(self) -> float:
        """The virtual time when a step begins."""
        now = self._clock()
        if self._ended.times is not None:
            virtual, real, processor = self._ended.times
            stood_still = now == virtual
            gap_s = time.perf_counter() - real if stood_still else time.thread_time() - processor
            self._gaps_s.append(gap_s)
        return now

    def ended(self) -> float:
        """The virtual time when a step has ended."""
        now = self._clock()
        self._ended.times = now, time.perf_counter(), time.thread_time()
        return now

    def per_step_s(self, steps: int) -> float | None:
        """Of one of so many steps, which may be several calls; None: there was no gap."""
        if not self._gaps_s or not steps:
            return None
        return statistics.median(self._gaps_s) * max(1, round(len(self._gaps_s) / steps))
