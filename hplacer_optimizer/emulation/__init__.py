"""Emulated accelerators: a stand-in until the native part is here."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hplacer_optimizer.errors import EmulationError
from hplacer_optimizer.machines import Machine, load_machine, save_machine

VARIABLE = "HPLACER_EMULATION"


def enable(machine: Machine | str, *, compute: bool = True) -> None:
    os.environ.update(_variables(machine, Path(tempfile.mkdtemp(prefix="hplacer-"))))


@contextmanager
def environment(machine: Machine | str, *, compute: bool = True) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="hplacer-") as directory:
        yield _variables(machine, Path(directory))


def _variables(machine: Machine | str, directory: Path) -> dict[str, str]:
    path = directory / "machine.yaml"
    save_machine(load_machine(machine) if isinstance(machine, str) else machine, path)
    return {VARIABLE: str(path), "HPLACER_EMULATED_MACHINE": str(path)}


def is_on() -> bool:
    return bool(os.environ.get(VARIABLE))


def machine() -> Machine | None:
    return load_machine(os.environ[VARIABLE]) if is_on() else None


def now_ns() -> int:
    raise EmulationError("the emulated accelerators are not built")


def step_clock() -> Callable[[], float]:
    return time.perf_counter
