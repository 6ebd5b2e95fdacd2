"""Emulated devices for a command that starts processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hplacer_optimizer import emulation
from hplacer_optimizer.emulation.telling import announcement
from hplacer_optimizer.machines import load_machine


@contextmanager
def emulating(name: str | None, *, compute: bool = True) -> Iterator[None]:
    """The processes that are started meanwhile have the devices of this machine; None: their own.

    This process seems to have them, too: what it keeps of them is marked.
    """
    if name is None:
        yield
        return
    machine = load_machine(name)
    with emulation.environment(machine, compute=compute) as variables:
        print(announcement(machine), file=sys.stderr, flush=True)
        before = {key: os.environ.get(key) for key in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for key, value in before.items():
                os.environ.pop(key, None)
                if value is not None:
                    os.environ[key] = value
