"""The process that measures: `python -m hplacer_optimizer.measuring.runner_process FD`.

measurer.py starts it. Messages are pairs over the socket FD, which nobody but the parent has. It
gets ("load", dict) and any number of ("measure", dict); answers the first with ("loaded", None),
("error", (type, text)) or ("failed", (kind, text)), the others with ("measured", (seconds,
peak_bytes)) or ("failed", ...). It ends when the parent hangs up.
"""

from __future__ import annotations

import re
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.measuring.measurement import (
    INVALID_PLACEMENT,
    OUT_OF_MEMORY,
    TENSORFLOW_ERROR,
    TIME_LIMIT,
)
from hplacer_optimizer.measuring.step_runner import StepRunner
from hplacer_optimizer.support import tf_process

_LONGEST = 500  # characters of a message
_REFUSED = re.compile(r"Cannot assign a device|Cannot colocate|Could not satisfy|No OpKernel")


def main(fd: int) -> None:
    """Loads one step and measures placements of it."""
    tf_process.begin()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C comes from the parent
    connection = Connection(fd)
    _, request = connection.recv()
    runner, answer = _load(request)
    connection.send(answer)
    while runner is not None:
        try:
            _, request = connection.recv()
        except EOFError:
            return
        connection.send(_measure(runner, request))


def _load(request: dict[str, Any]) -> tuple[StepRunner | None, tuple[str, Any]]:
    import tensorflow as tf

    try:
        return StepRunner(**request), ("loaded", None)
    except HPlacerError as error:
        return None, ("error", (type(error).__name__, str(error)))
    except (tf.errors.OpError, MemoryError) as error:
        return None, ("failed", _reason(error))


def _measure(runner: StepRunner, request: dict[str, Any]) -> tuple[str, Any]:
    import tensorflow as tf

    try:
        with runner.placed(request["placement"], request["time_limit_s"]) as step:
            step.warm_up(request["warmup"])
            seconds = step.time(request["steps"])
            peak_bytes = step.peak_bytes() if request["memory"] else ()
    except HPlacerError as error:
        return "failed", (TENSORFLOW_ERROR, str(error))
    except (tf.errors.OpError, MemoryError) as error:
        return "failed", _reason(error)
    return "measured", (seconds, peak_bytes)


def _reason(error: Exception) -> tuple[str, str]:
    """Its kind and what it says, in one line."""
    import tensorflow as tf

    text = " ".join(str(getattr(error, "message", error)).split())[:_LONGEST]
    if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
        return OUT_OF_MEMORY, text
    if isinstance(error, tf.errors.DeadlineExceededError):
        return TIME_LIMIT, text
    if isinstance(error, tf.errors.InvalidArgumentError) and _REFUSED.search(text):
        return INVALID_PLACEMENT, text
    return TENSORFLOW_ERROR, f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    main(int(sys.argv[1]))
