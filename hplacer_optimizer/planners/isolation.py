"""Runs one's own planner in a process of its own, which can be ended.

    isolated(name)  --- problem, limits, "stop" --->  main: the planner
                    <-- progress, result, error ----

A training process cannot end a thread that does not look at `Budget.stop`, and what a planner does
to its process (memory, exits, forks, TensorFlow's state) it would do to the training.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.machines.host import free_memory_bytes
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.result import Planner, PlannerResult, Watch
from hplacer_optimizer.support.child_process import (
    ConnectedProcess,
    end_with_parent,
    limit_memory,
    planner_variables,
)

_POLL_S = 0.05
_GRACE_S = 0.3  # for a planner that looks at `Budget.stop`
_END_S = 5.0  # for a process that has closed its connection to end


def isolated(name: str) -> Planner:
    """The planner "package.module:function" as a `Planner` that runs in a process of its own.

    The process finds the modules that this one finds, no GPU, half of the free memory, and the
    optimizer off. A planner that does not end within 0.3 s of `Budget.stop` is killed, with
    every process that it has started.

    The planner's call raises PlannerUnavailableError, with the reason, if there is no result.
    """

    def plan(
        problem: Problem,
        *,
        budget: Budget | None = None,
        seed: int = 0,
        on_progress: ProgressCallback | None = None,
    ) -> PlannerResult:
        process = ConnectedProcess(__name__, planner_variables(), foreign=True)
        try:
            with contextlib.suppress(OSError):  # it has ended: `_follow` says how
                process.connection.send(
                    (name, problem, budget and replace(budget, stop=None), seed)
                )
            return _follow(process, budget or Budget(), on_progress)
        finally:
            process.close()

    return plan


def _follow(
    process: ConnectedProcess, budget: Budget, on_progress: ProgressCallback | None
) -> PlannerResult:
    """Passes its progress on until it has a result."""
    deadline = None
    while True:
        if deadline is None and budget.stopped:
            deadline = time.monotonic() + _GRACE_S
            with contextlib.suppress(OSError):
                process.connection.send("stop")
        if deadline is not None and time.monotonic() > deadline:
            raise PlannerUnavailableError("the planner did not stop when it was asked to")
        try:
            if not process.connection.poll(_POLL_S):
                continue
            kind, content = process.connection.recv()
        except (EOFError, OSError):
            process.wait(_END_S)
            raise PlannerUnavailableError(
                f"the planner's process ended without a result, with {_ending(process.returncode)}"
            ) from None
        if kind == "error":
            raise PlannerUnavailableError(content)
        if kind == "result":
            result: PlannerResult = content
            return result
        if on_progress is not None:
            on_progress(content)


def _ending(returncode: int | None) -> str:
    if returncode is None or returncode >= 0:
        return f"exit code {returncode}"
    return signal.Signals(-returncode).name


# ---- in the process ----


def main(fd: int) -> None:
    """Answers one request."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C comes from the parent
    parent = Connection(fd)
    name, problem, budget, seed = parent.recv()
    stop = threading.Event()
    threading.Thread(target=_wait_for_stop, args=(parent, stop), daemon=True).start()
    sending = threading.Lock()

    def send(kind: str, content: Any) -> None:
        with sending:
            parent.send((kind, content))

    limit_memory(free_memory_bytes())
    try:
        watch = Watch(functools.partial(send, "progress"))
        result = get_planner(name).plan(
            problem,
            budget=replace(budget or Budget(), stop=stop),
            seed=seed,
            on_progress=watch,
        )
        send("result", result)
    except BaseException as error:  # a planner is foreign code: even SystemExit is an answer
        send("error", f"{type(error).__name__}: {error}")


def _wait_for_stop(parent: Connection, stop: threading.Event) -> None:
    with contextlib.suppress(EOFError, OSError):
        parent.recv()
    stop.set()


if __name__ == "__main__":
    main(int(sys.argv[1]))
