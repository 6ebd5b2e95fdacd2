"""The `exact` planner, whose cases need a process without TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ortools")

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)


def test_the_cases_of_exact_cases() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/exact_cases.py")
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_beside_tensorflow_it_refuses() -> None:
    pytest.importorskip("tensorflow")
    program = (
        "import tensorflow\n"
        "from hplacer_optimizer.errors import PlannerUnavailableError\n"
        "from hplacer_optimizer.planners import PLANNERS\n"
        "from hplacer_optimizer.problem.files import load_problem_file\n"
        "problem = load_problem_file('tests/golden/two_towers.hplacer.json')\n"
        "try:\n"
        "    PLANNERS['exact'].plan(problem).placement\n"
        "except PlannerUnavailableError as error:\n"
        "    print(error)\n"
    )
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    assert "cannot run in a process that has loaded TensorFlow" in done.stdout
