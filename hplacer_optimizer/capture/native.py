"""The native TensorFlow module `_tf`: loads it, or says which build is needed."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from hplacer_optimizer.errors import NativeBuildError
from hplacer_optimizer.machines import DeviceKind

MODULE = "hplacer_optimizer._tf"
# --no-deps keeps the numpy that TensorFlow needs; pip's cache holds the wheel of the other build.
REBUILD = (
    "rebuild it beside this TensorFlow: `make build` in a source checkout, else `pip install "
    "--no-build-isolation --no-deps --force-reinstall --no-cache-dir hplacer-optimizer`"
)
_MARKER = re.compile(rb"HPLACER_TF_VERSION=([0-9A-Za-z.+-]+)")


def load() -> ModuleType:
    """Imports `_tf` after TensorFlow, whose symbols it needs; a second call costs nothing.

    Raises NativeBuildError when `_tf` is missing or was built for another TensorFlow; the message
    names both versions and the command that rebuilds.
    """
    import tensorflow as tf

    try:
        return importlib.import_module(MODULE)
    except ImportError as error:
        raise NativeBuildError(_explain(tf.__version__, error)) from error


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
        )
    for index in device_kind:
        rates.add_device(index)
    return rates


def is_missing() -> bool:
    """Whether this installation has no `_tf` at all."""
    return importlib.util.find_spec(MODULE) is None


def built_for() -> str | None:
    """The TensorFlow version embedded in the file of `_tf`; None if it has none, or no file."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        return None
    try:
        found = _MARKER.search(Path(spec.origin).read_bytes())
    except OSError:
        return None
    return found[1].decode() if found else None


def _explain(running: str, error: ImportError) -> str:
    if is_missing():
        return f"the native module {MODULE} is missing (TensorFlow {running} is running); {REBUILD}"
    version = built_for() or "an unknown version"
    reason = f" ({error})" if version == running else ""
    return (
        f"the native module {MODULE} cannot be loaded: built for TensorFlow {version}, "
        f"running is TensorFlow {running}{reason}; {REBUILD}"
    )
