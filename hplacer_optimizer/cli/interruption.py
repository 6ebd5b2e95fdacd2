"""Ctrl-C, SIGTERM and a lost terminal for commands that keep what they have found so far."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Set by the first such signal; a second one ends the process as it always does."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """As of a process that the signal ended: 130 for Ctrl-C, 143 for SIGTERM and so on."""
        return 128 + self.signal if self.signal else 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within the block, signals set `stop`, but for a SIGHUP that `nohup` ignores."""
        before: dict[signal.Signals, Any] = {}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def set_stop(number: int, frame: FrameType | None) -> None:
            self.signal = number
            self.stop.set()
            restore()

        for number in _SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            before[number] = signal.signal(number, set_stop)
        try:
            yield
        finally:
            restore()
