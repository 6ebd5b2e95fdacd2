"""A copy of the working tree in which things are built and tested that must not be left here."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.processes import ROOT


class ScratchCopy:
    """What git tracks or would add, in build/`name`, which is made anew."""

    def __init__(self, name: str) -> None:
        self.directory = ROOT / "build" / name
        shutil.rmtree(self.directory, ignore_errors=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
        for file in filter(None, done.stdout.split("\0")):
            if (ROOT / file).is_file():  # else it was removed since the last commit
                target = self.directory / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, target)
        (self.directory / "build").mkdir()
        (self.directory / "build" / "doctest").symlink_to(ROOT / "build" / "doctest")

    def run(
        self,
        command: Sequence[str | Path],
        *,
        stdout: int | IO[str] = subprocess.PIPE,
        limit_s: float | None = None,
        check: bool = False,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in the copy, whose package Python imports; kills what it leaves behind.

        Raises subprocess.TimeoutExpired; SystemExit if it fails, with `check`.
        """
        process = subprocess.Popen(
            command,
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(self.directory), **environment},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if check and process.returncode:
            raise SystemExit(f"{command} failed:\n{output}")
        return subprocess.CompletedProcess(command, process.returncode, output)

    def build(self, **environment: str) -> None:
        """Builds the native modules, as `make build` does."""
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        self.run(command, check=True, **{"HPLACER_WERROR": "1", **environment})

    def run_cpp_tests(
        self, folder: str, limit_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The C++ tests of a folder of tests/cc ("*": of all), linked with what `build` made.

        Raises subprocess.TimeoutExpired.
        """
        (cache,) = self.directory.glob("build/native/*/CMakeCache.txt")
        cmake = Path(sys.executable).parent / "cmake"
        self.run([cmake, "--build", cache.parent, "--target", "cc_test"], check=True)
        program = cache.parent / "cc_test"
        return self.run([program, f"--source-file=*tests/cc/{folder}*"], limit_s=limit_s)
