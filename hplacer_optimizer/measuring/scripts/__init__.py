"""Runs a user's own script until its training steps are timed, and stops it.

    time_script ---> [script.py in a process group of its own: timer.py on its training steps]
                <--- directory: when each step began and ended (child.py)

    private_copy   the working directory, for a script that writes
    guard.py       what else the script must not change
    graph.py       the graph of its training step, with graph_child.py in the script's process

A step is a call of the function, or a `run` of the session, that updates variables and takes most
of the time; of a loop with several such calls it is a whole round. Times are those from one start
to the next, so that devices which work after their call has returned are timed right. Pauses do
not count: what lies between two steps for longer than ten of them take.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.errors import MeasuringError
from hplacer_optimizer.measuring.scripts import child
from hplacer_optimizer.measuring.training_steps.recording import LEAST, SESSION, WARMUP, Steps
from hplacer_optimizer.support import child_process
from hplacer_optimizer.support.formats import format_bytes

__all__ = ["MAX_COPY_BYTES", "SESSION", "ScriptSteps", "private_copy", "time_script"]

MAX_COPY_BYTES = 1 << 30
_MAX_LISTED, _MAX_LINES = 8, 20
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)\b")  # as a traceback ends
_MAX_NEIGHBOURS = 1_000


@dataclass(frozen=True, kw_only=True)
class ScriptSteps:
    """The timed steps of one run of a script; n steps after the warm-up.

    Attributes:
        name: of what was timed, for people, such as "function train_step".
        step_s: seconds per step.
        times_s: from the start of each step to that of the next; pauses are left out, [n].
        inside_share: how much of that passed within the steps, 0 to 1. The rest is the script's
            own work between them.
        first_step_s: seconds that the first call took.
        also: other functions that train.
        options: those of the optimizer that the script has set; None: it did not switch it on.
        reports: what the pass did with each graph of the script's process.
        devices: of the nodes of a step that servers have placed, by name; {}: not known.
        own_s: real seconds a step of the script's own work, where the times above are virtual and
            leave it out; None: they do not, or it is not known.
    """

    name: str
    step_s: float
    times_s: NDArray[np.float64]
    inside_share: float
    first_step_s: float
    also: list[str]
    options: dict[str, Any] | None
    reports: list[dict[str, Any]]
    devices: dict[str, str]
    own_s: float | None = None


def time_script(
    command: Sequence[str],
    *,
    directory: Path,
    free: Sequence[Path] | None,
    steps: int | None = None,
    changes: Mapping[str, Any] | None = None,
    behind: str | None = None,
    limit_s: float,
) -> ScriptSteps:
    """Runs `script.py ARGS` or `-m module ARGS` until its training steps are timed.

    What it prints is kept, and the end of it printed to standard error if it fails. Its standard
    input is empty.

    Args:
        command: the script and its own arguments.
        directory: the working directory.
        free: where else it may overwrite something; None: everywhere.
        steps: to time; None: for about two seconds, and at least 30.
        changes: options of the optimizer instead of the script's own; None: it is off.
        behind: a plan store that is looked into after that of `changes`, where the script names
            none itself.
        limit_s: longest run of the script.

    Raises MeasuringError, which says what kept the script from being timed.
    """
    name = " ".join(command[:2] if command[0] == "-m" else command[:1])
    with tempfile.TemporaryDirectory(prefix="hplacer-") as kept:
        where = Path(kept)
        trial = {
            "steps": steps,
            "options": dict(changes or {}),
            "behind": behind,
            "free": None if free is None else [str(path) for path in free],
        }
        child.write(where / child.TRIAL, trial)
        variables = {child.VARIABLE: str(where)}
        if free is not None:
            (where / "tmp").mkdir()
            variables |= {"TMPDIR": str(where / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
        if changes is None:
            variables["HPLACER_DISABLE"] = "1"
        returncode = _run(command, variables, directory, limit_s, where / "log")
        written = [json.loads(path.read_text()) for path in where.glob(child.STEPS)]
        most = max(written, key=lambda one: len(one["starts"]), default=None)
        reason = _why_not(where, most, returncode, limit_s)
        if reason or most is None:
            _show_end(where / "log")
            raise MeasuringError(f"{name}: {reason}")
        options = where / child.OPTIONS
        found = _steps(most, json.loads(options.read_text()) if options.exists() else None)
        counted = len(found.times_s)
        if counted < LEAST:
            raise MeasuringError(
                f"{name}: of its {len(most['starts'])} training steps only {counted} can be timed, "
                "since TensorFlow traces the others: give it more data or epochs"
            )
        if found.step_s <= 0.0:
            raise MeasuringError(
                f"{name}: its steps take no virtual time: nothing of them ran on an emulated device"
            )
        return found


def _run(
    command: Sequence[str],
    variables: Mapping[str, str],
    directory: Path,
    limit_s: float,
    log: Path,
) -> int | None:
    """The script's exit code; None: it was killed, with all that it had started."""
    quiet = {"HPLACER_LOG": os.environ.get("HPLACER_LOG", "warning")}
    with open(log, "wb") as output:
        return child_process.run_until(
            [sys.executable, "-m", __name__, *command],
            limit_s=limit_s,
            env=child_process.environment(**quiet, **variables),
            cwd=directory,
            stdout=output,
            stderr=output,
        )


