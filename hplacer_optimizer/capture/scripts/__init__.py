"""Captures the training step of a user's own script, and stops the script.

    capture_script ---> [script.py in a process group of its own: pass --request--> child.py]
                   <--- directory: the step, its machine and the options that the script set

The step is what the pass sees, so a plan for it is found when the script runs. The script gets no
plan and is killed before its first training step; what it did until then (reading data, making
directories, logging) it did.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hplacer_optimizer.capture.captured import CapturedGraph, load_captured
from hplacer_optimizer.capture.scripts import child
from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.machines import Machine, load_machine, save_machine
from hplacer_optimizer.options import Options
from hplacer_optimizer.support import child_process

__all__ = ["CapturedScript", "capture_script"]

_GRACE_S = 10.0  # beyond the time limit, which the script's process keeps itself
_MAX_LISTED = 8


@dataclass(frozen=True, kw_only=True)
class CapturedScript:
    """The training step of a script as the pass saw it."""

    captured: CapturedGraph
    machine: Machine
    options: Options  # those that the script (or HPLACER_OPTIONS) set: its store among them


def capture_script(
    command: Sequence[str], *, machine: Machine | None = None, timeout_s: float = 600.0
) -> CapturedScript:
    """Runs `script.py ARGS` or `-m module ARGS` until the pass has captured its training step.

    The script's standard output goes to standard error.

    Args:
        command: the script and its own arguments.
        machine: whose rates to plan with, its devices named as the script's; None: the script's.
        timeout_s: longest run of the script.

    Raises:
        GraphError: the script ended, or the time was up, without a training step; says why.
    """
    name = " ".join(command[:2] if command[0] == "-m" else command[:1])
    if os.environ.get("HPLACER_DISABLE") == "1":
        raise GraphError(f"{name}: HPLACER_DISABLE=1 switches the pass off: unset it")
    with tempfile.TemporaryDirectory(prefix="hplacer-") as directory:
        where = Path(directory)
        if machine is not None:
            save_machine(machine, where / child.MACHINE)
        returncode = _run(command, where, timeout_s)
        for step in (where / child.STEP, where / child.CANDIDATE):
            if step.exists():
                options = json.loads((step / child.OPTIONS).read_text())
                return CapturedScript(
                    captured=load_captured(step),
                    machine=load_machine(step / child.MACHINE),
                    options=Options.from_parameters(options),
                )
        raise GraphError(f"{name}: {_why_not(where, returncode, timeout_s)}")


def _run(command: Sequence[str], where: Path, timeout_s: float) -> int | None:
    """The script's exit code; None if it was killed, with all that it had started."""
    sys.stderr.flush()
    returncode = child_process.run_until(
        [sys.executable, "-m", child.__package__, str(timeout_s), *command],
        limit_s=timeout_s + _GRACE_S,
        is_done=(where / child.STEP).exists,
        env=child_process.environment(**{child.VARIABLE: str(where)}),
        stdout=sys.stderr.fileno(),
    )
    return None if returncode is None or returncode == -signal.SIGKILL else returncode


def _why_not(where: Path, returncode: int | None, timeout_s: float) -> str:
    if (where / child.ERROR).exists():
        return (where / child.ERROR).read_text()
    if returncode is None:
        ended = f"no training step within {timeout_s:g} s; --capture-timeout gives it longer"
    elif returncode != 0:
        return f"ended with exit code {returncode} before its training step (its message is above)"
    else:
        ended = "ended without a training step"
    compiled = where / child.COMPILED
    names = json.loads(compiled.read_text()) if compiled.exists() else []
    if names:
        listed = ", ".join(names[:_MAX_LISTED])
        return f"{ended}: XLA compiles {listed}, which hides the ops: pass jit_compile=False"
    if (where / child.SEEN).exists():
        lines = (where / child.SEEN).read_text().splitlines()[-_MAX_LISTED:]
        graphs = [json.loads(line) for line in lines]
        listed = "; ".join(
            f"{graph['label']} ({graph['ops']} ops{_comma(graph['reason'])})" for graph in graphs
        )
        return f"{ended}: seen were {listed}"
    return (
        f"{ended}: the pass saw no graph of it. It needs two devices, a graph (tf.function, Keras "
        "or a session) of at least min_ops ops, and the optimizer not switched off"
    )


def _comma(reason: str) -> str:
    return f", {reason}" if reason else ""
