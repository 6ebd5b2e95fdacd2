"""The process that learns: `python -m hplacer_optimizer.planners.learning.trainer_process FD`.

learner.py starts it. Messages are pairs over the socket FD, which nobody but the parent has. It
sends ("request", dict), ("stop", None) and ("seconds", list); gets ("progress", (Progress,
(placement, makespan_ns) or None)), ("measure", placements), ("error", (type, text)) and ("done",
None).
"""

from __future__ import annotations

import io
import math
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer.errors import CheckpointError, HPlacerError
from hplacer_optimizer.planners.budget import Budget, Progress
from hplacer_optimizer.planners.learning.scoring import Scorer
from hplacer_optimizer.planners.learning.settings import Settings
from hplacer_optimizer.support import tf_process
from hplacer_optimizer.support.new_file import new_file

if TYPE_CHECKING:
    from hplacer_optimizer.planners.learning.training import Trainer

CHECKPOINT = "policy.npz"  # in the directory of a checkpoint

_SAVE_EVERY_S = 60.0


def main(fd: int) -> None:
    """Answers one request."""
    tf_process.begin()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C comes from the parent
    parent = _Parent(Connection(fd))
    try:
        _learn(parent)
    except HPlacerError as error:
        parent.send("error", (type(error).__name__, str(error)))
    except ModuleNotFoundError as error:
        hint = f"needs TensorFlow: {error}; pip install 'hplacer-optimizer[cpu]'"
        parent.send("error", ("PlannerUnavailableError", hint))
    else:
        parent.send("done", None)


class _Stop(threading.Event):
    """Set by the parent's wish to stop, the only message that comes unasked."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def is_set(self) -> bool:
        if not super().is_set() and self._connection.poll():
            self._connection.recv()
            self.set()
        return super().is_set()


class _Parent:
    """The other end of the socket."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.request: dict[str, Any] = connection.recv()[1]
        self.stop = _Stop(connection)

    def send(self, kind: str, content: Any) -> None:
        self._connection.send((kind, content))

    def measure(self, placements: NDArray[np.int32]) -> list[float]:
        """Seconds per step; inf for what was not measured when the parent wanted an end."""
        if self.stop.is_set():
            return [math.inf] * len(placements)
        self.send("measure", placements)
        kind, seconds = self._connection.recv()
        if kind == "stop":
            self.stop.set()
            _, seconds = self._connection.recv()  # the answer comes all the same
        return list(seconds)


def _learn(parent: _Parent) -> None:
    from hplacer_optimizer.planners.learning.events import EventLog
    from hplacer_optimizer.planners.learning.training import Trainer

    request = parent.request
    problem = _engine.read_problem(io.BytesIO(request["problem"]))
    settings = Settings(**request["settings"])
    reward = parent.measure if request["measures"] else None
    scorer = Scorer(problem, settings.failing_factor, reward)
    model, seed, start = request["model"], request["seed"], request["start"]
    trainer = Trainer(problem, model, settings, seed, scorer, start)
    keeper = _Keeper(trainer, request["checkpoint"])
    if request["resume"]:
        keeper.restore()
    events = EventLog(request["logdir"]) if request["logdir"] else None
    told = None

    def on_step(progress: Progress) -> None:
        nonlocal told
        best = trainer.best
        improved = None if best is told else (best.placement, best.makespan_ns)
        told = best
        parent.send("progress", (progress, improved))
        if events:
            events.write(trainer)
        keeper.save_if_due()

    if trainer.curve:  # what a resumed run already knows
        on_step(trainer.curve[-1])
    left_s = None if request["ends"] is None else request["ends"] - time.monotonic()
    if left_s is None or left_s > 0:
        budget = Budget(
            seconds=left_s, steps=request["steps"], patience=request["patience"], stop=parent.stop
        )
        trainer.run(budget, on_step)
    keeper.save()


class _Keeper:
    """Writes the checkpoint, if one is wanted."""

    def __init__(self, trainer: Trainer, directory: str | None) -> None:
        self._trainer = trainer
        self._path = None if directory is None else Path(directory) / CHECKPOINT
        self._due = time.monotonic() + _SAVE_EVERY_S

    def restore(self) -> None:
        """From the file, if there is one. Raises CheckpointError, which names it."""
        assert self._path is not None
        try:
            self._trainer.restore(self._path.read_bytes())
        except FileNotFoundError:
            pass
        except CheckpointError as error:
            raise CheckpointError(f"{self._path}: {error}") from None

    def save_if_due(self) -> None:
        if time.monotonic() > self._due:
            self.save()

    def save(self) -> None:
        """Raises CheckpointError if the file cannot be written."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(self._path) as file:
                file.write(self._trainer.save())
        except OSError as error:
            raise CheckpointError(f"{self._path}: cannot be written: {error}") from None
        self._due = time.monotonic() + _SAVE_EVERY_S


if __name__ == "__main__":
    main(int(sys.argv[1]))
