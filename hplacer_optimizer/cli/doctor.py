"""`hplacer doctor`: is this installation in order?"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hplacer_optimizer.cli.arguments import (
    FAILED,
    OK,
    add_command,
    add_json,
    add_store_options,
    open_store,
    version,
)
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.log import LEVELS

_PROBE_TIMEOUT_S = 120


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    doctor = add_command(
        commands, "doctor", _doctor, "check this installation", "hplacer doctor --json"
    )
    add_store_options(doctor)
    add_json(doctor)


@dataclass(frozen=True)
class Check:
    """One line of `hplacer doctor`; `remedy` is None when all is well."""

    name: str
    detail: str
    remedy: str | None = None


def _doctor(options: argparse.Namespace) -> int:
    checks = [
        Check("hplacer", f"{version()}, Python {platform.python_version()}, {_system()}"),
        *_check_imports(),
        _check_cache_directory(options),
        *_check_environment(),
    ]
    healthy = not any(check.remedy for check in checks)
    if options.json:
        print_json({"ok": healthy, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            print(f"{'failed' if check.remedy else 'ok':6}  {check.name}: {check.detail}")
            if check.remedy:
                print(f"        -> {check.remedy}")
    return OK if healthy else FAILED


def _check_imports() -> Iterable[Check]:
    """Imports in separate processes: a native module of another TensorFlow may crash."""
    rebuild = "rebuild the native modules: `make build`, or reinstall hplacer-optimizer"
    probes = (
        ("NumPy", "import numpy as m; print(m.__version__)", "pip install numpy"),
        ("native engine", "import hplacer_optimizer._engine", rebuild),
        (
            "TensorFlow",
            "import tensorflow as m; print(m.__version__)",
            "pip install 'hplacer-optimizer[tf]' (or [cpu])",
        ),
        (
            "native TensorFlow pass",  # compares its TensorFlow version with the installed one
            "import tensorflow, hplacer_optimizer._tf",
            rebuild + " beside this TensorFlow",
        ),
    )

    def check(probe: tuple[str, str, str]) -> Check:
        name, code, remedy = probe
        works, detail = _run_python(code)
        return Check(name, detail or "imports", None if works else remedy)

    with ThreadPoolExecutor(max_workers=len(probes)) as pool:
        return list(pool.map(check, probes))


def _run_python(code: str) -> tuple[bool, str]:
    """Whether `code` runs in a fresh interpreter, and the last line that it printed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_PROBE_TIMEOUT_S} seconds"
    if done.returncode < 0:
        return False, f"crashed with {signal.Signals(-done.returncode).name}"
    output = done.stderr if done.returncode else done.stdout
    return done.returncode == 0, (output.strip().splitlines() or [""])[-1]


def _check_cache_directory(options: argparse.Namespace) -> Check:
    name = "plan store"
    try:
        store = open_store(options)
        count = len(store.fingerprints())
    except HPlacerError as error:
        return Check(name, str(error), "choose another directory with --cache")
    detail = f"{store.directory}, {count} plans"
    if "://" in store.directory:
        return Check(name, detail)
    directory = existing = Path(store.directory).absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check(name, f"{detail}: {existing} is not writable", f"chmod u+rwx {existing}")
    if existing != directory:
        return Check(name, f"{detail} (is created when needed)")
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not options.trust_shared:
        return Check(name, f"{detail}: others can write (mode {mode:o})", f"chmod go-w {directory}")
    return Check(name, f"{detail}, mode {mode:o}")


def _check_environment() -> Iterable[Check]:
    """One check per HPLACER_* variable."""
    for name, value in sorted(os.environ.items()):
        remedy = None
        if name == "HPLACER_DISABLE" and value == "1":
            remedy = "no graph is planned: unset HPLACER_DISABLE"
        elif name == "HPLACER_LOG" and value.strip().lower() not in LEVELS:
            remedy = f"set it to one of {', '.join(LEVELS)}"
        if name.startswith("HPLACER_"):
            yield Check(name, value, remedy)


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"
