"""Threads near the end of a process.

From Python 3.12 on none begins once the main thread is over, neither in functions of `atexit` nor
in threads that go on then.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any


def start_or_run(act: Callable[..., None], *arguments: Any, name: str) -> threading.Thread | None:
    """Calls `act` on a daemon thread, which it returns, or at once where no thread begins."""
    thread = threading.Thread(target=act, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        act(*arguments)
        return None
    return thread


class AtExit:
    """Calls `act` when the process ends, on a thread that is waited for at most `limit_s` seconds.

    The thread begins now. A forked child calls `act` at its own end.
    """

    def __init__(self, act: Callable[[], None], *, limit_s: float, name: str) -> None:
        self._act, self._limit_s, self._name = act, limit_s, name
        self._begin()
        os.register_at_fork(after_in_child=self._begin)
        atexit.register(self._end)

    def _begin(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(
            target=self._wait, args=(self._is_over,), name=self._name, daemon=True
        )
        self._thread.start()

    def _wait(self, is_over: threading.Event) -> None:
        is_over.wait()
        self._act()

    def _end(self) -> None:
        self._is_over.set()
        self._thread.join(self._limit_s)
