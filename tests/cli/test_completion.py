"""`hplacer completion`, as a shell uses it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hplacer_optimizer.cli import main

SHELLS = ("bash", "zsh", "fish")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_reads_what_is_printed(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    assert "--planner" in text
    assert "local_search" in text
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hplacer expl", "explain"),
        ("hplacer cache pr", "prune"),
        ("hplacer plan --bud", "--budget"),
        ("hplacer plan --planner local_", "local_search"),
        ("hplacer plan --machine 8xv", "8xv100"),
        ("hplacer machine show 8xv", "8xv100"),
        ("hplacer machine show 4xa100-", "4xa100-80gb"),
    ],
)
def test_bash_completes(
    words: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script").write_text(script("bash", capsys))
    code = (
        f"source {tmp_path / 'script'}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1))"
        '; $(complete -p hplacer | sed "s/.*-F \\([^ ]*\\).*/\\1/"); echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == [expected], done.stderr


def test_without_the_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install shtab" in capsys.readouterr().err
