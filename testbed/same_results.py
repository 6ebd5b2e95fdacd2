"""Whether trials change results: training alone, with switches at every call, and with real trials.

A script runs in processes of its own with two CPU devices:

    alone      without the optimizer
    planned    a random plan is made and stored, which spreads the ops
    switched   every call of a function runs on the other side than the one before
    exact      the same, with bitwise=True
    tried      with the real trial, which may cost any share of the run

`python -m testbed.same_results SCRIPT ...` is the process.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.environment import ROOT, clean_environment
from testbed.tried_steps import TRIED_STEPS
from testbed.training_scripts import OPTIONS, ROUNDING, SCRIPTS, errors_of, results_of

LIMIT_S = 300.0
# Of testbed/scripts: those whose functions are called some times.
TRIED_SCRIPTS = (
    "branches.py",
    "convolutional_network.py",
    "custom_loop.py",
    "data_pipeline.py",
    "gradient_accumulation.py",
    "gradients_outside.py",
    "keras_gan.py",
    "keras_mixed_precision.py",
    "keras_steps_per_execution.py",
    "loops.py",
    "python_functions.py",
    "retraces.py",
    "strings_and_tables.py",
    "threads.py",
    "transformer_encoder.py",
)
NAMES = (*TRIED_STEPS, *TRIED_SCRIPTS)
_STATE = re.compile(r"^hplacer: .*: (\w+ keeps state in its kernel)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a training printed."""

    results: list[Any]
    errors: list[str]
    returncode: int
    calls: int  # with the plan
    left_out: str  # the reason, as the log has it; "": nothing is


@dataclass(frozen=True, kw_only=True)
class Found:
    """Of one training.

    Attributes:
        left_out: why its function is not tried; "": it is.
        switched, tried: calls with the plan.
        difference: the largest one of any number with switches, or with the real trial, relative
            to it without the optimizer; infinite where something else differs.
        is_exact: whether all is equal to the bit with `bitwise=True`; None: it differs in two runs
            without the optimizer.
    """

    name: str
    left_out: str
    switched: int
    tried: int
    difference: float
    is_exact: bool | None

    @property
    def is_tried(self) -> bool:
        """Whether calls ran with the plan and without it."""
        return self.switched > 0

    @property
    def is_same(self) -> bool:
        """Up to rounding, and to the bit where that was asked for."""
        return self.difference <= ROUNDING and self.is_exact is not False


def compare(name: str, directory: Path) -> Found:
    """Runs one of NAMES in all ways."""
    store = directory / "plans"
    planned = OPTIONS.format(cache=store)
    tried = planned.replace("min_gain=-1", "min_gain=-0.99") + ",on_miss=trial"
    exact = f"{tried},bitwise=true"
    always = {"HPLACER_TRIAL_RULES": json.dumps({"alternates": True})}
    free = {"HPLACER_TRIAL_RULES": json.dumps({"share": 1000.0})}
    alone = _run(name, directory, HPLACER_DISABLE="1")
    again = _run(name, directory, HPLACER_DISABLE="1")
    _run(name, directory, HPLACER_OPTIONS=planned)
    switched = _run(name, directory, HPLACER_OPTIONS=tried, **always)
    to_the_bit = _run(name, directory, HPLACER_OPTIONS=exact, **always)
    trial = _run(name, directory, HPLACER_OPTIONS=tried, **free)
    return Found(
        name=name,
        left_out=switched.left_out,
        switched=switched.calls,
        tried=trial.calls,
        difference=max(_difference(run, alone) for run in (switched, trial)),
        is_exact=_difference(to_the_bit, alone) == 0 if _difference(again, alone) == 0 else None,
    )


def _run(name: str, directory: Path, **variables: str) -> Run:
    command = ["-m", "testbed.tried_steps", name] if name in TRIED_STEPS else [str(SCRIPTS / name)]
    done = subprocess.run(
        [sys.executable, "-m", "testbed.same_results", *command],
        cwd=directory,
        env=clean_environment(directory) | {"HPLACER_LOG": "info"} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    *results, told = results_of(done.stdout) or [{}]
    if "calls_with_plan" not in told:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    state = _STATE.search(done.stderr)
    return Run(
        results=results,
        errors=errors_of(done.stderr),
        returncode=done.returncode,
        calls=told["calls_with_plan"],
        left_out=state[1] if state else "",
    )


def _difference(run: Run, alone: Run) -> float:
    """The largest one, relative."""
    if (run.errors, run.returncode) != (alone.errors, alone.returncode):
        return math.inf
    return max(_differences(run.results, alone.results), default=0.0)


def _differences(found: Any, expected: Any) -> Iterator[float]:
    if isinstance(expected, float) and isinstance(found, float):
        largest = max(abs(expected), 1e-9)
        yield 0.0 if found == expected else abs(found - expected) / largest
    elif isinstance(expected, dict) and isinstance(found, dict) and found.keys() == expected.keys():
        yield from _differences(list(found.values()), list(expected.values()))
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        for one, other in zip(found, expected, strict=True):
            yield from _differences(one, other)
    else:
        yield 0.0 if found == expected else math.inf


# ---- the process ----


def main() -> None:
    """Runs the script with two CPU devices, and tells how many calls ran with a plan."""
    import atexit

    import tensorflow as tf

    from hplacer_optimizer import run
    from hplacer_optimizer.plugin.trials import function_calls

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    calls, original = 0, function_calls._run_under

    def run_under(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return original(*arguments)

    function_calls._run_under = run_under
    atexit.register(lambda: print(json.dumps({"calls_with_plan": calls}), flush=True))
    if os.environ.get("HPLACER_DISABLE"):
        os.environ.pop("HPLACER_OPTIONS", None)
    sys.path.insert(0, str(ROOT))
    run.main(sys.argv[1:])


if __name__ == "__main__":
    main()
