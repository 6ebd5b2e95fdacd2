"""Unmodified scripts on emulated GPUs: their results are those of the CPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from testbed.training_scripts import ROUNDING, SCRIPTS, results_of
from tests.processes import clean_environment, run_script
from tests.test_scripts import assert_alike

EMULATED = ("-m", "hplacer_optimizer.run", "--emulate", "2xa100")


def run(script: str, directory: Path, *launcher: str) -> tuple[list[Any], str]:
    """What a script printed as JSON, and its log, without a plan."""
    done = run_script(
        [*launcher, str(SCRIPTS / script)],
        cwd=directory,
        environment=clean_environment(directory) | {"HPLACER_DISABLE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return results_of(done.stdout), done.stderr


@pytest.mark.parametrize(
    "script", ["custom_loop.py", pytest.param("keras_convolutions.py", marks=pytest.mark.slow)]
)
def test_results_are_those_of_the_cpu(script: str, tmp_path: Path) -> None:
    alone, _ = run(script, tmp_path)
    emulated, log = run(script, tmp_path, *EMULATED)
    assert alone
    assert_alike(emulated, alone, ROUNDING)
    passed = re.search(r"emulated GPUs: ([\d.]+) \w+ of virtual time passed", log)
    assert passed is not None, log
    assert float(passed[1]) > 0
