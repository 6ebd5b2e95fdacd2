"""A process that has imported TensorFlow, and forks what runs a script: in 0.1 s, not in 3 s.

    ForkServer(environment).run(["script.py", "--all"], cwd=..., environment=..., timeout_s=90)

A script finds what it would find in a fresh interpreter right after `import tensorflow`: its own
environment, working directory, arguments, `sys.path`, `__main__` and random numbers, an empty
input, and nothing of this package. It ends as an interpreter does.

This is sound because the server only imports: TensorFlow starts no thread before it creates a
device or runs an op, and OpenBLAS, which starts some at its import, ends them before a fork. The
scripts of one server share the addresses of what was imported, the seed of hashes, and what
TensorFlow read of the environment. So a test of any of these, or of the order of imports, needs a
fresh interpreter.

A server runs one script at a time. When its client is gone, it kills the script and ends.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from types import ModuleType
from typing import IO

_KILL = "kill"
_OF_SCRIPTS = ("HPLACER_", "PYTEST_", "PYTHONPATH", "TEST_")  # no import of TensorFlow reads them


class ForkServer:
    """The server as its client sees it; it imports TensorFlow in this environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = _shared(environment)
        self._connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            env=self._environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether TensorFlow would find the same environment while it is imported."""
        return _shared(environment) == self._environment

    def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """Like subprocess.run of Python with these arguments, a script's, whose output it captures.

        Raises subprocess.TimeoutExpired; whatever it raises, the process has been killed.
        """
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            self._connection.send((list(arguments), str(cwd), dict(environment)))
            for stream in (stdout, stderr):
                send_handle(self._connection, stream.fileno(), self._process.pid)
            ended = False
            try:
                ended = self._connection.poll(timeout_s)
            finally:
                if not ended:
                    self._connection.send(_KILL)
                returncode = self._connection.recv()
            if not ended:
                raise subprocess.TimeoutExpired(arguments, timeout_s)
            return subprocess.CompletedProcess(arguments, returncode, _text(stdout), _text(stderr))

    @property
    def pid(self) -> int:
        """The parent of what it runs."""
        return self._process.pid

    def close(self) -> None:
        """Ends the server."""
        self._connection.close()
        self._process.wait()


def _shared(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if not key.startswith(_OF_SCRIPTS)}


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


# ---- in the server's process ----


def main(descriptor: int) -> None:
    """Serves the connection; in a fork, runs the script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client and for scripts
    before = dict(os.environ)
    import tensorflow  # noqa: F401

    imported = dict(os.environ.items() - before.items())
    gc.freeze()  # a fork need not visit the modules when it ends, which takes a second
    connection = Connection(descriptor)
    is_fork = False
    with suppress(EOFError, BrokenPipeError):  # the client is gone
        is_fork = _serve(connection, imported)
    connection.close()
    if is_fork:
        script = sys.argv[0]
        exec(compile(Path(script).read_bytes(), script, "exec"), vars(sys.modules["__main__"]))


def _serve(connection: Connection, imported: Mapping[str, str]) -> bool:
    """Forks for each request; returns, True, in forks only, which are ready for their script."""
    while True:
        request = connection.recv()
        if request == _KILL:  # of a script that had just ended
            continue
        streams = [recv_handle(connection) for _ in ("stdout", "stderr")]
        child = os.fork()
        if child == 0:
            arguments, cwd, environment = request
            _start_afresh(arguments, cwd, {**imported, **environment}, streams)
            return True
        for stream in streams:
            os.close(stream)
        end = os.pidfd_open(child)
        if connection in wait([connection, end]):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(end)
        connection.send(os.waitstatus_to_exitcode(status))


def _start_afresh(
    arguments: list[str], cwd: str, environment: Mapping[str, str], streams: list[int]
) -> None:
    """Leaves this process as if it had started now."""
    import numpy as np

    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    script = os.path.abspath(arguments[0])
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [os.path.dirname(script), *paths, *sys.path[1:]]
    sys.argv[:] = arguments
    sys.modules["__main__"] = module = ModuleType("__main__")
    module.__file__ = script
    np.random.seed()  # Python's own numbers are drawn anew in every fork


if __name__ == "__main__":
    main(int(sys.argv[1]))
