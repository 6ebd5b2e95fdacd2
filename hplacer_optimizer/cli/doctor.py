"""`hplacer doctor`: is this installation in order?"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
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
from hplacer_optimizer.cli.checks import Check, environment_checks, gpu_checks, store_checks
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.sample_session import MARK
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.errors import HPlacerError

_PROBE_TIMEOUT_S = 120
_SAMPLE = "hplacer_optimizer.cli.sample_session"
_PASS = "native TensorFlow pass"
_REBUILD = "rebuild the native modules: `make build`, or reinstall hplacer-optimizer"
_PROBES = (
    ("NumPy", "import numpy as m; print(m.__version__)", "pip install numpy"),
    ("native engine", "import hplacer_optimizer._engine", _REBUILD),
)
# For installations in which the sample session, which needs all of them, does not run.
_TENSORFLOW_PROBES = (
    (
        "TensorFlow",
        "import tensorflow as m; print(m.__version__)",
        "pip install 'hplacer-optimizer[tf]' (or [cpu])",
    ),
    (
        _PASS,  # compares its TensorFlow version with the installed one
        "from hplacer_optimizer.capture import native\n"
        "native.load(); print('built for TensorFlow', ', '.join(native.built_for()))",
        f"{_REBUILD} beside this TensorFlow",
    ),
)


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    doctor = add_command(
        commands, "doctor", _doctor, "check this installation", "hplacer doctor --json"
    )
    add_store_options(doctor)
    add_json(doctor)


def _doctor(options: argparse.Namespace) -> int:
    system = f"{platform.system()} {platform.machine()}"
    python = platform.python_version()
    checks = [Check(name="hplacer", detail=f"{version()}, Python {python}, {system}")]
    with waiting("planning and running a small graph"):
        checks += [*_probe_all(), *_check_store(options), *environment_checks(os.environ)]
    return _report(checks, as_json=options.json)


def _report(checks: Sequence[Check], *, as_json: bool) -> int:
    healthy = all(check.status != "failed" for check in checks)
    if as_json:
        documents = [{**asdict(check), "status": check.status} for check in checks]
        print_json({"ok": healthy, "checks": documents})
    else:
        for check in checks:
            print(f"{check.status:6}  {check.name}: {check.detail}")
            if check.remedy:
                print(f"        -> {check.remedy}")
    return OK if healthy else FAILED


def _check_store(options: argparse.Namespace) -> list[Check]:
    try:
        return [*store_checks(open_store(options))]
    except HPlacerError as error:
        remedy = "choose another directory with --cache"
        return [Check(name="plan store", detail=str(error), remedy=remedy)]


def _probe_all() -> list[Check]:
    """Imports in separate processes: a native module of another TensorFlow may crash."""
    with ThreadPoolExecutor() as pool:
        own = pool.map(_probe, _PROBES)
        works, line = pool.submit(_run_python, f"from {_SAMPLE} import main; main()").result()
        if works and line.startswith(MARK):
            return [*own, *_read_sample(json.loads(line.removeprefix(MARK)))]
        remedy = "see the lines above; if all is well there, report it"
        sample = Check(name="sample session", detail=f"did not run: {line}", remedy=remedy)
        return [*own, *pool.map(_probe, _TENSORFLOW_PROBES), sample]


def _probe(probe: tuple[str, str, str]) -> Check:
    name, code, remedy = probe
    works, detail = _run_python(code)
    return Check(name=name, detail=detail or "imports", remedy=None if works else remedy)


def _read_sample(found: dict[str, Any]) -> Iterator[Check]:
    """What the process of the sample session found: TensorFlow, devices, its own placement."""
    yield Check(name="TensorFlow", detail=found["tensorflow"])
    yield Check(name=_PASS, detail=f"built for TensorFlow {found['built_for']}")
    name = "sample session"
    devices = [device.removeprefix("/physical_device:") for device in found["devices"]]
    one = len(devices) == 1
    yield Check(
        name="devices",
        detail=", ".join(devices),
        remedy="with one device there is nothing to choose: plan for another machine with "
        "--machine, or see that TensorFlow finds this one's GPUs"
        if one
        else None,
        note=one,
    )
    yield from gpu_checks(sum("GPU" in device for device in devices), tf32=found["tf32"])
    placed = f"{found['ops']} ops, {found['placed']} of their nodes placed on two CPU devices"
    if found["outcome"] != "planned" or not found["placed"] or not found["checked"]:
        reason = found["reason"] or "TensorFlow did not take the plan over"
        remedy = "see the reason; if TensorFlow is a supported version, report it"
        yield Check(name=name, detail=f"{found['outcome']}: {reason}", remedy=remedy)
    elif found["differences"]:
        node, planned, actual = found["differences"][0]
        yield Check(
            name=name,
            detail=f"{placed}, but {node} is on {actual} instead of {planned}",
            remedy="another optimizer or pass moves ops: report which one is loaded",
        )
    else:
        yield Check(name=name, detail=f"{placed}, and they ran there")


def _run_python(code: str) -> tuple[bool, str]:
    """Whether `code` runs in a fresh interpreter, and the last line that it printed."""
    # Without our variables: what they switch off or on is checked by itself.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HPLACER_")}
    environment = kept | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # beside what else uses the GPUs
    }
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
