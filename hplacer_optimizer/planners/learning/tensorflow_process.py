"""What of learning needs TensorFlow, in a process of its own: networks, TensorBoard's event files.

    NetworkPolicy, EventWriter  --(number, method, arguments)-->  networks.Networks, events.EventLog
                                <--(number, kind, answer)-------

TensorFlow's results depend on its number of threads, which a process decides once: in one with a
single thread the same seed and steps give the same placements on any number of cores. Nor does this
share state, devices or memory with a training script that it learns for.

`python -m hplacer_optimizer.planners.learning.tensorflow_process FD` answers over the socket FD.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine, errors
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import HPlacerError, PlannerUnavailableError
from hplacer_optimizer.planners.budget import Progress
from hplacer_optimizer.planners.learning.scoring import Scores
from hplacer_optimizer.planners.learning.settings import NetworkSettings
from hplacer_optimizer.planners.learning.training import BudgetEndedError
from hplacer_optimizer.support import tf_process
from hplacer_optimizer.support.child_process import ConnectedProcess, without_gpus
from hplacer_optimizer.support.tf_process import Child

_MODULE = "hplacer_optimizer.planners.learning.tensorflow_process"
_ENVIRONMENT = {
    "HPLACER_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}
_POLL_S = 0.05
_GRACE_S = 1.0  # after the end of the budget, for a batch to end
_DEATH_S = 5.0  # for a process that has closed its socket to end


class _Remote(ConnectedProcess):
    """An object in the process; killed when the block ends."""

    def __init__(
        self, kind: str, *arguments: Any, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """A moment after `is_over`, the object is not waited for."""
        super().__init__(_MODULE, _ENVIRONMENT | without_gpus())
        self._number = 0
        self._is_over = is_over
        self._kind, self._arguments = kind, arguments

    def __enter__(self) -> Any:
        try:
            self.call(self._kind, *self._arguments, is_over=self._is_over)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self, method: str, *arguments: Any, is_over: Callable[[], bool] = lambda: False
    ) -> Any:
        """What the method returns.

        Raises what it raises, BudgetEndedError a moment after it is over, and
        PlannerUnavailableError if the process ends without an answer.
        """
        self._number += 1
        over_s = None
        try:
            self.connection.send((self._number, method, arguments))
            while True:
                if self.connection.poll(_POLL_S):
                    number, kind, answer = self.connection.recv()
                    if number == self._number:  # an earlier one may have been interrupted
                        break
                if over_s is None and is_over():
                    over_s = time.monotonic()
                if over_s is not None and time.monotonic() > over_s + _GRACE_S:
                    raise BudgetEndedError
        except (EOFError, OSError):
            self.wait(_DEATH_S)
            child = Child(returncode=self.returncode or 0, log=self.log)
            raise PlannerUnavailableError(
                f"the process that learns: {child.cause_of_death}"
            ) from None
        if kind == "error":
            name, text = answer
            raised: type[Exception] = getattr(errors, name, PlannerUnavailableError)
            raise raised(text)
        return answer


class NetworkPolicy(_Remote):
    """A `LearningPolicy` of networks (networks.py)."""

    def __init__(
        self, problem: Problem, settings: NetworkSettings, seed: int, is_over: Callable[[], bool]
    ) -> None:
        """`is_over`: a moment after it, nothing is waited for."""
        file = io.BytesIO()
        _engine.write_problem(problem, file)
        super().__init__("networks", file.getvalue(), settings, seed, is_over=is_over)
        self.facts: dict[str, float] = {}

    def draw(self) -> NDArray[np.int32]:
        """A batch of placements, int32[R, n]."""
        placements: NDArray[np.int32] = self.call("draw", is_over=self._is_over)
        return placements

    def learn(self, scores: Scores) -> None:
        """From the scores of the last batch."""
        self.call("learn", scores, is_over=self._is_over)
        self.facts = self.call("facts")

    def save(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Facts for JSON and arrays, on which all further draws depend."""
        facts, arrays = self.call("save")
        return facts, arrays

    def restore(self, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on where `save` was called."""
        self.call("restore", facts, arrays)


class EventWriter(_Remote):
    """TensorBoard's event files in a directory (events.py)."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__("events", str(directory))

    def write(
        self, progress: Progress, drawn_seconds: NDArray[np.float64], facts: dict[str, float]
    ) -> None:
        """What a step of learning did."""
        self.call("write", progress, drawn_seconds, facts)


def main(fd: int) -> None:
    """Answers calls; the first one makes the object."""
    tf_process.begin(uses_keras=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the parent's
    connection = Connection(fd)
    target: Any = None
    with contextlib.suppress(EOFError):
        while True:
            number, method, arguments = connection.recv()
            try:
                if target is None:
                    target, answer = _make(method, *arguments), None
                else:
                    member = getattr(target, method)
                    answer = member(*arguments) if callable(member) else member
            except HPlacerError as error:
                connection.send((number, "error", (type(error).__name__, str(error))))
            except ModuleNotFoundError as error:
                hint = f"needs TensorFlow: {error}; pip install 'hplacer-optimizer[cpu]'"
                connection.send((number, "error", ("PlannerUnavailableError", hint)))
            else:
                connection.send((number, "answer", answer))


def _make(kind: str, *arguments: Any) -> Any:
    if kind == "events":
        from hplacer_optimizer.planners.learning.events import EventLog

        return EventLog(*arguments)
    from hplacer_optimizer.planners.learning.networks import Networks

    problem, settings, seed = arguments
    return Networks(_engine.read_problem(io.BytesIO(problem)), settings, seed)


if __name__ == "__main__":
    main(int(sys.argv[1]))
