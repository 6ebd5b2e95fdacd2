"""Captures the training step of a user's own script, and stops the script.

The step is what the pass sees, so a plan for it is found when the script runs. The script gets no
plan and is killed before its first training step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from hplacer_optimizer.capture.captured import CapturedGraph, load_captured
from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.machines import Machine, load_machine, machine_to_yaml
from hplacer_optimizer.options import Options
from hplacer_optimizer.scripts import exchange, step_catcher
from hplacer_optimizer.scripts.observed_run import (
    BEFORE_TRAINING,
    ObservedRun,
    compiled_by_xla,
    observed_run,
    script_name,
)
from hplacer_optimizer.support.switched_off import is_switched_off

__all__ = ["capture_script"]

_MAX_LISTED = 8


def capture_script(
    command: Sequence[str],
    *,
    machine: Machine | None = None,
    timeout_s: float = 600.0,
    in_place: bool = False,
) -> tuple[CapturedGraph, Machine, Options]:
    """Runs `script.py ARGS` or `-m module ARGS` until the pass has captured its training step.

    The options are those that the script (or HPLACER_OPTIONS) has set. What it prints goes to
    standard error.

    Args:
        command: the script and its own arguments.
        machine: whose rates to plan with, its devices named as the script's; None: the script's.
        timeout_s: longest run of the script.
        in_place: whether it runs in the working directory, and not in a private copy.

    Raises:
        GraphError: the script ended, or the time was up, without a training step; says why.
    """
    name = script_name(command)
    if is_switched_off():
        raise GraphError(f"{name}: HPLACER_DISABLE switches the pass off: unset it")
    with observed_run(
        command,
        exchange.STEP,
        error=GraphError,
        limit_s=timeout_s,
        in_place=in_place,
        until=step_catcher.STEP,
        machine=None if machine is None else machine_to_yaml(machine),
    ) as run:
        for step in (run.where / step_catcher.STEP, run.where / step_catcher.CANDIDATE):
            if step.exists():
                options = json.loads((step / step_catcher.OPTIONS).read_text())
                own = Options.from_parameters(run.at_home(options))
                return load_captured(step), load_machine(step / step_catcher.MACHINE), own
        raise GraphError(f"{name}: {_why_not(run)}")


def _why_not(run: ObservedRun) -> str:
    failure = run.failure(BEFORE_TRAINING, "--capture-timeout gives longer")
    if failure and run.returncode is not None:
        return failure
    ended = failure or f"ended without a training step{run.reads}"
    compiled, seen = run.where / step_catcher.COMPILED, run.where / step_catcher.SEEN
    if compiled.exists():
        return f"{ended}; {compiled_by_xla(json.loads(compiled.read_text()))}"
    if seen.exists():
        graphs = seen.read_text().splitlines()[-_MAX_LISTED:]
        return f"{ended}; the optimizer saw {', '.join(graphs)}"
    return (
        f"{ended}; the pass saw no graph of it. It needs two devices, a graph (tf.function, Keras "
        "or a session) of at least min_ops ops, and the optimizer not switched off"
    )
