"""Child processes that use TensorFlow in place of this one.

TensorFlow is slow to import and aborts on some malformed graphs; a child that it takes down leaves
a reason here.
"""

from __future__ import annotations

import atexit
import gc
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.support import child_process

__all__ = ["Child", "begin", "run"]

_MAX_REASON = 500
_INFORMATION = re.compile(r"I\d{4} |WARNING: All log messages before absl::InitializeLog")
ENVIRONMENT = {  # of a child
    "HPLACER_DISABLE": "1",  # this package's own pass stays out
    "PYTHONSAFEPATH": "1",  # a script in the working directory may have the name of a module
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_GRAPH_CACHING": "",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # training has the GPUs
}


@dataclass(frozen=True, kw_only=True)
class Child:
    """How a child process ended."""

    returncode: int
    log: str  # its standard output and standard error

    @property
    def cause_of_death(self) -> str:
        """For people, e.g. "TensorFlow ended with SIGABRT: ..."."""
        if self.returncode < 0:
            known = {member.value: member.name for member in signal.Signals}
            ended = known.get(-self.returncode, f"signal {-self.returncode}")
            return f"TensorFlow ended with {ended}: {self._last_words}"
        return f"the child process ended with exit code {self.returncode}: {self._last_words}"

    @property
    def _last_words(self) -> str:
        """The line that tells most: TensorFlow's fatal one, else the last."""
        lines = [line.strip() for line in self.log.splitlines() if line.strip()]
        lines = [line for line in lines if not _INFORMATION.match(line)]
        fatal = [line for line in lines if line.startswith("F")]
        last = (fatal or lines or ["it left no message"])[-1]
        return last[:_MAX_REASON]


def run(module: str, where: Path, *, limit_s: float, name: str, hides_gpus: bool = True) -> Child:
    """Runs `python -m module where` and never leaves it behind.

    Raises GraphError, which begins with `name`, if it takes longer than `limit_s`.
    """
    hidden = child_process.without_gpus() if hides_gpus else {}
    log = where / "log"
    with (
        open(log, "wb") as stream,
        subprocess.Popen(
            [sys.executable, "-m", module, str(where)],
            env=child_process.environment(**ENVIRONMENT, **hidden),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        ) as process,
    ):
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise GraphError(
                f"{name}: TensorFlow did not take this graph in within {limit_s:.0f} s"
            ) from None
        finally:
            process.kill()  # without effect on a process that has ended
            process.wait()
    return Child(returncode=process.returncode, log=log.read_text(errors="replace"))


def begin(*, uses_keras: bool = False) -> None:
    """The first act of a child: it will end with its parent, and not do what only takes time.

    `import tensorflow` imports Keras, which few children use, and at its end an interpreter visits
    all objects of both: together they would take longer than what a child does for small graphs.
    """
    child_process.end_with_parent()
    for name in () if uses_keras else ("keras", "tf_keras"):
        sys.modules[name] = None  # type: ignore[assignment]  # as if it was not installed
    atexit.register(gc.freeze)
