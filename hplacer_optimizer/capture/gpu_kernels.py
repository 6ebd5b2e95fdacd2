"""GPU kernels for a TensorFlow that has none: placeholders that can be looked up, but not run.

Which ops may go to a GPU is the kernel registry's knowledge. The table beside this module holds the
registrations that the GPU build of TensorFlow has and the CPU build lacks (`tools/gpu_kernels.py`
writes it). Per op it lists groups of kernels: `device` type, arguments in `host` memory, `label`,
`priority`, the constrained `attrs` with the kind of their values (t: data type, s: string, b:
boolean, i: integer) and, one row per kernel, the allowed values of each.

For processes that capture a graph and then end: nothing here can be undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from hplacer_optimizer.capture import native

_FIELDS = {"t": "type", "s": "s", "b": "b", "i": "i"}  # of AttrValue.ListValue
_PROBE = "MatMul"  # has a GPU kernel in every GPU build, and in no CPU build


def ensure_registered() -> str | None:
    """Registers the placeholders unless this TensorFlow has GPU kernels of its own.

    Returns the version of the TensorFlow whose kernels were taken, or None. Left out are ops,
    attributes and types that this TensorFlow does not know, and kernels that overlap a registered
    one.
    """
    from tensorflow.core.framework import kernel_def_pb2
    from tensorflow.python.framework import kernels

    tf_module = native.load()
    registered: dict[tuple[str, str, str], list[Any]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        key = (kernel.op, kernel.device_type, kernel.label)
        registered.setdefault(key, []).append(kernel)
    if (_PROBE, "GPU", "") in registered:
        return None
    text = resources.files(__package__).joinpath("gpu_kernels.json").read_text(encoding="ascii")
    table = json.loads(text)
    chosen = kernel_def_pb2.KernelList()
    for kernel in _kernels(table["kernels"]):
        known = registered.get((kernel.op, kernel.device_type, kernel.label), ())
        if _is_known_op(kernel) and not any(_overlap(kernel, other) for other in known):
            chosen.kernel.append(kernel)
    tf_module.register_placeholder_kernels(chosen.SerializeToString())
    return str(table["tensorflow"])


def _kernels(table: dict[str, list[dict[str, Any]]]) -> Iterator[Any]:
    """The kernels of the table whose types this TensorFlow knows."""
    from tensorflow.core.framework import kernel_def_pb2, types_pb2

    types = types_pb2.DataType
    known = {*types.keys()}
    for op, groups in table.items():
        for group in groups:
            for row in group["rows"]:
                if not _type_names(group["attrs"], row) <= known:
                    continue
                kernel = kernel_def_pb2.KernelDef(
                    op=op,
                    device_type=group["device"],
                    host_memory_arg=group.get("host", ()),
                    label=group.get("label", ""),
                    priority=group.get("priority", 0),
                )
                for column, values in zip(group["attrs"], row, strict=True):
                    name, kind = column.rsplit(":", 1)
                    constraint = kernel.constraint.add(name=name)
                    if kind == "t":
                        values = [types.Value(f"DT_{value}") for value in values]
                    elif kind == "s":
                        values = [value.encode() for value in values]
                    getattr(constraint.allowed_values.list, _FIELDS[kind]).extend(values)
                yield kernel


def _type_names(columns: Sequence[str], row: Sequence[Any]) -> set[str]:
    """The types in a row of the table, as TensorFlow names them."""
    return {
        f"DT_{value}"
        for column, values in zip(columns, row, strict=True)
        if column.endswith(":t")
        for value in values
    }


def _is_known_op(kernel: Any) -> bool:
    from tensorflow.python.framework import op_def_registry

    op = op_def_registry.get(kernel.op)
    if op is None:
        return False
    attributes = {attribute.name for attribute in op.attr}
    arguments = {argument.name for argument in [*op.input_arg, *op.output_arg]}
    constrained = {constraint.name for constraint in kernel.constraint}
    return constrained <= attributes and set(kernel.host_memory_arg) <= arguments


def _overlap(one: Any, other: Any) -> bool:
    """Whether some node could match both, which TensorFlow refuses when it looks kernels up."""
    mine, theirs = _allowed(one), _allowed(other)
    return all(mine[name] & theirs[name] for name in mine.keys() & theirs.keys())


def _allowed(kernel: Any) -> dict[str, set[Any]]:
    return {
        constraint.name: {
            value for _, values in constraint.allowed_values.list.ListFields() for value in values
        }
        for constraint in kernel.constraint
    }
