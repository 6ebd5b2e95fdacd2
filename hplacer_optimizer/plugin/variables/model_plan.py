"""A plan of a model: where each of its variables goes, and the plan of its step.

A file of it is a plan file (docs/reference/plan-format.md) with one more section, `variables`: a
JSON list of the fields of `PlannedVariable`. `hplacer show` and the like read its step.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.plans.directories.paths import read_file, write_file
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.plan_file import PlanFile, assemble, canonical_json, compress
from hplacer_optimizer.support.formats import format_bytes
from hplacer_optimizer.support.notebook import Described

_SECTION = "variables"
_MAX_LISTED = 5


@dataclass(frozen=True, kw_only=True)
class PlannedVariable:
    """One variable of a model."""

    key: str  # the path of a Keras variable, else the name; the second of a name is "name#2"
    shape: tuple[int | None, ...] | None  # None: unknown
    dtype: str
    device: str | None  # full name; None: the step does not use it
    beside: str | None = None  # key of the variable that it was colocated with: a slot's
    is_deferred: bool = False  # created by the first step, wherever that runs: slots and metrics

    @property
    def num_bytes(self) -> int:
        """0 where the shape or the size of an element is not known."""
        import tensorflow as tf

        if self.shape is None or None in self.shape or self.dtype == "string":
            return 0
        return math.prod(size or 0 for size in self.shape) * int(tf.as_dtype(self.dtype).size)

    def difference(self, variable: Any) -> str:
        """What is not as planned in an existing tf.Variable; "": nothing."""
        shape = None if variable.shape.rank is None else tuple(variable.shape.as_list())
        if (shape, variable.dtype.name) == (self.shape, self.dtype):
            return ""
        return (
            f"is {variable.dtype.name}{_text(shape)}, planned was {self.dtype}{_text(self.shape)}"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class ModelPlan(Described):
    """Devices of a model's variables, and the plan of its training step.

    Attributes:
        variables: in order of creation, each with key, shape, dtype and device.
        step: the plan of the step with its variables there, which training will look up.

    Example, after that of `plan_model`:
        >>> plan.variables[0].key, plan.variables[0].shape
        ('weights', (64, 8))
        >>> plan.save("model.hplan")
        >>> hp.ModelPlan.load("model.hplan") == plan
        True
    """

    variables: tuple[PlannedVariable, ...]
    step: Plan

    @property
    def devices(self) -> dict[str, str]:
        """The planned device of each variable that the step uses, by key."""
        return {v.key: v.device for v in self.variables if v.device is not None}

    def _describe(self) -> tuple[str, dict[str, str]]:
        counts = Counter(map(_short, self.devices.values()))
        spread = ", ".join(f"{counts[device]} on {device}" for device in sorted(counts))
        title = f"ModelPlan of {self.step.label}: {self.step.summary_line()}"
        return title, {"variables": spread or "none on a planned device"}

    def summary_line(self) -> str:
        """For people: how much lies where."""
        total: Counter[str] = Counter()
        for variable in self.variables:
            if variable.device is not None:
                total[variable.device] += variable.num_bytes
        spread = ", ".join(
            f"{format_bytes(total[device])} on {_short(device)}" for device in sorted(total)
        )
        return f"{self.step.summary_line()}: {len(self.devices)} variables, {spread}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file for `load`, as `Plan.save` does; raises StoreError if it cannot."""
        step = PlanFile(io.BytesIO(self.step.to_bytes()))
        sections = {name: step.section(name) for name in step.names}
        rows = [asdict(variable) for variable in self.variables]
        write_file(path, assemble(sections | {_SECTION: compress(canonical_json(rows))}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ModelPlan:
        """Reads what `save` wrote; raises PlanError or StoreError, which name the file."""
        data = read_file(path)
        step = Plan.from_bytes(data, path)
        try:
            rows = json.loads(PlanFile(io.BytesIO(data)).read(_SECTION))
            variables = tuple(_variable(row) for row in rows)
        except (PlanError, ValueError, TypeError) as error:
            raise PlanError(
                f"{path}: {error}; save a plan of hplacer_optimizer.plan_model there"
            ) from None
        return cls(variables=variables, step=step)


def _variable(row: dict[str, Any]) -> PlannedVariable:
    shape = row["shape"]
    return PlannedVariable(**{**row, "shape": None if shape is None else tuple(shape)})


def _text(shape: tuple[int | None, ...] | None) -> str:
    return "" if shape is None else str(list(shape))


def _short(device: str) -> str:
    return device.rpartition("/device:")[2]


def check_devices(plan: ModelPlan) -> None:
    """Raises PlanError if this process lacks a device of the plan."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    context.ensure_initialized()
    known = {device.name for device in tf.config.list_logical_devices()}
    known |= set(context.context().devices())
    missing: dict[str, list[str]] = {}
    for key, device in plan.devices.items():
        if device not in known:
            missing.setdefault(device, []).append(key)
    if missing:
        of = "; ".join(f"{device} of {listed(keys)}" for device, keys in missing.items())
        raise PlanError(
            f"the plan has variables on devices that this process does not have: {of}. There are "
            f"{', '.join(sorted(map(_short, known)))}: plan for this machine"
        )


def listed(keys: list[str]) -> str:
    """The first few, for a message."""
    more = f" and {len(keys) - _MAX_LISTED} more" if len(keys) > _MAX_LISTED else ""
    return ", ".join(f"'{key}'" for key in keys[:_MAX_LISTED]) + more
