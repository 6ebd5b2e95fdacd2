"""Copies of the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hplacer_optimizer.errors import MeasuringError
from hplacer_optimizer.scripts import working_copy
from hplacer_optimizer.scripts.working_copy import private_copy
from tests.processes import ROOT


def test_a_copy_has_what_a_script_needs(tmp_path: Path) -> None:
    here = tmp_path / "in" / "here"
    (here / "data").mkdir(parents=True)
    (here / "data" / "a.txt").write_text("a")
    (here / "venv").mkdir()
    (here / "venv" / "pyvenv.cfg").write_text("")
    (here / "__pycache__").mkdir()
    (tmp_path / "in" / "outside.txt").write_text("outside")
    (tmp_path / "above.txt").write_text("above")
    (here / "relative").symlink_to("../outside.txt")
    (here / "inner").symlink_to("data/a.txt")
    os.mkfifo(here / "pipe")
    with private_copy(here) as copy:
        assert copy.name == "here"
        assert sorted(path.name for path in copy.iterdir()) == ["data", "inner", "relative"]
        assert (copy / "relative").read_text() == "outside"
        assert (copy / ".." / "outside.txt").read_text() == "outside"
        assert (copy / ".." / ".." / "above.txt").read_text() == "above"
        (copy / "inner").write_text("changed")
        assert (copy / "data" / "a.txt").read_text() == "changed"
    assert (here / "data" / "a.txt").read_text() == "a"
    assert not copy.exists()


def test_a_directory_may_be_too_large_for_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_bytes(b"x" * 2_000)
    monkeypatch.setattr(working_copy, "MAX_COPY_BYTES", 1_000)
    with (
        pytest.raises(MeasuringError, match=r"holds more than .*--in-place"),
        private_copy(tmp_path),
    ):
        pass


CLOSED = """
import sys
from pathlib import Path
from hplacer_optimizer.errors import MeasuringError
from hplacer_optimizer.scripts.working_copy import private_copy
try:
    with private_copy(Path(sys.argv[1])):
        pass
except MeasuringError as error:
    print(error)
"""


def test_what_cannot_be_read_cannot_be_copied(tmp_path: Path) -> None:
    """As in `/`, where containers start: not even root may look into all of /proc there."""
    unprivileged = ["unshare", "--user", "--map-user=12345"]
    if subprocess.run([*unprivileged, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    command = [*unprivileged, sys.executable, "-c", CLOSED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith(f"{closed}: cannot be copied: ")
    assert "--in-place" in done.stdout
