"""The script's process: `python -m hplacer_optimizer.scripts script.py ARGS`.

Runs the script as `hplacer_optimizer.run` does, under the observer that the orders name.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import wrapt

from hplacer_optimizer.measuring.training_steps.step_observer import StepObserver
from hplacer_optimizer.run import main
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.scripts.file_guard import FileGuard, watch_input
from hplacer_optimizer.scripts.script_graph import GraphCatcher
from hplacer_optimizer.scripts.step_catcher import CompiledStepObserver
from hplacer_optimizer.scripts.step_timer import StepTimer
from hplacer_optimizer.support.child_process import end_with_parent


def _lead_group() -> None:
    """A script may call for a group of its own. It has one: it leads a session.

    Linux refuses such a call to the leader of a session.
    """
    for name in ("setpgrp", "setpgid"):
        setattr(os, name, functools.partial(_unless_leader, getattr(os, name)))


def _unless_leader(change: Callable[..., None], *arguments: int) -> None:
    if os.getsid(0) != os.getpid() or not {0, os.getpid()}.issuperset(arguments):
        change(*arguments)


if __name__ == "__main__":
    end_with_parent()
    _lead_group()
    where, orders = Path(os.environ[exchange.VARIABLE]), exchange.orders()
    observer: StepObserver | None = None
    if orders["observed"] == exchange.TIMES:
        observer = StepTimer(where, orders["steps"])
    elif orders["observed"] == exchange.GRAPH:
        observer = GraphCatcher(where)
    elif orders["observed"] == exchange.STEP:
        observer = CompiledStepObserver(where)
    if observer is not None:
        install = observer.install
        wrapt.register_post_import_hook(lambda _: install(), "tensorflow")
    if orders["free"] is not None:
        guard = FileGuard(where, orders["free"])
        guard.install()
        wrapt.register_post_import_hook(guard.on_tensorflow, "tensorflow")
        wrapt.register_post_import_hook(guard.on_h5py, "h5py")
    watch_input(where)
    main(sys.argv[1:])
