"""The command `hplacer` in this process: its exit code, and what it prints."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

from hplacer_optimizer.cli import main
from tests.processes import ROOT, clean_environment, run_script


def hplacer(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs it without options of the optimizer, in an environment with these variables."""
    kept = {key: value for key, value in os.environ.items() if "HPLACER_" not in key}
    with (
        mock.patch.dict(os.environ, {**kept, "COLUMNS": "200", **environment}, clear=True),
        contextlib.redirect_stdout(io.StringIO()) as output,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        code = main([*map(str, arguments)])
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def hplacer_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own, for what measures or imports TensorFlow."""
    command = ["-m", "hplacer_optimizer", *map(str, arguments)]
    return run_script(command, cwd=ROOT, environment=clean_environment(Path()))


def document_of(*arguments: object, code: int = 0) -> Any:
    """What it prints with --json."""
    done = hplacer(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def error_of(*arguments: object, code: int = 1) -> str:
    """The one line on stderr of a command that fails."""
    done = hplacer(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("hplacer: error: ")
    return line
