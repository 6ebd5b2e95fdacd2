"""A short run of what `make fuzz` does at length, without its sanitizers."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.fuzz.cases import case_file, run_case
from tests.processes import ROOT


def test_mutated_files_raise_nothing_but_typed_errors(tmp_path: Path) -> None:
    outcomes = Counter(run_case(0, index, tmp_path) for index in range(1500))
    # Else the mutations would test the JSON syntax, or nothing.
    assert outcomes["loaded"] > 150
    assert len(outcomes) > 120


def test_a_case_is_reproducible() -> None:
    assert [case_file(3, i) for i in range(20)] == [case_file(3, i) for i in range(20)]
    assert case_file(3, 0) != case_file(4, 0)


BROKEN_ENGINE = """
import ctypes, importlib.util, io, time

spec = importlib.util.spec_from_file_location(__name__, {path!r})
real = importlib.util.module_from_spec(spec)
spec.loader.exec_module(real)
globals().update(vars(real))

def read_problem(file):
    data = file.read()
    if data == {crash!r}:
        ctypes.string_at(0)
    if data == {hang!r}:
        time.sleep(60)
    if data == {wrong!r}:
        raise KeyError("untyped")
    return real.read_problem(io.BytesIO(data))
"""


def test_a_crash_a_hang_and_a_wrong_error_are_found(tmp_path: Path) -> None:
    files = {index: case_file(0, index) for index in range(30)}
    broken = [index for index, data in files.items() if data.startswith(b"{")][:3]
    engine, failures = tmp_path / "engine.py", tmp_path / "failures"
    crash, hang, wrong = (files[index] for index in broken)
    path = str(next((ROOT / "hplacer_optimizer").glob("_engine.*.so")))
    engine.write_text(BROKEN_ENGINE.format(path=path, crash=crash, hang=hang, wrong=wrong))
    command = [sys.executable, "-m", "tests.fuzz", "--count=30", "--jobs=1", "--limit-s=2"]
    command += [f"--engine={engine}", f"--failures={failures}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    assert "30 files" in run.stdout
    assert "3 failed" in run.stdout
    names = [f"seed0-case{index}.hplacer.json" for index in broken]
    assert {path.name for path in failures.glob("*.json")} == set(names)
    assert (failures / names[0]).read_bytes() == crash
    logs = [(failures / f"{name}.log").read_text() for name in names]
    assert "Segmentation fault" in logs[0]
    assert "Timeout" in logs[1]
    assert "KeyError: 'untyped'" in logs[2]
