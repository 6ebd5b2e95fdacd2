"""A process that has imported TensorFlow, and forks what runs a script: in 0.1 s, not in 3 s.

    server = ForkServer.started(environment, address)
    server.run(["script.py", "--all"], cwd=..., environment=..., timeout_s=90)

A script finds what it would find in a fresh interpreter right after `import tensorflow`: its own
environment, working directory, arguments, `sys.path`, `__main__` and random numbers, an empty
input, and nothing of this package. It ends as an interpreter does, which takes apart what the
script made; what the server imported stays, since every fork would copy that to take it apart.

This is sound because the server only imports: TensorFlow starts no thread before it creates a
device or runs an op, and OpenBLAS, which starts some at its import, ends them before a fork. The
scripts of one server share the addresses of what was imported, the seed of hashes, `sys.flags`, and
what TensorFlow read of the environment. So a test of any of these, or of the order of imports,
needs a fresh interpreter.

Others reach the server at its address: the workers of a test run, which share one, and processes
that a script starts (forked_python.py). When the owner of a server is gone, it kills all scripts
and ends. When whoever else asked for a script is gone, it kills that one.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Pipe, wait
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from types import ModuleType
from typing import IO, Any

ADDRESS = "TEST_FORK_SERVER"  # the variable with the path of the server's socket
PYTHON = "TEST_PYTHON"  # the variable with what a script has for `sys.executable`
_KILL = "kill"
_TF_CONTEXT = "tensorflow.python.eager.context"
_PARENT = "HPLACER_PARENT"  # whom a process of the package takes for its parent
_FIRST_SPARE = 100  # descriptors that no script has
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_SAFE_PATH = "PYTHONSAFEPATH"
# How those are called that no import of TensorFlow reads.
_OF_SCRIPTS = ("COLUMNS", "LINES", "HPLACER_", "PWD", "PYTEST_", "PYTHONPATH", "TEST_", "TMPDIR")
_OF_SCRIPTS += (
    "XDG_CACHE_HOME",
    "TF_DUMP_GRAPH_",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GRAPH_CACHING",
    "TF_NUM_INT",
)
_DEVICES = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"  # which the import loads last: a fork can, too
_OF_SCRIPTS += ("OMP_NUM_THREADS", "TPU_ML_PLATFORM", _DEVICES, _NO_BYTECODE, _SAFE_PATH)
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_AS_IF_UNSET = {  # the last ones are set by the import
    "TF_USE_LEGACY_KERAS": "0",
    "TF2_BEHAVIOR": "1",
    "ENABLE_RUNTIME_UPTIME_TELEMETRY": "1",
    "HDF5_PLUGIN_PATH": "disable",
    "KMP_DUPLICATE_LIB_OK": "True",
    "KMP_INIT_AT_FORK": "FALSE",
}


class ForkServer:
    """The server, which imports TensorFlow in this environment, as one that asks it sees it."""

    def __init__(self, environment: Mapping[str, str], connection: Connection) -> None:
        self._environment = _shared(environment)
        self._connection = connection
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def started(cls, environment: Mapping[str, str], address: str) -> ForkServer:
        """A new one, which this process owns; `address`: the path of a socket, for others."""
        ours, theirs = Pipe()
        server = cls(environment, ours)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            server._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), str(listener.fileno())],
                env={**server._environment, _NO_BYTECODE: environment.get(_NO_BYTECODE, "")},
                pass_fds=[theirs.fileno(), listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        theirs.close()
        return server

    @classmethod
    def of_another_process(cls, environment: Mapping[str, str], address: str) -> ForkServer:
        """The one at this address, which was started in the same environment."""
        return cls(environment, Client(address, "AF_UNIX"))

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

        Instead of a script, the arguments may begin with "-m" and a module, or "-c" and code.

        Raises subprocess.TimeoutExpired; whatever it raises, the process has been killed.
        """
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            streams = {1: stdout.fileno(), 2: stderr.fileno()}
            ask(self._connection, arguments, str(cwd), environment, streams)
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

    def close(self) -> None:
        """Ends the server, if this process owns it."""
        self._connection.close()
        if self._process is not None:
            self._process.wait()


def ask(
    connection: Connection,
    arguments: Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    descriptors: Mapping[int, int],
    leads_session: bool = False,
) -> None:
    """Asks the server at the other end for a script that has these descriptors, by its numbers.

    The answer is the script's exit code; False: the server's environment does not fit.
    """
    connection.send((list(arguments), cwd, dict(environment), [*descriptors], leads_session))
    for descriptor in descriptors.values():
        send_handle(connection, descriptor, None)


def _shared(environment: Mapping[str, str]) -> dict[str, str]:
    shared = {key: value for key, value in environment.items() if not key.startswith(_OF_SCRIPTS)}
    if shared.get(_LOG_LEVEL, "0") < "3":  # more than fatal errors, which no test needs
        shared[_LOG_LEVEL] = "3"
    return {key: value for key, value in shared.items() if _AS_IF_UNSET.get(key) != value}


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


# ---- in the server's process ----