def _show_end(log: Path) -> None:
    """The last lines of what a script printed, and before them the error that they belong to.

    TensorFlow's errors go on with where in the program their op was made, which takes many lines.
    """
    lines = log.read_text(errors="replace").splitlines()
    begin = max(0, len(lines) - _MAX_LINES)
    errors = [i for i, line in enumerate(lines) if _ERROR.match(line)]
    if errors and errors[-1] < begin:
        print(lines[errors[-1]], file=sys.stderr)
    for line in lines[begin:]:
        print(line, file=sys.stderr)
    sys.stderr.flush()


def _why_not(
    where: Path, found: dict[str, Any] | None, returncode: int | None, limit_s: float
) -> str:
    """Why there are no times, for people; "": there are."""
    refused = where / child.REFUSED
    if refused.exists():
        return (
            f"would overwrite {refused.read_text()}, outside of its working directory: "
            "--in-place lets it"
        )
    steps = len(found["starts"]) if found else 0
    stopped = returncode == -signal.SIGKILL and found is not None  # by its own timer
    if found and found["compiled"] and found["name"] in found["compiled"]:
        return (
            f"XLA compiles {', '.join(found['compiled'])}, which hides the ops from the "
            "optimizer: pass jit_compile=False"
        )
    reads = (
        "; it read standard input, which is empty here" if (where / child.INPUT).exists() else ""
    )
    after = f"after {steps} training steps" if steps else "before its first training step"
    if returncode is None:
        return f"did not come to an end within {limit_s:g} s ({after}){reads}: --time gives longer"
    if returncode < 0 and not stopped:
        number = -returncode
        known = {member.value: member.name for member in signal.Signals}
        return f"was ended by {known.get(number, f'signal {number}')} {after}{reads}"
    if returncode > 0:
        return f"failed with exit code {returncode} {after}{reads} (what it printed last is above)"
    if steps == 0:
        return f"{_never_trains(found)}{reads}"
    if steps < WARMUP + 1 + LEAST:
        return (
            f"ended {after}{reads}; at least {WARMUP + 1 + LEAST} are needed to time it: give it "
            "more data or epochs"
        )
    return ""


def _never_trains(found: dict[str, Any] | None) -> str:
    if found and found["seen"]:
        listed = ", ".join(found["seen"][-_MAX_LISTED:])
        return f"ended without a training step; it called {listed}, which update no variables"
    return (
        "ended without a training step: it called no tf.function and ran no session in its own "
        "process; steps that run op by op are not placed by the optimizer"
    )


def _steps(found: dict[str, Any], options: dict[str, Any] | None) -> ScriptSteps:
    steps = Steps(found["name"], found["starts"], found["ends"], found["first_calls"])
    counted = steps.counted()
    starts, ends = np.array(steps.starts), np.array(steps.ends)
    step_s = steps.step_s(found["synced"]) if len(counted) else 0.0
    inside_s = (ends - starts)[counted]
    return ScriptSteps(
        name=found["name"],
        step_s=step_s,
        times_s=np.diff(starts)[counted],
        inside_share=min(1.0, float(inside_s.sum()) / max(len(inside_s) * step_s, 1e-9)),
        first_step_s=float(ends[0] - starts[0]),
        also=found["also"],
        options=options,
        reports=found["reports"],
        devices=found["devices"],
        own_s=found["own_work"],
    )


@contextlib.contextmanager
def private_copy(directory: Path) -> Iterator[Path]:
    """A copy of a working directory that lasts as long as the block.

    Virtual environments and compiled Python are left out. Beside it are links to what is beside the
    directory. Raises MeasuringError for a directory
    that is too large.
    """
    total = 0
    for root, names, files in os.walk(directory):
        names[:] = [name for name in names if not _is_left_out(Path(root, name))]
        for file in files:
            with contextlib.suppress(OSError):
                total += os.lstat(Path(root, file)).st_size
        if total > MAX_COPY_BYTES:
            raise MeasuringError(
                f"{directory}: holds more than {format_bytes(MAX_COPY_BYTES)}, too much for a copy "
                "for each run: --in-place runs the script there, or start in a smaller directory"
            )
    with tempfile.TemporaryDirectory(prefix="hplacer-", ignore_cleanup_errors=True) as kept:
        copy = Path(kept, directory.name or "root")
        _link_neighbours(directory, Path(kept))
        shutil.copytree(directory, copy, symlinks=True, ignore=_left_out)
        _mend_links(directory, copy)
        yield copy


def _link_neighbours(directory: Path, kept: Path) -> None:
    """A script finds `../data` where it does without a copy."""
    with contextlib.suppress(OSError):  # a parent that cannot be read
        neighbours = [path for path in directory.parent.iterdir() if path != directory]
        for path in neighbours[:_MAX_NEIGHBOURS]:
            (kept / path.name).symlink_to(path)


def _mend_links(directory: Path, copy: Path) -> None:
    """A relative link to what is not in the copy leads to the original."""
    for root, names, files in os.walk(copy):
        for link in (Path(root, name) for name in (*names, *files)):
            original = directory / link.relative_to(copy)
            if link.is_symlink() and not link.exists() and original.exists():
                link.unlink()
                link.symlink_to(original.resolve())


def _is_left_out(path: Path) -> bool:
    is_environment = (path / "pyvenv.cfg").exists()
    return path.name == "__pycache__" or is_environment or not (path.is_dir() or path.is_file())


def _left_out(directory: str, names: list[str]) -> set[str]:
    """Also what is no file, such as a socket."""
    return {
        name
        for name in names
        if not Path(directory, name).is_symlink() and _is_left_out(Path(directory, name))
    }
