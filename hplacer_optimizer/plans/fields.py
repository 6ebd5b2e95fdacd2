"""The checks of a plan's fields, and the packed column of node names.

A check takes what a caller or a file gave, returns the normal form, and raises ValueError whose
text continues "plan.<field> ...".
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from hplacer_optimizer.plans.plan_file import canonical_json


class NodeNames(Sequence[str]):
    """Node names kept as one string joined by newlines (`blob`) and split on first use."""

    def __init__(self, blob: str) -> None:
        self.blob = text(blob)
        # A regular expression, because `in` is slow where the first character matches often.
        if blob.startswith("\n") or blob.endswith("\n") or re.search("\n\n", blob):
            raise ValueError("holds an empty node name")

    @classmethod
    def join(cls, names: Iterable[str]) -> NodeNames:
        """Packs names; raises ValueError for a name that is empty or contains a newline."""
        names = list(names)
        for name in names:
            if not isinstance(name, str) or not name or "\n" in name:
                raise ValueError(f"{name!r} is not a node name (a non-empty string of one line)")
        return cls("\n".join(names))

    @functools.cached_property
    def _names(self) -> list[str]:
        return self.blob.split("\n") if self.blob else []

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._names[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return self.blob.count("\n") + 1 if self.blob else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeNames) and self.blob == other.blob

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} node names>"


def as_node_name(op_name: str) -> str:
    """The name of an op as one that NodeNames can hold; distinct names stay distinct.

    A name that is empty or has several lines is written as JSON, and so is one that looks like it.
    """
    is_node_name = op_name and "\n" not in op_name and not op_name.startswith('"')
    return op_name if is_node_name else json.dumps(op_name, ensure_ascii=False)


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"is not valid Unicode: {error.reason}") from None
    return value


def matching(pattern: str | re.Pattern[str], what: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not re.fullmatch(pattern, text(value)):
            raise ValueError(f"must be {what}, not {value!r}")
        return str(value)

    return check


def integer(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"must be an integer, not {type(value).__name__}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("does not fit into 64 bits")
    return int(value)


def count(value: Any) -> int:
    if integer(value) < 0:
        raise ValueError(f"must not be negative, got {value}")
    return int(value)


def word(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"must be an integer, not {type(value).__name__}")
    if not 0 <= value < 1 << 64:
        raise ValueError("does not fit into 64 bits without a sign")
    return int(value)


def optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def interval(value: Any) -> tuple[int, int]:
    items = list_of(count)(value)
    if len(items) != 2 or items[0] > items[1]:
        raise ValueError(f"must be two ascending integers, not {items}")
    return items[0], items[1]


def boolean(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"must be true or false, not {type(value).__name__}")
    return bool(value)


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"must be finite and not negative, got {number}")
    return number


def share(value: Any) -> float:
    if number(value) > 1:
        raise ValueError(f"must be at most 1, got {value}")
    return number(value)


def list_of(check: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def check_list(value: Any) -> list[Any]:
        if isinstance(value, str) or not isinstance(value, (Sequence, np.ndarray)):
            raise ValueError(f"must be a list, not {type(value).__name__}")
        items = []
        for index, item in enumerate(value):
            try:
                items.append(check(item))
            except ValueError as error:
                raise ValueError(f"[{index}] {error}") from None
        return items

    return check_list


def text_map(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be an object, not {type(value).__name__}")
    return {text(key): text(item) for key, item in value.items()}


def json_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError("must be an object with string keys")
    try:
        copy: dict[str, Any] = json.loads(canonical_json(dict(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"holds something JSON cannot: {error}") from None
    return copy


def record(checks: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], dict[str, Any]]:
    """An object with exactly these keys."""

    def check_record(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or value.keys() != checks.keys():
            raise ValueError(f"must be an object of {', '.join(checks)}")
        items = {}
        for key, check in checks.items():
            try:
                items[key] = check(value[key])
            except ValueError as error:
                raise ValueError(f"{key} {error}") from None
        return items

    return check_record


def node_names(value: Any) -> NodeNames:
    if isinstance(value, NodeNames):
        return value
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"must be a list of names, not {type(value).__name__}")
    return NodeNames.join(value)


def column(dtype: npt.DTypeLike) -> Callable[[Any], npt.NDArray[Any]]:
    def check(value: Any) -> npt.NDArray[Any]:
        array = np.asarray(value)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError("must be a flat array of integers")
        if array.size:
            limits = np.iinfo(np.dtype(dtype))
            low, high = int(array.min()), int(array.max())
            if low < limits.min or high > limits.max:
                raise ValueError(f"holds {low if low < limits.min else high}, out of range")
        array = array.astype(dtype)  # a copy: nobody else can change a plan
        array.flags.writeable = False
        return array

    return check
