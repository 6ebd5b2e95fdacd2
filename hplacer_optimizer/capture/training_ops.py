"""Which ops make a graph a training step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_UPDATES = re.compile(
    r"(Resource)?(Sparse)?Apply\w+|(Resource)?Scatter(Nd)?(Add|Sub|Update|Mul|Div|Min|Max)"
    r"|AssignSub(VariableOp)?"
)
_READS = {"ReadVariableOp", "VariableV2"}
_ASSIGNS = {"Assign", "AssignAdd", "AssignVariableOp", "AssignAddVariableOp"}
_GRADIENTS = re.compile(r"(.*/)?(gradient_tape|gradients(_\d+)?)/")


def applies_updates(types: Iterable[str]) -> bool:
    """Whether one of these op types applies an update to a variable, as optimizers do."""
    return any(map(_UPDATES.fullmatch, types))


def assigns_what_it_reads(types: set[str]) -> bool:
    """Whether variables may be read and assigned: a step without an optimizer, or a metric."""
    return bool(types & _ASSIGNS and types & _READS)


def is_gradient(name: str) -> bool:
    """Whether an op has the name of one that computes a gradient."""
    return bool(_GRADIENTS.match(name))


def called_functions(node: Any) -> list[str]:
    """The functions that a NodeDef names."""
    names = []
    for value in node.attr.values():
        if value.WhichOneof("value") == "func":
            names.append(value.func.name)
        elif value.WhichOneof("value") == "list":
            names += [function.name for function in value.list.func]
    return names
