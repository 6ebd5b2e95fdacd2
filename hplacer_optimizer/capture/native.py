"""The native TensorFlow module: loads the one of the running release, or says what is needed.

Each TensorFlow release has a module of its own, `_tf_2_21` for 2.21; `_tf.pyi` has their types.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
from collections.abc import Iterable
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

from hplacer_optimizer.errors import EmulationError, NativeBuildError
from hplacer_optimizer.machines import DeviceKind

# --no-deps keeps the numpy that TensorFlow needs; pip's cache holds the wheel of the other build.
REBUILD = (
    "rebuild it beside this TensorFlow: `make build` in a source checkout, else `pip install "
    "--no-build-isolation --no-deps --force-reinstall --no-cache-dir hplacer-optimizer`"
)
_DISTRIBUTIONS = ("tensorflow-cpu", "tensorflow-cpu-aws", "tf-nightly-cpu", "intel-tensorflow")
_MARKER = re.compile(rb"HPLACER_TF_VERSION=([0-9A-Za-z.+-]+)")


def load() -> ModuleType:
    """Imports the module after TensorFlow, whose symbols it needs; a second call costs nothing.

    Raises NativeBuildError when there is none for the running TensorFlow, or no TensorFlow; the
    message names the releases that there are modules for, and the command that mends it.
    """
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise NativeBuildError(
            "TensorFlow is not installed, and only problem files can be read without it; run "
            "`pip install 'hplacer-optimizer[tf]'` (or [cpu])"
        ) from error

    try:
        return importlib.import_module(_module(tf.__version__))
    except ImportError as error:
        raise NativeBuildError(_explain(tf.__version__, error)) from error


def load_emulator() -> ModuleType:
    """The module of emulated devices, which TensorFlow has loaded; see emulation/.

    Raises EmulationError when this process emulates no devices.
    """
    if not os.environ.get("HPLACER_EMULATION"):
        raise EmulationError("no devices are emulated in this process; call `emulation.enable`")
    import tensorflow as tf

    return importlib.import_module(_module(tf.__version__, "_emulator"))


def emulator_file() -> Path:
    """The file of that module for the installed TensorFlow, found without importing that."""
    spec = importlib.util.find_spec("tensorflow")
    for name in _DISTRIBUTIONS if spec is not None else ():
        with contextlib.suppress(metadata.PackageNotFoundError):
            version = metadata.version(name)
            found = importlib.util.find_spec(_module(version, "_emulator"))
            if found is None or found.origin is None:
                raise NativeBuildError(
                    f"the native module that emulates devices is missing for TensorFlow {version}; "
                    f"{REBUILD}"
                )
            return Path(found.origin)
    raise NativeBuildError(
        "TensorFlow is not installed, and devices are emulated under it; run `pip install "
        "'hplacer-optimizer[cpu]'`"
    )


def machine_rates(kinds: Iterable[DeviceKind], device_kind: Iterable[int] = ()) -> Any:
    """The `MachineRates` of these kinds, and of devices that are indices into them."""
    rates = load().MachineRates()
    for kind in kinds:
        rates.add_kind(
            kind.name,
            kind.type,
            dict(kind.flops_per_s),
            kind.memory_bytes_per_s,
            kind.launch_overhead_ns,
            kind.executor_overhead_ns,
            kind.launches_ahead,
        )
    for index in device_kind:
        rates.add_device(index)
    return rates


def is_missing() -> bool:
    """Whether this installation has a module for no TensorFlow at all."""
    return not _files()


def built_for() -> list[str]:
    """The TensorFlow versions that there are modules for, as their files say; the oldest first."""
    found = []
    for file in _files():
        with contextlib.suppress(OSError):
            found += [version.decode() for version in _MARKER.findall(file.read_bytes())[:1]]
    return sorted(found, key=_release)


def _files() -> list[Path]:
    package = Path(__file__).parents[1]
    return [
        file
        for file in package.glob("_tf_*")
        if file.name.removeprefix(file.name.partition(".")[0]) in EXTENSION_SUFFIXES
    ]


def _release(version: str) -> tuple[int, ...]:
    """(2, 21) of "2.21.0-rc1"."""
    return tuple(int(part) for part in version.split(".")[:2])


def _module(version: str, name: str = "_tf") -> str:
    return f"hplacer_optimizer.{name}_" + "_".join(map(str, _release(version)))


def _explain(running: str, error: ImportError) -> str:
    versions = built_for()
    if not versions:
        return (
            f"the native TensorFlow module is missing (TensorFlow {running} is running); {REBUILD}"
        )
    reason = f" ({error})" if _release(running) in map(_release, versions) else ""
    return (
        "the native TensorFlow module cannot be loaded: built for TensorFlow "
        f"{', '.join(versions)}, running is TensorFlow {running}{reason}; {REBUILD}"
    )
