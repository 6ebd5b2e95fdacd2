"""Times the training steps of a script from inside of its process.

Once enough steps are known, they are written down and the process is ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from multiprocessing import util
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture import native
from hplacer_optimizer.measuring.training_steps.recording import WARMUP, Steps
from hplacer_optimizer.measuring.training_steps.step_observer import (
    Call,
    StepObserver,
    new_recorder,
)
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.support.child_process import kill_group
from hplacer_optimizer.support.switched_off import is_switched_off
from hplacer_optimizer.support.threads import start_or_run

SEEN = "seen.*"  # how many there were a while ago; a file for each process that trained
STEPS = "steps.*.json"  # when they began and ended; a file for each process that trained
_CLOSING_S = 5.0  # for sessions on servers


class StepTimer(StepObserver):
    """Of this process; a forked child begins anew."""

    def __init__(self, where: Path, wanted: int | None) -> None:
        super().__init__(wanted)
        self._where, self._wanted = where, wanted
        self._remote: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stopping = threading.Lock()
        self._is_fork = False
        self._devices: dict[str, str] = {}
        os.register_at_fork(after_in_child=self._begin_anew)
        atexit.register(self._write)
        # A child of multiprocessing ends without the functions of atexit.
        util.register_after_fork(self, StepTimer._write_at_end)

    def _begin_anew(self) -> None:
        """In a forked child, whose steps are its own; its parent writes for itself."""
        self.recorder = new_recorder(self._wanted)
        self._stopping = threading.Lock()
        self._is_fork = True

    def _write_at_end(self) -> None:
        util.Finalize(self, self._write, exitpriority=0)

    def on_session(self, session: Any, target: str) -> None:
        """Remembers those on servers."""
        if target:
            self._remote.add(session)

    def on_step(self, steps: Steps, call: Call, is_enough: bool) -> None:
        """Ends the process when that is enough."""
        with contextlib.suppress(OSError):  # for whoever kills this process
            (self._where / SEEN.replace("*", str(os.getpid()))).write_text(str(len(steps.starts)))
        is_warm = len(steps.starts) == WARMUP
        if is_warm and call.again is not None and call.of in self._remote:
            self._devices = _executed(call.again)
        self.wait_for_devices(steps)
        if is_enough and self._stopping.acquire(blocking=False):  # for ever
            self._write()
            self._close_remote_sessions()
            kill_group()

    def _write(self) -> None:
        main, own = self.recorder.main, self.own_work
        if main is None and self._is_fork:
            return
        with contextlib.suppress(OSError):  # the parent is gone
            exchange.write(
                self._where / STEPS.replace("*", str(os.getpid())),
                {
                    "name": main.name if main else None,
                    "starts": main.starts if main else [],
                    "ends": main.ends if main else [],
                    "first_calls": main.first_calls if main else [],
                    "waits": main.waits if main else [],
                    "own_work": own.per_step_s(len(main.starts)) if own and main else None,
                    "also": [s.name for s in self.recorder.all.values() if s is not main],
                    "seen": [*self.seen],
                    "compiled": [*self.compiled],
                    "reports": _reports(),
                    "devices": self._devices,
                },
            )

    def _close_remote_sessions(self) -> None:
        """Else their servers keep them, with the memory of their variables."""

        def close() -> None:
            for session in list(self._remote):
                with contextlib.suppress(Exception):  # whatever it is, the process ends now
                    session.close()

        if len(self._remote) and (thread := start_or_run(close, name="hplacer-close")):
            thread.join(_CLOSING_S)


def _executed(run: Callable[..., Any]) -> dict[str, str]:
    """The device of each node in one more step, as servers have placed it; {}: they do not tell."""
    import tensorflow as tf

    v1 = tf.compat.v1
    metadata = v1.RunMetadata()
    try:
        run(options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    except (tf.errors.OpError, TypeError):  # TypeError: the script gives options of its own
        return {}
    return {node.name: node.device for graph in metadata.partition_graphs for node in graph.node}


def _reports() -> list[dict[str, Any]]:
    """What the pass did with the graphs of this process."""
    is_on = "tensorflow" in sys.modules and not is_switched_off()
    if not is_on or native.is_missing():
        return []
    return [
        {
            "label": report.label,
            "fingerprint": report.fingerprint,
            "outcome": report.outcome,
            "reason": report.reason,
            "trains": report.trains,
            "devices": report.num_devices,
        }
        for report in native.load().reports()
    ]
