"""What the process of an observed script and its parent tell each other: files of one directory.

ORDERS    from the parent: who observes, for what, and what the script may change
FAILURE   why the script was ended before its time, for people
INPUT     is there if the script asked for standard input

What an observer leaves has its name in the observer's own module.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hplacer_optimizer.options import Options
from hplacer_optimizer.support.child_process import kill_group

VARIABLE = "HPLACER_SCRIPT"  # names the directory, also to processes that the script starts
ORDERS, FAILURE, INPUT = "orders.json", "failure.txt", "input"
OPTIONS = "options.json"  # those of the optimizer that a timed script has set itself
STEP, GRAPH, TIMES, TRIAL = "step", "graph", "times", "trial"  # what is observed
WITH_OPTIONS = (TIMES, TRIAL)  # the orders of these change options of the optimizer
RESULT = "result.json"  # of a trial, as `tell_result` has it


def orders() -> dict[str, Any]:
    """Of this process; {}: nobody observes it, or it has outlived who did."""
    found: dict[str, Any] = {}
    with contextlib.suppress(KeyError, OSError):
        found = json.loads(Path(os.environ[VARIABLE], ORDERS).read_text())
    return found


def directory(observed: str) -> Path | None:
    """Where an observer of this process leaves what it has seen; None: there is no such one."""
    return Path(os.environ[VARIABLE]) if orders().get("observed") == observed else None


def trial_options(options: Options) -> Options:
    """The options that are in force instead of these, which a timed or tried script has set."""
    trial = orders()
    if trial.get("observed") not in WITH_OPTIONS:
        return options
    where = Path(os.environ[VARIABLE])
    if not (where / OPTIONS).exists():
        write(where / OPTIONS, options.changed())
    changes = trial["options"]
    if trial["behind"] is not None:
        changes["cache"] += f";{options.cache or trial['behind']}"
    return replace(options, **changes)


def tell_result(result: Mapping[str, Any] | None) -> None:
    """What the trial of this process has found, once it is over; None: there can be no trial.

    Nothing, where nobody has asked for one. The first one counts.
    """
    where = directory(TRIAL)
    if where is not None and not (where / RESULT).exists():
        write(where / RESULT, result)


def give_up(where: Path, why: str) -> None:
    """Ends this process and all that it has started."""
    (where / FAILURE).write_text(why)
    kill_group()


def write(path: Path, document: Any) -> None:
    """As JSON; the file appears complete or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(document))
    temporary.rename(path)
