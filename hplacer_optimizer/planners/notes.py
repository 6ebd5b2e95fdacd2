"""What a planner has to say about its answer: a limit that was hit, a quality that was not reached.

    with collect_notes() as notes:
        placement = planner(problem, ...)      # calls add_note("sct: ...")

Notes travel beside the placement, so that a planner's answer stays one array. A note that nobody
collects is logged as a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hplacer_optimizer.log import LOGGER

_collected: ContextVar[list[str] | None] = ContextVar("planner notes", default=None)


def add_note(note: str) -> None:
    """Says one sentence, which starts with the planner's name, to whoever called the planner."""
    notes = _collected.get()
    if notes is None:
        LOGGER.warning("%s", note)
    else:
        notes.append(note)


@contextmanager
def collect_notes() -> Iterator[list[str]]:
    """Collects the notes of the planners that this thread runs within, in order."""
    notes: list[str] = []
    token = _collected.set(notes)
    try:
        yield notes
    finally:
        _collected.reset(token)
