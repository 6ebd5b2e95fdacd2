"""Runs a user's own script until its training steps are timed, and stops it.

A step is a call of the function, or a `run` of the session, that updates variables and takes most
of the time; of a loop with several such calls it is a whole round. Times are those from one start
to the next. Devices that work after a call has returned are waited for now and then, and times are
those from one such wait to the next. Pauses do not count: what lies between two steps for longer
than ten of them take.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.errors import MeasuringError
from hplacer_optimizer.measuring.training_steps.recording import LEAST, SESSION, WARMUP, Steps
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.scripts.observed_run import (
    BEFORE_TRAINING,
    ObservedRun,
    compiled_by_xla,
    observed_run,
    script_name,
)
from hplacer_optimizer.scripts.step_timer import SEEN, STEPS

__all__ = ["SESSION", "ScriptSteps", "time_script"]

_MAX_LISTED = 8


@dataclass(frozen=True, kw_only=True)
class ScriptSteps:
    """The timed steps of one run of a script; n steps after the warm-up.

    Attributes:
        name: of what was timed, for people, such as "function train_step".
        step_s: seconds per step.
        times_s: from the start of each step to that of the next; pauses are left out, [n].
        inside_share: how much of that passed within the steps, 0 to 1. The rest is the script's
            own work between them. None: devices work after a function's call has returned, so that
            nothing tells. A session waits for them.
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
    inside_share: float | None
    first_step_s: float
    also: list[str]
    options: dict[str, Any] | None
    reports: list[dict[str, Any]]
    devices: dict[str, str]
    own_s: float | None = None


def time_script(
    command: Sequence[str],
    *,
    directory: Path | None = None,
    in_place: bool = False,
    free: Sequence[Path] = (),
    steps: int | None = None,
    changes: Mapping[str, Any] | None = None,
    behind: str | None = None,
    limit_s: float,
) -> ScriptSteps:
    """Runs `script.py ARGS` or `-m module ARGS` until its training steps are timed.

    What it prints is kept, and the end of it printed to standard error if it fails.

    Args:
        command: the script and its own arguments.
        directory: the working directory; None: this process's.
        in_place: whether the script runs in it, and not in a private copy.
        free: where else a script with a copy may overwrite something.
        steps: to time; None: for about two seconds, and at least 30.
        changes: options of the optimizer instead of the script's own; None: it is off.
        behind: a plan store that is looked into after that of `changes`, where the script names
            none itself.
        limit_s: longest run of the script.

    Raises MeasuringError, which says what kept the script from being timed.
    """
    name = script_name(command)
    with observed_run(
        command,
        exchange.TIMES,
        error=MeasuringError,
        limit_s=limit_s,
        directory=directory,
        in_place=in_place,
        free=free,
        quiet=True,
        variables={"HPLACER_DISABLE": "1"} if changes is None else None,
        steps=steps,
        options=dict(changes or {}),
        behind=behind,
    ) as run:
        written = [json.loads(path.read_text()) for path in run.where.glob(STEPS)]
        most = max(written, key=lambda one: len(one["starts"]), default=None)
        reason = _why_not(run, most)
        if reason or most is None:
            run.show_end()
            raise MeasuringError(f"{name}: {reason}")
        set_by_script = run.where / exchange.OPTIONS
        options = None
        if set_by_script.exists():
            options = run.at_home(json.loads(set_by_script.read_text()))
        found = _steps(most, options)
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


def _why_not(run: ObservedRun, found: dict[str, Any] | None) -> str:
    """Why there are no times, for people; "": there are."""
    steps = len(found["starts"]) if found else _steps_seen(run)
    came = f"after {steps} training steps" if steps else BEFORE_TRAINING
    if found and found["name"] in found["compiled"]:
        return compiled_by_xla(found["compiled"])
    is_over = found is not None
    if failure := run.failure(came, "--time gives longer", may_be_killed=is_over):
        return failure
    if steps == 0:
        return f"{_never_trains(found)}{run.reads}"
    if steps < WARMUP + 1 + LEAST:
        return (
            f"ended {came}{run.reads}; at least {WARMUP + 1 + LEAST} are needed to time it: give "
            "it more data or epochs"
        )
    return ""


def _steps_seen(run: ObservedRun) -> int:
    """Of a process that ended without telling its times."""
    return max((int(path.read_text() or 0) for path in run.where.glob(SEEN)), default=0)


def _never_trains(found: dict[str, Any] | None) -> str:
    if found and found["seen"]:
        listed = ", ".join(found["seen"][-_MAX_LISTED:])
        return f"ended without a training step; it called {listed}, which update no variables"
    return (
        "ended without a training step: it called no tf.function and ran no session in its own "
        "process; steps that run op by op are not placed by the optimizer"
    )


def _steps(found: dict[str, Any], options: dict[str, Any] | None) -> ScriptSteps:
    waits = [(steps, done_s) for steps, done_s in found["waits"]]
    steps = Steps(found["name"], found["starts"], found["ends"], found["first_calls"], waits)
    times_s = steps.lasts_s()
    starts, ends = np.array(steps.starts), np.array(steps.ends)
    inside_s = (ends - starts)[steps.counted()]
    inside_share = min(1.0, float(inside_s.sum()) / max(float(times_s.sum()), 1e-9))
    return ScriptSteps(
        name=found["name"],
        step_s=float(times_s.mean()) if len(times_s) else 0.0,
        times_s=times_s,
        inside_share=None if waits and found["name"] != SESSION else inside_share,
        first_step_s=float(ends[0] - starts[0]),
        also=found["also"],
        options=options,
        reports=found["reports"],
        devices=found["devices"],
        own_s=found["own_work"],
    )
