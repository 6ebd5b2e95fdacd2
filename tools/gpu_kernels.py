"""Writes the table of GPU kernels that a TensorFlow built for CPUs lacks.

    python tools/gpu_kernels.py dump gpu.pb       in an environment with the package `tensorflow`
    python tools/gpu_kernels.py dump cpu.pb       in one with `tensorflow-cpu` of that version
    python tools/gpu_kernels.py table gpu.pb cpu.pb hplacer_optimizer/capture/gpu_kernels.json

The GPU build registers its kernels at import, on a machine without GPUs or CUDA as well. The format
of the table is described in hplacer_optimizer/capture/gpu_kernels.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

VALUES = {"type": "t", "s": "s", "b": "b", "i": "i"}  # of AttrValue.ListValue, by table suffix
DEVICE_TYPES = ("DEFAULT", "GPU")


def dump(path: Path) -> None:
    """Writes this TensorFlow's registered kernels and its version."""
    import tensorflow as tf
    from tensorflow.python.framework import kernels

    path.write_bytes(kernels.get_all_registered_kernels().SerializeToString())
    path.with_suffix(".version").write_text(tf.__version__)


def read(path: Path) -> dict[str, Any]:
    """The kernels for GPUs, by serialised definition."""
    from tensorflow.core.framework import kernel_def_pb2

    kernels = kernel_def_pb2.KernelList.FromString(path.read_bytes()).kernel
    return {
        kernel.SerializeToString(deterministic=True).hex(): kernel
        for kernel in kernels
        if kernel.device_type in DEVICE_TYPES
    }


def columns(kernel: Any) -> list[str]:
    """Names of the constrained attributes, each with the kind of its values."""
    names = []
    for constraint in kernel.constraint:
        used = [field.name for field, _ in constraint.allowed_values.list.ListFields()]
        assert len(used) == 1, f"{kernel.op}: constraint {constraint}"
        names.append(f"{constraint.name}:{VALUES[used[0]]}")
    return names


def row(kernel: Any) -> list[list[Any]]:
    """The allowed values of each constrained attribute."""
    from tensorflow.core.framework import types_pb2

    cells = []
    for constraint in kernel.constraint:
        ((field, values),) = constraint.allowed_values.list.ListFields()
        if field.name == "type":
            values = [types_pb2.DataType.Name(value).removeprefix("DT_") for value in values]
        elif field.name == "s":
            values = [value.decode() for value in values]
        cells.append(list(values))
    return cells


def table(kernels: list[Any]) -> dict[str, list[dict[str, Any]]]:
    """By op: groups of kernels that differ in the values of their constraints only."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for kernel in kernels:
        group = {
            "device": kernel.device_type,
            "host": sorted(kernel.host_memory_arg),
            "label": kernel.label,
            "priority": kernel.priority,
            "attrs": columns(kernel),
        }
        group = {key: value for key, value in group.items() if value or key == "attrs"}
        key = json.dumps(group, sort_keys=True)
        groups.setdefault(kernel.op, {}).setdefault(key, group | {"rows": []})
        groups[kernel.op][key]["rows"].append(row(kernel))
    for named in groups.values():
        for group in named.values():
            group["rows"].sort(key=json.dumps)
    return {op: [named[key] for key in sorted(named)] for op, named in sorted(groups.items())}


def main(arguments: list[str]) -> None:
    """Runs one of the commands above."""
    if arguments[0] == "dump":
        return dump(Path(arguments[1]))
    gpu, cpu, output = map(Path, arguments[1:])
    version = gpu.with_suffix(".version").read_text()
    assert version == cpu.with_suffix(".version").read_text(), "two versions of TensorFlow"
    built = read(gpu)
    known = read(cpu)
    missing = [kernel for key, kernel in built.items() if key not in known]
    lines = [f"{json.dumps(op)}: {json.dumps(rows)}" for op, rows in table(missing).items()]
    head = f'{{"tensorflow": {json.dumps(version)}, "kernels": {{\n'
    output.write_text(head + ",\n".join(lines) + "\n}}\n")
    print(f"{len(missing)} kernels of {len(lines)} ops, {output.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
