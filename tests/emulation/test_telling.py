"""What is told of emulated devices, and how scripts and commands ask for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hplacer_optimizer import emulation
from hplacer_optimizer.cli import main
from hplacer_optimizer.emulation.telling import announcement, passed
from hplacer_optimizer.errors import EmulationError
from hplacer_optimizer.machines import load_machine
from tests.processes import clean_environment


def test_the_announcement_names_the_gpus_and_the_machine() -> None:
    said = announcement(load_machine("8xa100"))
    assert said.startswith("hplacer: emulated GPUs: 8 x a100 (8xa100); times are virtual")
    assert "\n" not in said


def test_the_end_tells_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    monkeypatch.setattr(emulation, "now_ns", lambda: 1_234_000_000)
    assert passed(5.6) == (
        "hplacer: emulated GPUs: 1.23 s of virtual time passed, in 5.6 s of real time"
    )

    def stopped() -> int:
        raise EmulationError("the virtual clock has stopped")

    monkeypatch.setattr(emulation, "now_ns", stopped)
    assert "the virtual time is not known: the virtual clock has stopped" in passed(5.6)
    monkeypatch.delitem(sys.modules, "tensorflow")
    assert "TensorFlow was not imported" in passed(5.6)


@pytest.mark.parametrize("command", [["hplacer_optimizer", "run"], ["hplacer_optimizer.run"]])
def test_a_script_says_that_its_gpus_are_emulated(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\n"
        "from hplacer_optimizer import emulation\n"
        "print(emulation.machine().name, *sys.argv, flush=True)\n"
        "if not os.fork(): sys.exit(0)\n"
        "os.wait()\n"
        "assert os.path.exists(os.environ['HPLACER_EMULATION'])\n"
        "sys.exit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", *command, "--emulate", "8xv100", "train.py", "--emulate", "x"],
        cwd=tmp_path,
        env=clean_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (7, "8xv100 train.py --emulate x\n"), done.stderr
    first, last = done.stderr.splitlines()
    assert first == announcement(load_machine("8xv100"))
    assert last.startswith("hplacer: emulated GPUs: nothing ran on them")


def test_hplacer_run_takes_the_place_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def execv(_: str, command: list[str]) -> None:
        ran.append(command[1:])
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execv)
    for arguments in (
        ["train.py", "--json"],
        ["--emulate", "8xa100", "--options", "seed=1", "-m", "package.train", "x"],
    ):
        with pytest.raises(SystemExit):
            main(["run", *arguments])
    assert ran == [
        ["-m", "hplacer_optimizer.run", "train.py", "--json"],
        [
            *("-m", "hplacer_optimizer.run", "--emulate", "8xa100", "--options", "seed=1"),
            *("-m", "package.train", "x"),
        ],
    ]
