"""The progress of searches on stderr: one moving line on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from hplacer_optimizer.planners import Budget, Progress
from hplacer_optimizer.planners.progress import describe_progress, seconds_left

_INTERVAL_S = 10.0  # between two lines where there is no terminal


class SearchProgress:
    """`with SearchProgress() as shown: shown.begin(title, budget); shown.update(progress)`."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._status: Any = None
        self._title = ""
        self._budget: Budget | None = None
        self._started = self._said = time.monotonic()

    def __enter__(self) -> SearchProgress:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, title: str, budget: Budget) -> None:
        """A job begins, with the loading of its graph."""
        self._title, self._budget = title, budget
        self._said = time.monotonic()
        self._show(title)

    def begin_search(self) -> None:
        """The time of its budget begins."""
        self._started = time.monotonic()

    def watch(self, title: str, budget: Budget) -> None:
        """A single search begins; nothing is shown of it where it is quick and nobody watches."""
        self._title, self._budget = title, budget
        self._said = self._started = time.monotonic()

    def update(self, progress: Progress) -> None:
        """It has come so far."""
        now = time.monotonic()
        if self._status is None and now - self._said < _INTERVAL_S:
            return
        self._said = now
        text = f"{self._title}: {describe_progress(progress)}"
        if self._budget is not None:
            left_s = seconds_left(self._budget, progress, now - self._started)
            text += "" if left_s is None else f", {format_seconds(left_s)} left"
        self._show(text)

    def update_all(self, done: int, total: int, running: Mapping[str, Progress]) -> None:
        """So many jobs have ended, and these run."""
        now = time.monotonic()
        if self._status is None and now - self._said < _INTERVAL_S:
            return
        self._said = now
        parts = [f"{title}: {describe_progress(progress)}" for title, progress in running.items()]
        self._show("; ".join([f"{done} of {total} jobs done", *parts]))

    def show(self, text: str) -> None:
        """What goes on, where there is a terminal."""
        if self._status is not None:
            self._show(text)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _show(self, text: str) -> None:
        if self._status is None:
            print(text, file=sys.stderr, flush=True)
        else:
            from rich.markup import escape

            self._status.update(escape(text))


def format_seconds(seconds: float) -> str:
    """As "8:05" or "1:00:00"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
