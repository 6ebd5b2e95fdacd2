"""Captures graphs in forks of a process that has imported TensorFlow, not in fresh interpreters.

`load_graph` starts a Python process that imports TensorFlow, which takes 3 s. In the process of the
tests it forks one instead. Commands and snippets start a real one, as users do.

    python tests/forked_captures.py MODULE DIRECTORY      runs a module in such a fork
"""

from __future__ import annotations

import atexit
import functools
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hplacer_optimizer.support.tf_process import Child
    from tests.fork_server import ForkServer


def install() -> None:
    """From now on in this process."""
    from hplacer_optimizer.support import tf_process

    tf_process.run = functools.partial(_run, tf_process.run)


def _run(
    fresh: Callable[..., Child],
    module: str,
    where: Path,
    *,
    limit_s: float,
    name: str,
    hides_gpus: bool = True,
) -> Child:
    """As `tf_process.run`, which it stands for; that is `fresh`."""
    from hplacer_optimizer.errors import GraphError
    from hplacer_optimizer.support import child_process, tf_process

    hidden = child_process.without_gpus() if hides_gpus else {}
    environment = child_process.environment(**tf_process.ENVIRONMENT, **hidden)
    server = _server()
    if not server.fits(environment):
        return fresh(module, where, limit_s=limit_s, name=name, hides_gpus=hides_gpus)
    try:
        done = server.run(
            [__file__, module, str(where)],
            cwd=Path.cwd(),
            environment=environment | {child_process.PARENT: str(server.pid)},
            timeout_s=limit_s,
        )
    except subprocess.TimeoutExpired:
        raise GraphError(
            f"{name}: TensorFlow did not take this graph in within {limit_s:.0f} s"
        ) from None
    return tf_process.Child(returncode=done.returncode, log=done.stdout + done.stderr)


@functools.cache
def _server() -> ForkServer:
    from hplacer_optimizer.support import child_process, tf_process
    from tests.fork_server import ForkServer

    hidden = child_process.without_gpus()
    server = ForkServer(child_process.environment(**tf_process.ENVIRONMENT, **hidden))
    atexit.register(server.close)
    return server


if __name__ == "__main__":
    sys.argv.pop(0)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
