"""Measured op costs: tables of times by op signature and device kind, format `hplacer-costs/1`.

    capture --(signature of each op)--> apply(table, ...) --> cost_ns, measured where known

The signature (cc/tf/op_signature.h) is the canonical text of an op's type, attributes, dtypes and
shapes. What a table does not hold keeps its estimate, and how many these are is part of the result.
docs/reference/costs.md describes the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.errors import CostTableError
from hplacer_optimizer.problem.cost_sources import ANALYTIC, MEASURED, PARTLY_MEASURED
from hplacer_optimizer.support.formats import json_type
from hplacer_optimizer.support.new_file import new_file
from hplacer_optimizer.support.quantities import INT64_MAX

FORMAT = "hplacer-costs/1"
MAX_FILE_BYTES = 1 << 30
MAX_TIME_NS = 1 << 50  # 13 days; keeps the sums of a step within 63 bits

_FORMAT_FAMILY = "hplacer-costs/"
_NO_KERNEL = -1
_KEYS = ("op", "kind", "time_ns", "samples")

Arrays = TypeVar("Arrays", bound=Mapping[str, Any])


@dataclass(frozen=True)
class MeasuredCost:
    """How long an op takes on a device, from so many samples.

    Its launch is a part of that, unless the device launches ahead.
    """

    time_ns: int
    samples: int = 1


@dataclass(frozen=True)
class CostSummary:
    """Where the costs of a step came from: pairs of an op and a device kind that runs it."""

    table: str  # the file's name
    measured: int
    estimated: int
    is_measured: NDArray[np.bool_] = field(compare=False, repr=False)
    """bool[n, K], by op and device kind."""

    @property
    def sentence(self) -> str:
        """As "cost table t.json: 812 of 9,500 op costs measured, 8,688 estimated"."""
        return (
            f"cost table {self.table}: {self.measured:,} of {self.measured + self.estimated:,} "
            f"op costs measured, {self.estimated:,} estimated"
        )

    @property
    def is_unused(self) -> bool:
        """Whether the table has nothing of what there is to measure."""
        return not self.measured and self.estimated > 0

    @property
    def cost_source(self) -> str:
        """For `Plan.cost_source`: "analytic", "measured", or both."""
        if not self.measured:
            return ANALYTIC
        return PARTLY_MEASURED if self.estimated else MEASURED


class CostTable:
    """Measured times of ops, by op signature and device kind.

    Times are integer nanoseconds. `len(table)` counts the measurements, and iterating gives
    (op signature, kind, measurement), sorted. `hplacer calibrate` measures a table of a graph.

    Args:
        name: of the table, for messages.

    Example:
        >>> import hplacer_optimizer as hp
        >>> from hplacer_optimizer.costs.table import MeasuredCost
        >>> table = hp.CostTable()
        >>> relu = "Relu{T=float} float[32,10] -> float[32,10]"
        >>> table.set(relu, "k40", MeasuredCost(time_ns=6500, samples=20))
        >>> table.save("costs.json")
        >>> hp.CostTable.load("costs.json").get(relu, "k40").time_ns
        6500
    """

    def __init__(self, name: str = "in memory") -> None:
        self.name = name
        self._by_kind: dict[str, dict[str, MeasuredCost]] = {}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CostTable:
        """Reads a cost table file.

        Raises CostTableError, which names the field and the file, or OSError if the file cannot be
        opened.
        """
        path = Path(path)
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                _fail("", f"is larger than {MAX_FILE_BYTES} bytes")
            table = cls(path.name)
            for i, entry in enumerate(_entries(_parse(path.read_bytes()))):
                table._add(entry, f"costs[{i}]")
        except CostTableError as error:
            raise CostTableError(f"{error} (in file '{path}')") from None
        return table

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the table, sorted. A reader sees the old file or the new one, never a part."""
        rows = [
            json.dumps(
                {"op": op, "kind": kind, "time_ns": cost.time_ns, "samples": cost.samples},
                ensure_ascii=False,
            )
            for op, kind, cost in self
        ]
        text = f'{{"format": "{FORMAT}", "costs": [\n' + ",\n".join(rows) + "\n]}\n"
        with new_file(path) as file:
            file.write(text.encode())

    def get(self, op: str, kind: str) -> MeasuredCost | None:
        """The measurement of an op, given by its signature, on a device kind."""
        return self._by_kind.get(kind, {}).get(op)

    def set(self, op: str, kind: str, cost: MeasuredCost) -> None:
        """Keeps a measurement, in place of an earlier one.

        Raises CostTableError if the op or the kind is no text, or the time or count out of range.
        """
        _check_text(op, "op")
        _check_text(kind, "kind")
        _check_integer(cost.time_ns, "time_ns", 0, MAX_TIME_NS)
        _check_integer(cost.samples, "samples", 1, INT64_MAX)
        self._by_kind.setdefault(kind, {})[op] = cost

    @property
    def kinds(self) -> list[str]:
        """Of devices, sorted."""
        return sorted(self._by_kind)

    def __len__(self) -> int:
        return sum(map(len, self._by_kind.values()))

    def __iter__(self) -> Iterator[tuple[str, str, MeasuredCost]]:
        """(op signature, kind, measurement), sorted."""
        keys = sorted((op, kind) for kind, costs in self._by_kind.items() for op in costs)
        return ((op, kind, self._by_kind[kind][op]) for op, kind in keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CostTable) and self._by_kind == other._by_kind

    __hash__ = None  # type: ignore[assignment]

    def _add(self, entry: object, path: str) -> None:
        if not isinstance(entry, dict):
            _fail(path, f"expected an object, got {json_type(entry)}")
        for key in entry:
            if key not in _KEYS:
                _fail(f"{path}.{key}", f"unknown key; the keys here are {', '.join(_KEYS)}")
        for key in _KEYS[:3]:
            if key not in entry:
                _fail(f"{path}.{key}", "is missing")
        cost = MeasuredCost(entry["time_ns"], entry.get("samples", 1))
        try:
            if self.get(_check_text(entry["op"], "op"), _check_text(entry["kind"], "kind")):
                _fail("op", f"has a cost on kind {entry['kind']!r} already")
            self.set(entry["op"], entry["kind"], cost)
        except CostTableError as error:
            raise CostTableError(f"{path}.{error}") from None


