"""Whether trials change results: training alone, with switches at every call, and with real trials.

A script runs in processes of its own with two CPU devices, or with a GPU that is two:

    alone      without the optimizer
    planned    a random plan is made and stored, which spreads the ops
    switched   every call of a function runs on the other side than the one before
    exact      the same, with bitwise=True
    tried      with the real trial, which may cost any share of the run

`python -m testbed.same_results NAME DIRECTORY` imports TensorFlow and forks a process for each.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.divided_gpu import divide_gpu
from testbed.environment import clean_environment, two_cpus
from testbed.training_scripts import OPTIONS, ROUNDING, SCRIPTS, errors_of, results_of
from testbed.tried_steps import TRIED_STEPS

LIMIT_S = 300
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


def compare_in_process(name: str, directory: Path, *, gpu: str = "") -> Found:
    """Runs one of NAMES in all ways, on a GPU that CUDA knows by this number, if any."""
    done = subprocess.run(
        [sys.executable, "-m", "testbed.same_results", name, str(directory)],
        env=clean_environment(directory) | {"CUDA_VISIBLE_DEVICES": gpu},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def compare(name: str, directory: Path) -> Found:
    """The same, in a process that has imported TensorFlow and not used it."""
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
    """In a fork, which uses TensorFlow for the first time."""
    out, err = directory / "stdout", directory / "stderr"
    sys.stdout.flush()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            _be_script(name, directory, out, err, variables)
        os._exit(99)
    signal.alarm(LIMIT_S)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    results, told = results_of(out.read_text()), err.read_text()
    if not results or "calls_with_plan" not in results[-1]:
        raise RuntimeError(f"{name}: {told[-2000:]}")
    state = _STATE.search(told)
    return Run(
        results=results[:-1],
        errors=errors_of(told),
        returncode=os.waitstatus_to_exitcode(status),
        calls=results[-1]["calls_with_plan"],
        left_out=state[1] if state else "",
    )


def _be_script(
    name: str, directory: Path, out: Path, err: Path, variables: Mapping[str, str]
) -> None:
    """Does not return."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(directory)
    os.environ |= {"HPLACER_LOG": "info", **variables}
    from hplacer_optimizer import run
    from hplacer_optimizer.plugin.trials import function_calls

    if not divide_gpu():
        two_cpus()
    calls, original = 0, function_calls._run_under

    def run_under(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return original(*arguments)

    function_calls._run_under = run_under
    code = 0
    try:
        if name in TRIED_STEPS:
            run.main(["-m", "testbed.tried_steps", name])
        else:
            run.main([str(SCRIPTS / name)])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    print(json.dumps({"calls_with_plan": calls}), flush=True)
    sys.stderr.flush()
    os._exit(code)


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
    """Compares, and prints what was found as JSON."""
    import keras  # noqa: F401 (each fork would import it)
    import tensorflow  # noqa: F401

    print(json.dumps(vars(compare(sys.argv[1], Path(sys.argv[2])))))


if __name__ == "__main__":
    main()
