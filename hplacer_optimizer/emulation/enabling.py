"""Emulated devices, switched on for this process or for a child."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from hplacer_optimizer.capture import gpu_kernels, native
from hplacer_optimizer.emulation import configuration, keras
from hplacer_optimizer.errors import EmulationError
from hplacer_optimizer.machines import Machine, load_machine, save_machine
from hplacer_optimizer.machines.emulated import VARIABLE as MACHINE_VARIABLE
from hplacer_optimizer.machines.emulated import emulated_machine
from hplacer_optimizer.machines.host import tensorflow_threads

VARIABLE = "HPLACER_EMULATION"  # names the file that the native part reads
_LIBRARY_VARIABLE = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"  # TensorFlow loads what it names
_LIMIT_VARIABLE = "HPLACER_EMULATION_LIMIT_S"
_SETTINGS = {
    # Products of numpy and TensorFlow would wait for each other by spinning.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_LONGEST_LIMIT_S = 86_400.0


def enable(machine: Machine | str | os.PathLike[str], *, compute: bool = True) -> None:
    """Emulates the GPUs of a machine in this process, and in those that it starts from now on.

    Before TensorFlow makes its devices, which it does when they are first used or listed.

    Args:
        machine: one host's, or the name or file of one, such as "4xa100".
        compute: False: kernels on real numbers only allocate what they would write. Large models
            then run in seconds and little memory, in the same virtual time; the numbers are void.

    Raises:
        EmulationError: TensorFlow has its devices already, is a build with GPU kernels, or this
            system does not tell what threads wait for.
        MachineError: there is no such machine, or it cannot be emulated.

    Example:
        >>> from hplacer_optimizer import emulation
        >>> emulation.is_on()
        False
    """
    wanted = machine if isinstance(machine, Machine) else load_machine(machine)
    if is_on():
        if emulated_machine() == wanted:
            return
        raise EmulationError("this process emulates another machine already; start a new one")
    if (tf := sys.modules.get("tensorflow")) is not None:
        from tensorflow.python.eager import context

        if context.context()._context_handle is not None:
            raise EmulationError(
                "TensorFlow has made its devices already; call `emulation.enable` before they are "
                "used or listed"
            )
    directory = tempfile.mkdtemp(prefix="hplacer-emulation-")
    atexit.register(_remove, directory, os.getpid())
    variables = _variables(wanted, Path(directory), compute)
    os.environ.update(variables)
    if tf is not None:
        from tensorflow.python.framework import load_library

        load_library.load_pluggable_device_library(variables[_LIBRARY_VARIABLE])
    keras.keep_to_known_kernels()


def _remove(directory: str, owner: int) -> None:
    if os.getpid() == owner:  # not a fork
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def environment(
    machine: Machine | str | os.PathLike[str], *, compute: bool = True
) -> Iterator[dict[str, str]]:
    """The variables that make a child process emulate a machine, for as long as the block lasts.

    Takes and raises what `enable` does.

    Example:
        >>> from hplacer_optimizer import emulation
        >>> with emulation.environment("2xa100") as variables:
        ...     sorted(variables)[:2]
        ['HPLACER_EMULATED_MACHINE', 'HPLACER_EMULATION']
    """
    wanted = machine if isinstance(machine, Machine) else load_machine(machine)
    with tempfile.TemporaryDirectory(prefix="hplacer-emulation-") as directory:
        yield _variables(wanted, Path(directory), compute)


def is_on() -> bool:
    """Whether this process's GPUs are emulated."""
    return bool(os.environ.get(VARIABLE))


def machine() -> Machine | None:
    """The machine whose GPUs are emulated here; None if none are."""
    return emulated_machine() if is_on() else None


def _variables(machine: Machine, directory: Path, compute: bool) -> dict[str, str]:
    library = _library()
    description, document = directory / "machine.yaml", directory / "machine.json"
    # A launch holds one of them for its virtual time.
    threads = tensorflow_threads()[0] or machine.inter_op_threads
    save_machine(replace(machine, inter_op_threads=threads), description)
    document.write_text(
        configuration.text(machine, compute, _limit_s(), gpu_kernels.path()), encoding="utf-8"
    )
    settings = {name: os.environ.get(name, value) for name, value in _SETTINGS.items()}
    return settings | {
        "TF_NUM_INTEROP_THREADS": str(threads),
        VARIABLE: str(document),
        MACHINE_VARIABLE: str(description),
        _LIBRARY_VARIABLE: str(library),
    }


def _limit_s() -> float:
    text = os.environ.get(_LIMIT_VARIABLE, "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1.0 <= seconds <= _LONGEST_LIMIT_S:
        raise EmulationError(f"{_LIMIT_VARIABLE}: {text!r} is no number of seconds from 1 to 86400")
    return seconds


def _library() -> Path:
    """The native module for the installed TensorFlow, found without importing that."""
    if not os.access(f"/proc/self/task/{os.getpid()}/syscall", os.R_OK):
        raise EmulationError(
            "this system does not tell what threads wait for (/proc/self/task/*/syscall), which "
            "the emulated clock needs"
        )
    for distribution in ("tensorflow", "tensorflow-rocm"):
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
        raise EmulationError(
            f"the package {distribution} {version} has GPU kernels of its own; GPUs are emulated "
            f"under the package tensorflow-cpu: install that instead, in an environment of its own"
        )
    return native.emulator_file()
