"""Cores that nobody uses at the moment, as the kernel counts it. Linux only."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from hplacer_optimizer.machines import host

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE, _WAITS_FOR_DISK = 3, 4  # columns of a core's line in /proc/stat


class SpareCores:
    """How many cores of this host are idle, on average since the last look.

    Of those that its control group has, whatever this process was bound to. A control group with a
    quota has no more to spare than what is left of that. 0 where nothing can be read.
    """

    def __init__(self) -> None:
        own = os.sched_getaffinity(0)
        widen_affinity()
        self._cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, own)
        self._seen = self._read()

    def look(self) -> float:
        """Cores; looks at least half a second apart tell something."""
        before, self._seen = self._seen, self._read()
        lasted_s = self._seen[0] - before[0]
        if lasted_s <= 0:
            return 0.0
        spare = (self._seen[1] - before[1]) / lasted_s
        quota = host.quota_cores()
        if quota is not None:
            used_before, used_now = before[2], self._seen[2]
            if used_before is None or used_now is None:
                return 0.0
            spare = min(spare, quota - (used_now - used_before) / lasted_s)
        return max(spare, 0.0)

    def _read(self) -> tuple[float, float, float | None]:
        """The time, and seconds that all cores were idle and the control group ran, until now."""
        return time.monotonic(), _idle_s(self._cores), host.processor_seconds_of_group()


def _idle_s(cores: set[int]) -> float:
    try:
        text = Path("/proc/stat").read_text()
    except OSError:
        return 0.0
    found = 0
    for number, counts in re.findall(r"^cpu(\d+) (.*)$", text, re.MULTILINE):
        if int(number) in cores:
            columns = counts.split()
            found += int(columns[_IDLE]) + int(columns[_WAITS_FOR_DISK])
    return found / _TICKS_PER_S


def widen_affinity() -> None:
    """Lets this thread, and what it starts, run on all cores that its control group has."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
