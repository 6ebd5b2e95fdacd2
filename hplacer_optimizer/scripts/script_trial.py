"""A plan tried within one run of a user's own script: its calls take turns, as training goes on.

The pass does it, as it does for a training that finds such a plan in its store; here all of the
run's time may be spent on it, and the script is ended as soon as there is a result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer.errors import MeasuringError
from hplacer_optimizer.measuring.running_trial import VARIABLE, Observations, TrialResult
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.scripts.observed_run import observed_run

__all__ = ["try_in_script"]


def try_in_script(
    command: Sequence[str],
    *,
    directory: Path | None = None,
    in_place: bool = False,
    free: Sequence[Path] = (),
    changes: Mapping[str, Any],
    limit_s: float,
) -> TrialResult | None:
    """Runs `script.py ARGS` or `-m module ARGS` until a trial in it is over.

    Args:
        command: the script and its own arguments.
        directory: the working directory; None: this process's.
        in_place: whether the script runs in it, and not in a private copy.
        free: where else a script with a copy may overwrite something.
        changes: options of the optimizer instead of the script's own.
        limit_s: longest run of the script.

    Returns None if what trains cannot be tried as it runs, or if the script ended before the trial.

    Raises MeasuringError for a script that is not there or a directory that cannot be copied.
    """
    rules = {VARIABLE: json.dumps({"share": 1.0, "most_s": limit_s})}
    with observed_run(
        command,
        exchange.TRIAL,
        error=MeasuringError,
        limit_s=limit_s,
        directory=directory,
        in_place=in_place,
        free=free,
        until=exchange.RESULT,
        quiet=True,
        variables=rules,
        options=dict(changes),
        behind=None,
    ) as run:
        result = run.where / exchange.RESULT
        found = json.loads(result.read_text()) if result.exists() else None
        if found is None:
            return None
        return TrialResult(**found | {"observed": Observations(**found["observed"])})
