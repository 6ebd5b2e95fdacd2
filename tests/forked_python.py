"""Stands for `sys.executable` in tests: what would import TensorFlow is forked, all else starts.

    forked_python -m hplacer_optimizer.capture.graph_process /tmp/here      a fork of the server
    forked_python -m hplacer_optimizer plan graph.pb                        a fresh interpreter

A process of the package that works with TensorFlow, whose import takes 3 s of a core, is a fork of
the fork server of these tests (fork_server.py), if that has the environment that TensorFlow would
read. This program waits for it, with the same descriptors, and ends as it does. If this one is
killed, the other one is, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

MODULES = frozenset(
    f"hplacer_optimizer.{name}"
    for name in (
        "bench.train_workload",
        "capture.graph_process",
        "inspection.tensorboard",
        "machines.list_devices",
        "measuring.runner_process",
        "plans.graph_file",
        "plugin.cluster_worker",
        "scripts",
        "workloads.graphs",
    )
)
_CODE = (  # how it begins
    "import tensorflow",
    "from hplacer_optimizer.capture import native",
    "from hplacer_optimizer.cli.sample_session import",
)


def install(directory: Path, start_server: Callable[[], object]) -> None:
    """From now on in this process, and in the scripts of a server at `address(directory)`.

    `start_server` is called before each process that may be a fork.
    """
    from tests import fork_server

    program = directory / "python"
    own = Path(__file__)
    # -S: this program needs no package, and starts in 20 ms.
    if not program.exists():  # else other tests run it
        program.write_text(
            f"#!{sys.executable} -SE\nimport sys\nsys.path.insert(0, {str(own.parents[1])!r})\n"
            f"from tests import forked_python\nforked_python.main({sys.executable!r})\n"
        )
        program.chmod(0o755)

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen" and arguments[0] == str(program):
            command = arguments[1]
            if isinstance(command, Sequence) and is_forked(list(map(str, command[1:]))):
                start_server()

    sys.addaudithook(look)
    os.environ[fork_server.ADDRESS] = address(directory)
    os.environ[fork_server.PYTHON] = sys.executable = str(program)


def address(directory: Path) -> str:
    """Of the socket of a fork server."""
    return str(directory / "socket")


def is_forked(arguments: Sequence[str]) -> bool:
    """Whether these are the arguments of an interpreter that imports TensorFlow."""
    option, *values = (*arguments[:2], "")
    return (option == "-m" and values[0] in MODULES) or (
        option == "-c" and values[0].startswith(_CODE)
    )


def main(python: str) -> None:
    """Ends as the interpreter would with the arguments of this process."""
    arguments = sys.argv[1:]
    if is_forked(arguments):
        code = _forked(arguments)
        if code is not None:
            if code < 0:
                os.kill(os.getpid(), -code)
            os._exit(code)
    os.execv(python, [python, *arguments])


def _forked(arguments: list[str]) -> int | None:
    """Its exit code; None: no server takes it."""
    from multiprocessing.connection import Client

    from tests.fork_server import ADDRESS, ask

    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    descriptors = [number for number in descriptors if os.path.exists(f"/proc/self/fd/{number}")]
    try:
        connection = Client(os.environ.get(ADDRESS, ""), "AF_UNIX")
    except OSError:
        return None
    leads_session = os.getsid(0) == os.getpid()
    ask(
        connection,
        arguments,
        os.getcwd(),
        os.environ,
        {number: number for number in descriptors},
        leads_session,
    )
    code = connection.recv()
    return None if code is False else code
