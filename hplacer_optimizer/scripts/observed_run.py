"""One run of a user's script under an observer: where it runs, how it starts, why it failed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.scripts.working_copy import private_copy
from hplacer_optimizer.support import child_process

__all__ = ["BEFORE_TRAINING", "ObservedRun", "compiled_by_xla", "observed_run", "script_name"]

BEFORE_TRAINING = "before its first training step"
_MAX_LINES = 20
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)\b")  # as a traceback ends
_LOG = "log"


def script_name(command: Sequence[str]) -> str:
    """Of `script.py ARGS`, or `-m module ARGS`, for people."""
    return " ".join(command[:2] if command[0] == "-m" else command[:1])


@contextlib.contextmanager
def observed_run(
    command: Sequence[str],
    observed: str,
    *,
    error: type[HPlacerError],
    limit_s: float,
    directory: Path | None = None,
    in_place: bool = False,
    free: Sequence[Path] = (),
    until: str | None = None,
    quiet: bool = False,
    variables: Mapping[str, str] | None = None,
    **orders: Any,
) -> Iterator[ObservedRun]:
    """Runs a script to its end, and ends all that it has started. Its standard input is empty.

    What it leaves for this process lasts as long as the block.

    Args:
        command: `script.py ARGS` or `-m module ARGS`.
        observed: STEP, GRAPH or TIMES.
        error: raised for a script that is not there, and for a directory that cannot be copied.
        limit_s: longest run.
        directory: the working directory; None: this process's.
        in_place: whether the script runs in it and may change any file; else it runs in a private
            copy, and a guard keeps all other files.
        free: where else a script in a copy may overwrite something.
        until: the file that ends it.
        quiet: what it prints is kept for `show_end`, and the package logs warnings alone if nobody
            asks for more; else it goes to standard error.
        variables: environment variables.
        **orders: for the observer.
    """
    home = Path.cwd() if directory is None else directory.resolve()
    command = _from(home, command, error)
    changes = dict(variables or {})
    if quiet:
        changes["HPLACER_LOG"] = os.environ.get("HPLACER_LOG", "warning")
    with (
        tempfile.TemporaryDirectory(prefix="hplacer-", ignore_cleanup_errors=True) as kept,
        contextlib.nullcontext(home) if in_place else private_copy(home, error) as here,
    ):
        where = Path(kept)
        orders |= {"observed": observed, "free": None}
        if not in_place:
            orders["free"] = [str(path) for path in (here, *free)]
            (where / "tmp").mkdir()
            changes |= {"PWD": str(here), "TMPDIR": str(where / "tmp")}
            changes["PYTHONDONTWRITEBYTECODE"] = "1"
        exchange.write(where / exchange.ORDERS, orders)
        sys.stderr.flush()
        with open(where / _LOG, "wb") as log:
            returncode = child_process.run_until(
                [sys.executable, "-m", __package__, *command],
                limit_s=limit_s,
                is_done=lambda: until is not None and (where / until).exists(),
                env=child_process.environment(**{exchange.VARIABLE: kept}, **changes),
                cwd=here,
                stdout=log if quiet else sys.stderr.fileno(),
                stderr=log if quiet else None,
            )
        yield ObservedRun(where, home, here, returncode, limit_s)


def _from(home: Path, command: Sequence[str], error: type[HPlacerError]) -> list[str]:
    """The command, with the path of a script below the working directory made relative to it."""
    if command[0] == "-m":
        return list(command)
    script = Path(os.path.abspath(home / command[0]))
    if not script.exists():
        raise error(f"{command[0]}: there is no such script")
    return [str(script.relative_to(home) if script.is_relative_to(home) else script), *command[1:]]


@dataclass(frozen=True)
class ObservedRun:
    """A script that has run, and what it left."""

    where: Path
    """The files of the exchange."""
    directory: Path
    """The working directory."""
    here: Path
    """It or its copy, where the script ran."""
    returncode: int | None
    """None: it was still running at the end of its time, or when its observer had enough."""
    limit_s: float

    def at_home(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options that the script has set, with absolute paths in its copy made the original's."""
        if self.here == self.directory:
            return dict(options)
        root = str(self.here).removesuffix(str(self.directory))
        return {
            name: value.replace(root, "") if isinstance(value, str) else value
            for name, value in options.items()
        }

    @property
    def reads(self) -> str:
        """That it wanted standard input, as a part of a sentence."""
        wanted = (self.where / exchange.INPUT).exists()
        return "; it read standard input, which is empty here" if wanted else ""

    def failure(self, came: str, longer: str, *, may_be_killed: bool = False) -> str:
        """Why the script did not come to its own good end, for people; "": it did.

        Args:
            came: how far it had come, such as BEFORE_TRAINING.
            longer: what gives it a longer time.
            may_be_killed: whether its observer has ended it, since that knows enough.
        """
        code, reads = self.returncode, self.reads
        if (self.where / exchange.FAILURE).exists():
            return (self.where / exchange.FAILURE).read_text()
        if code is None:
            return f"did not come to an end within {self.limit_s:g} s ({came}){reads}: {longer}"
        if code < 0 and not (may_be_killed and code == -signal.SIGKILL):
            known = {member.value: member.name for member in signal.Signals}
            return f"was ended by {known.get(-code, f'signal {-code}')} {came}{reads}"
        if code > 0:
            return f"failed with exit code {code} {came}{reads} (what it printed last is above)"
        return ""

    def show_end(self) -> None:
        """The last lines of what it printed, and before them the error that they belong to.

        TensorFlow's errors go on with where in the program their op was made, many lines long.
        """
        lines = (self.where / _LOG).read_text(errors="replace").splitlines()
        begin = max(0, len(lines) - _MAX_LINES)
        errors = [i for i, line in enumerate(lines) if _ERROR.match(line)]
        if errors and errors[-1] < begin:
            print(lines[errors[-1]], file=sys.stderr)
        for line in lines[begin:]:
            print(line, file=sys.stderr)
        sys.stderr.flush()


def compiled_by_xla(names: Sequence[str]) -> str:
    """Why there is nothing to be seen of these functions, for people."""
    return (
        f"XLA compiles {', '.join(names)}, which hides the ops from the optimizer: "
        "pass jit_compile=False"
    )
