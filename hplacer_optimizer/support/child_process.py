"""Python processes that this package starts: their environment, and their end with their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
PARENT = "HPLACER_PARENT"  # the process number of whoever started a child
_POLL_S = 0.05
_MEMORY_SHARE = 0.5
_LEAST_MEMORY = 1 << 30
# The library that emulates GPUs, which may be another one where the others are not set.
_EMULATION = (
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH",
    "HPLACER_EMULATION",
    "HPLACER_EMULATED_MACHINE",
)


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with changes, in which a child finds this package."""
    result = {**os.environ, **changes, PARENT: str(os.getpid())}
    paths = [str(_PACKAGE_ROOT), result.get("PYTHONPATH", "")]
    result["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return result


def without_gpus() -> dict[str, str]:
    """What `environment` changes for a child that has no GPUs, neither real nor emulated ones."""
    emulated = _EMULATION if any(os.environ.get(name) for name in _EMULATION[1:]) else ()
    return {"CUDA_VISIBLE_DEVICES": "", **dict.fromkeys(emulated, "")}


def planner_variables() -> dict[str, str]:
    """What `environment` changes for a child that plans for this training process."""
    return {
        # A planner may be the user's own: the child finds the modules that this process finds.
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
        "PYTHONSAFEPATH": "1",  # and none beside them in the working directory
        "HPLACER_DISABLE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **without_gpus(),  # they belong to the training
    }


def limit_memory(free_bytes: int) -> None:
    """That of this process, which plans beside a training, to a share of what is free.

    What is more is a MemoryError; memory that is only reserved does not count. If memory runs out
    nevertheless, the kernel ends this process and not the training.
    """
    limit = max(int(_MEMORY_SHARE * free_bytes), _LEAST_MEMORY)
    with contextlib.suppress(OSError, ValueError):  # there may be a lower one
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def kill_group() -> None:
    """Ends this process, and all that it started, at once.

    No handler, `finally` or exit hook of a user's script can then save half a training.
    """
    os.killpg(os.getpgrp(), signal.SIGKILL)


def run_until(
    command: Sequence[str],
    *,
    limit_s: float,
    is_done: Callable[[], bool] = lambda: False,
    **options: Any,
) -> int | None:
    """Runs a command until it ends, it is done, or so many seconds are over, with no input.

    It is in a session of its own, and in the end killed with all that it has started, also what it
    left behind. `options` are those of `subprocess.Popen`. Returns its exit code; None: it was
    still running.
    """
    deadline = time.monotonic() + limit_s
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, **options
    ) as process:
        try:
            while process.poll() is None and time.monotonic() < deadline and not is_done():
                time.sleep(_POLL_S)
            return process.poll()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class ConnectedProcess:
    """`python -m module FD`, which talks with its parent over the socket FD, as `connection`.

    What it prints is kept for `log`, in a file, as a pipe that nobody reads would block it. One
    that runs `foreign` code prints where this process does, is in a session of its own, and ends
    together with what it has started.
    """

    def __init__(
        self, module: str, environment_changes: Mapping[str, str], *, foreign: bool = False
    ) -> None:
        self.connection: Connection
        self.connection, theirs = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._foreign = foreign
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno())],
            env=environment(**environment_changes),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=None if foreign else self._log,
            stderr=None if foreign else self._log,
            start_new_session=foreign,
        )
        theirs.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: of the signal that ended it."""
        return self._process.poll()

    @property
    def log(self) -> str:
        """Its standard output and standard error so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def wait(self, limit_s: float) -> None:
        """Until it has ended, or so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)

    def kill(self) -> None:
        """What waits for its answer gets an EOFError or OSError."""
        self._process.kill()  # without effect on a process that has ended
        if self._foreign:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # its session's, and its number's, own

    def close(self) -> None:
        """Leaves nothing behind."""
        self.kill()
        self._process.wait()
        self.connection.close()
        self._log.close()


def end_with_parent() -> None:
    """In a child with this `environment`: a parent that is killed cannot stop it any more."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before. In a container, a parent that lives may have number 1.
    if os.environ.get(PARENT) != str(os.getppid()):
        sys.exit(1)