def main(owner: int, listener: int) -> None:
    """Serves; in a fork, runs the script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client and for scripts
    before, modules_before = dict(os.environ), sys.modules.copy()
    shared: dict[str, ModuleType] = {}
    atexit.register(_keep, shared)  # before all that TensorFlow registers, so it runs after them
    import tensorflow  # noqa: F401

    imported = dict(os.environ.items() - before.items())
    shared.update((name, sys.modules[name]) for name in sys.modules.keys() - modules_before.keys())
    gc.freeze()  # a fork need not visit the modules when it ends, which takes a second
    server = _Server(Connection(owner), socket.socket(fileno=listener), before, imported)
    with suppress(EOFError, BrokenPipeError):  # the owner is gone
        server.serve()
    if server.is_fork:
        _run(sys.argv)


def _keep(modules: dict[str, ModuleType]) -> None:
    """Hides modules from the end of the interpreter: to clear them takes longer than most scripts.

    But for the one that holds TensorFlow's devices, and those of multiprocessing, which unlinks its
    semaphores after this; and none where a thread still runs, which may be within TensorFlow.
    """
    if threading.active_count() > 1:
        return
    for name in modules.keys() - {_TF_CONTEXT}:
        if not name.startswith("multiprocessing"):
            sys.modules.pop(name, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))  # for ever


def _run(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        exec(arguments.pop(1), vars(sys.modules["__main__"]))
    else:
        script = arguments[0]
        exec(compile(Path(script).read_bytes(), script, "exec"), vars(sys.modules["__main__"]))


class _Server:
    """Its connections, and what runs for each."""

    def __init__(
        self,
        owner: Connection,
        listener: socket.socket,
        environment: Mapping[str, str],
        imported: Mapping[str, str],
    ) -> None:
        self.is_fork = False
        self._owner = owner
        self._listener = listener
        self._environment = _shared(environment)
        self._imported = imported
        self._running: dict[Connection, tuple[int, int] | None] = {owner: None}  # pid and pidfd

    def serve(self) -> None:
        """Forks for each request; returns in forks only, which are ready for their script."""
        try:
            while not self.is_fork:
                ends = {found[1]: asker for asker, found in self._running.items() if found}
                for ready in wait([self._listener, *self._running, *ends]):
                    if ready is self._listener:
                        self._running[Connection(self._listener.accept()[0].detach())] = None
                    elif isinstance(ready, Connection):
                        self._hear(ready)
                    elif ends[ready] in self._running:  # it may have gone with the one before
                        self._reap(ends[ready])
                    if self.is_fork:
                        return
        finally:
            if not self.is_fork:
                for asker in self._running:
                    self._kill(asker)

    def _hear(self, asker: Connection) -> None:
        try:
            request = asker.recv()
        except (EOFError, ConnectionResetError):
            if asker is self._owner:
                raise EOFError from None
            self._kill(asker)
            self._reap(asker)
            return
        if request == _KILL:  # maybe of a script that has just ended
            self._kill(asker)
            return
        received = [recv_handle(asker) for _ in request[3]]
        if _shared(request[2]) != self._environment:
            asker.send(False)
        else:
            self._fork(asker, request, received)
        for descriptor in received if not self.is_fork else ():
            os.close(descriptor)

    def _fork(self, asker: Connection, request: Any, received: Sequence[int]) -> None:
        arguments, cwd, environment, numbers, leads_session = request
        child = os.fork()
        if child:
            self._running[asker] = (child, os.pidfd_open(child))
            return
        self.is_fork = True
        for connection, found in self._running.items():
            connection.close()
            if found:
                os.close(found[1])
        self._listener.close()
        if leads_session:
            os.setsid()
        if _PARENT in environment:
            environment[_PARENT] = str(os.getppid())
        descriptors = dict(zip(numbers, received, strict=True))
        _start_afresh(arguments, cwd, {**self._imported, **environment}, descriptors)

    def _kill(self, asker: Connection) -> None:
        found = self._running[asker]
        if found:
            with suppress(ProcessLookupError):
                leads = os.getpgid(found[0]) == found[0]
                (os.killpg if leads else os.kill)(found[0], signal.SIGKILL)

    def _reap(self, asker: Connection) -> None:
        found = self._running.pop(asker)
        is_gone = False
        if found:
            _, status = os.waitpid(found[0], 0)
            os.close(found[1])
            try:
                asker.send(os.waitstatus_to_exitcode(status))
            except OSError:
                is_gone = True
        if found and not is_gone:
            self._running[asker] = None
        else:
            asker.close()


def _start_afresh(
    arguments: list[str],
    cwd: str,
    environment: Mapping[str, str],
    descriptors: Mapping[int, int],
) -> None:
    """Leaves this process as if it had started now."""
    import numpy as np
    from tensorflow.python.framework import load_library

    spare = {
        number: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_SPARE)
        for number, descriptor in descriptors.items()
    }
    for descriptor in descriptors.values():
        os.close(descriptor)
    for number, descriptor in spare.items():
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    script = os.path.abspath(arguments[0])
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    own = [] if environment.get(_SAFE_PATH) else [os.path.dirname(script)]  # for -m and -c: cwd
    sys.path[:] = [*own, *paths, *sys.path[1:]]
    sys.argv[:] = arguments
    sys.executable = environment.get(PYTHON, sys.executable)
    sys.dont_write_bytecode = bool(environment.get(_NO_BYTECODE))
    tempfile.tempdir = None
    sys.modules["__main__"] = module = ModuleType("__main__")
    module.__file__ = script
    if environment.get(_DEVICES):
        load_library.load_pluggable_device_library(environment[_DEVICES])
    np.random.seed()  # Python's own numbers are drawn anew in every fork


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
