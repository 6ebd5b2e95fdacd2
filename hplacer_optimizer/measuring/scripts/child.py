"""What the process of a timed script knows of its trial, and what it leaves for its parent.

TRIAL     from the parent: how many steps to time, the options to train with
OPTIONS   those that the script itself has set
STEPS     when its training steps began and ended; a file for each process that trained
REFUSED   why it was stopped before it overwrote something
INPUT     is there if the script asked for standard input
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hplacer_optimizer.options import Options

VARIABLE = "HPLACER_TRIAL"  # names the directory, also to processes that the script starts
TRIAL, OPTIONS, STEPS = "trial.json", "options.json", "steps.*.json"
REFUSED, INPUT = "refused.txt", "input"


def directory() -> Path | None:
    """Where the trial's files are; None: this process is in none."""
    found = os.environ.get(VARIABLE)
    return Path(found) if found else None


def trial_options(options: Options) -> Options:
    """The options that are in force instead of these."""
    where = directory()
    if where is None or not where.exists():  # a process that has outlived its trial
        return options
    if not (where / OPTIONS).exists():
        write(where / OPTIONS, options.changed())
    trial = json.loads((where / TRIAL).read_text())
    changes = trial["options"]
    if trial["behind"] is not None:
        changes["cache"] += f";{options.cache or trial['behind']}"
    return replace(options, **changes)


def write(path: Path, document: Any) -> None:
    """As JSON; the file appears complete or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(document))
    temporary.rename(path)