def apply(
    table: CostTable,
    arrays: Arrays,
    op_signatures: Sequence[str],
    kinds: Sequence[str],
    is_removed: NDArray[np.bool_],
) -> tuple[Arrays, CostSummary]:
    """Replaces the estimates that the table has measurements for.

    `arrays["cost_ns"]` is int64[n, K], -1 where a kind has no kernel; `op_signatures` has n entries
    and `kinds` K names. What `is_removed`, bool[n], does not run and costs nothing, which counts as
    measured. Returns a copy of `arrays` that differs in `cost_ns` only.
    """
    cost_ns = np.array(arrays["cost_ns"], np.int64)
    is_measured = is_removed[:, None] & (cost_ns != _NO_KERNEL)
    for column, kind in enumerate(kinds):
        for row, op in enumerate(op_signatures):
            cost = table.get(op, kind) if op and not is_removed[row] else None
            if cost is not None and cost_ns[row, column] != _NO_KERNEL:
                cost_ns[row, column] = cost.time_ns
                is_measured[row, column] = True
    measured = int(is_measured[~is_removed].sum())
    total = int(np.count_nonzero(cost_ns[~is_removed] != _NO_KERNEL))
    changed: Any = {**arrays, "cost_ns": cost_ns}
    return changed, CostSummary(table.name, measured, total - measured, is_measured)


# ---- reading ----


def _fail(path: str, message: str) -> NoReturn:
    raise CostTableError(f"{path}: {message}" if path else message)


def _check_text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value:
        _fail(path, f"expected a non-empty string, got {value!a:.80}")
    try:
        value.encode()
    except UnicodeEncodeError:
        _fail(path, f"{value!a:.80} is not valid Unicode")
    return value


def _check_integer(value: object, path: str, minimum: int, maximum: int) -> None:
    if type(value) is not int:  # a bool is an int
        _fail(path, f"expected an integer, got {json_type(value)}")
    if not minimum <= value <= maximum:
        _fail(path, f"must be from {minimum} to {maximum}")


def _parse(data: bytes) -> object:
    def distinct(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) < len(items):
            keys = [key for key, _ in items]
            repeated = next(key for i, key in enumerate(keys) if key in keys[:i])
            _fail("", f"the key {repeated!a:.80} is given twice in one object")
        return result

    def constant(name: str) -> NoReturn:
        _fail("", f"not JSON: the number {name}")

    try:
        return json.loads(data.decode(), object_pairs_hook=distinct, parse_constant=constant)
    except RecursionError:
        _fail("", "not a cost table: nested too deeply")
    except CostTableError:
        raise
    except ValueError as error:
        _fail("", f"not JSON: {error}")


def _entries(document: object) -> list[Any]:
    if not isinstance(document, dict):
        _fail("", f"expected an object, got {json_type(document)}")
    name = document.get("format")
    if name != FORMAT:
        newer = isinstance(name, str) and name.startswith(_FORMAT_FAMILY)
        _fail(
            "format",
            f"{name!a:.80} is not supported, this version reads '{FORMAT}'"
            + ("; upgrade hplacer-optimizer" if newer else ""),
        )
    for key in document:
        if key not in ("format", "costs"):
            _fail(key, "unknown key; the keys here are format, costs")
    costs = document.get("costs")
    if not isinstance(costs, list):
        _fail("costs", f"expected a list, got {json_type(costs)}")
    return costs
