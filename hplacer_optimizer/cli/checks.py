"""The checks of `hplacer doctor` that need no TensorFlow: plan store, GPUs and environment."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hplacer_optimizer.errors import HPlacerError, OptionError
from hplacer_optimizer.log import LEVELS
from hplacer_optimizer.machines import nvidia
from hplacer_optimizer.options import Options
from hplacer_optimizer.plans.store import MAX_BYTES, PlanStore
from hplacer_optimizer.plans.store.layer import Layer
from hplacer_optimizer.support.formats import format_bytes
from hplacer_optimizer.support.switched_off import is_switched_off

_FREE = 0.9  # of a GPU's memory: the driver itself takes some
_AUTO_JIT = re.compile(r"--tf_xla_auto_jit=(?!0\b|-)")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of `hplacer doctor`.

    `remedy` is None when all is well; a `note` is no fault, but may not be what was wanted.
    """

    name: str
    detail: str
    remedy: str | None = None
    note: bool = False

    @property
    def status(self) -> str:
        if self.remedy is None:
            return "ok"
        return "note" if self.note else "failed"


# ---- plan store ----


def store_checks(store: PlanStore) -> Iterator[Check]:
    """One check for each directory of the store, all of its plans read."""
    for layer in store.layers:
        try:
            yield _check_layer(layer)
        except HPlacerError as error:
            detail, _, remedy = str(error).rpartition("; ")
            yield Check(name="plan store", detail=detail, remedy=remedy)


def _check_layer(layer: Layer) -> Check:
    name, missing = "plan store", _missing_parent(layer)
    if missing is not None:
        if not missing.is_dir() or not os.access(missing, os.W_OK | os.X_OK):
            return Check(
                name=name,
                detail=f"{layer.address}: {missing} is not writable",
                remedy=f"chmod u+rwx {missing}, or choose another directory",
            )
        return Check(name=name, detail=f"{layer.address}, 0 plans (is created when needed)")
    layer.check_trust()
    layer.check_writable()
    total = layer.total_bytes()
    entries = list(layer.entries(verify=False))
    detail = f"{layer.address}, {len(entries)} plans, {format_bytes(total)}"
    errors = [entry.error for entry in entries if entry.error]
    if errors:
        newer = all("made by a newer version" in error for error in errors)
        prune = f"hplacer cache prune --damaged --cache '{layer.address}'"
        return Check(
            name=name,
            detail=f"{detail}, {len(errors)} unreadable: {errors[0]}",
            remedy="upgrade hplacer-optimizer" if newer else prune,
        )
    if total > MAX_BYTES and layer.is_local:
        return Check(
            name=name,
            detail=f"{detail}, more than writers keep by default ({format_bytes(MAX_BYTES)})",
            remedy=f"hplacer cache prune --cache '{layer.address}', or raise cache_max_bytes",
            note=True,
        )
    return Check(name=name, detail=f"{detail}, readable and writable")


def _missing_parent(layer: Layer) -> Path | None:
    """What exists of the path of a local directory that does not; None if it does."""
    directory = existing = Path(layer.address).absolute()
    if not layer.is_local or directory.exists():
        return None
    while not existing.exists():
        existing = existing.parent
    return existing


# ---- GPUs ----


def gpu_checks(tensorflow_gpus: int, *, tf32: bool) -> Iterator[Check]:
    """What the driver tells of NVIDIA's GPUs, and whether a plan can use them.

    Args:
        tensorflow_gpus: how many of them TensorFlow finds.
        tf32: whether TensorFlow computes products of float32 in TF32.
    """
    found = nvidia.gpus()
    if not found:
        return
    detail = ", ".join(
        f"{gpu.model} with {gpu.free_mib / 1024:.1f} of {gpu.memory_mib / 1024:.1f} GiB free"
        for gpu in found
    )
    if not tensorflow_gpus:
        yield Check(
            name="GPUs",
            detail=f"{detail}; TensorFlow finds none of them",
            remedy="install the package tensorflow with CUDA's libraries (pip install "
            "'tensorflow[and-cuda]'), and look at CUDA_VISIBLE_DEVICES",
            note=True,
        )
        return
    busy = [gpu for gpu in found if gpu.free_mib < gpu.memory_mib * _FREE]
    yield Check(
        name="GPUs",
        detail=detail,
        remedy="another process holds memory there: plans count on what is free" if busy else None,
        note=bool(busy),
    )
    if pairs := nvidia.ways():
        paths = Counter("NVLink" if way.startswith("NV") else "PCIe" for way in pairs.values())
        told = ", ".join(f"{count} pairs by {way}" for way, count in sorted(paths.items()))
        yield Check(name="links of GPUs", detail=told)
    if tf32:
        yield Check(
            name="TF32",
            detail="on: GPUs since Ampere compute products of float32 faster and with 10 bits, and "
            "plans count on that",
        )
    if tensorflow_gpus == 1:
        yield Check(
            name="gain",
            detail="a plan can only move ops between this GPU and the CPU, which is rarely faster",
            remedy="try several emulated GPUs: hplacer try --emulate 4xa100 train.py (with the "
            "package tensorflow-cpu)",
            note=True,
        )


# ---- environment ----


def environment_checks(environment: Mapping[str, str]) -> Iterator[Check]:
    """One check per variable of this package, and what hides a step from the placement."""
    for name, value in sorted(environment.items()):
        if name.startswith("HPLACER_"):
            yield Check(name=name, detail=value, remedy=_remedy_of(name, value))
    yield _check_xla(environment)


def _remedy_of(name: str, value: str) -> str | None:
    if name == "HPLACER_DISABLE" and is_switched_off({name: value}):
        return "no graph is planned: unset HPLACER_DISABLE"
    if name == "HPLACER_LOG" and value.strip().lower() not in LEVELS:
        return f"set it to one of {', '.join(LEVELS)}"
    if name == "HPLACER_OPTIONS":
        try:
            Options.from_environment(value)
        except OptionError as error:
            return str(error)
    return None


def _check_xla(environment: Mapping[str, str]) -> Check:
    name = "XLA"
    if environment.get("TF_FUNCTION_JIT_COMPILE_DEFAULT") == "1":
        return Check(
            name=name,
            detail="TF_FUNCTION_JIT_COMPILE_DEFAULT=1: every tf.function becomes one op, which "
            "cannot be spread over devices",
            remedy="unset TF_FUNCTION_JIT_COMPILE_DEFAULT",
        )
    flags = environment.get("TF_XLA_FLAGS", "")
    if _AUTO_JIT.search(flags):
        return Check(
            name=name,
            detail=f"TF_XLA_FLAGS={flags}: XLA compiles clusters of ops. A plan would cut "
            "these, so training keeps TensorFlow's placement of every graph",
            remedy="remove --tf_xla_auto_jit from TF_XLA_FLAGS to have graphs planned",
            note=True,
        )
    return Check(
        name=name,
        detail="no environment variable makes XLA compile steps; a script does with "
        "jit_compile=True, and Keras by default if there is a GPU",
    )
