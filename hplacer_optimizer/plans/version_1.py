"""Reads plan files of format 1, which 0.1.0 wrote: one JSON document with packed columns."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

import numpy as np

from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.plans.fields import NodeNames, text
from hplacer_optimizer.plans.file import PlanFile, parse_object

_FIELDS = {
    "assumptions",
    "budget",
    "cost_source",
    "created",
    "device_kinds",
    "device_names",
    "feasible",
    "fingerprint",
    "fingerprint_parts",
    "host",
    "label",
    "node_devices",
    "node_hashes",
    "node_names",
    "num_ops",
    "num_units",
    "peak_bytes",
    "planner",
    "planner_options",
    "planning_s",
    "seed",
    "step_time_ns",
    "versions",
}
_OPTIONAL = {"planner_notes"}


def read_fields(file: PlanFile) -> dict[str, Any]:
    """The fields of the document, its columns unpacked; the rest is not checked here."""
    document = parse_object(file.read("plan"))
    for name in sorted(_FIELDS - document.keys()):
        raise PlanError(f"has no field {name!r}")
    for name in sorted(document.keys() - _FIELDS - _OPTIONAL):
        raise PlanError(f"has the unknown field {name!r}")
    unpack: dict[str, Callable[[str], Any]] = {
        "node_names": NodeNames,
        "node_hashes": lambda value: _column(value, "<u8"),
        "node_devices": lambda value: _column(value, "<u2"),
    }
    for name, convert in unpack.items():
        try:
            document[name] = convert(text(document[name]))
        except (ValueError, binascii.Error) as error:
            raise PlanError(f"plan.{name} {error}") from None
    return document


def _column(value: str, dtype: str) -> Any:
    return np.frombuffer(base64.b64decode(value, validate=True), dtype=dtype)
