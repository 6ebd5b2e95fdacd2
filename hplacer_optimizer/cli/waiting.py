"""A line on a terminal for as long as one has to wait."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Shows what goes on, on stderr; nothing where stderr is no terminal, or one that has gone."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    status = Console(stderr=True).status(escape(text))
    with suppress(OSError):
        status.start()
    try:
        yield
    finally:
        with suppress(OSError):
            status.stop()
