"""Strict reading of YAML: mappings, sequences and text, nothing else, and each field by its path.

Every scalar is text: what a number or a unit is, the reader of the field decides, not YAML's
guesses. Anchors, aliases, tags and several documents are refused, so a file is never larger in
memory than on disk; so are deep nesting and a key that is given twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from hplacer_optimizer.errors import DocumentError, HPlacerError
from hplacer_optimizer.support.quantities import Dimension, shorten

MAX_BYTES = 16 * 2**20
_MAX_DEPTH = 30
_T = TypeVar("_T")
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # libyaml is 20 times faster


@dataclass(frozen=True)
class Field:
    """A value and its path in the file, as "devices[2].kind"; "" is the document itself."""

    value: Any
    path: str

    def mapping(self) -> dict[str, Field]:
        """Raises DocumentError if this is not a mapping."""
        if not isinstance(self.value, dict):
            raise self._wrong("a mapping (`key: value` lines)")
        prefix = f"{self.path}." if self.path else ""
        return {key: Field(value, f"{prefix}{key}") for key, value in self.value.items()}

    def record(self, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Field]:
        """A mapping with these keys; raises DocumentError if one is unknown or missing."""
        fields = self.mapping()
        for key in fields:
            if key not in required + optional:
                keys = ", ".join(required + optional)
                raise self.error(f"unknown key {shorten(key)}; keys here: {keys}")
        for key in required:
            if key not in fields:
                raise self.error(f"the key {key!r} is missing")
        return fields

    def sequence(self) -> list[Field]:
        """Raises DocumentError if this is not a sequence."""
        if not isinstance(self.value, list):
            raise self._wrong("a list (`- item` lines)")
        return [Field(value, f"{self.path}[{i}]") for i, value in enumerate(self.value)]

    def text(self) -> str:
        """Raises DocumentError if this is not text, or empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self._wrong("text")
        return self.value

    def boolean(self) -> bool:
        """Raises DocumentError if this is neither true nor false."""
        if self.value not in ("true", "false"):
            raise self.error(f"expected true or false, found {self.value!a:.80}")
        return bool(self.value == "true")

    def whole_number(self, lowest: int, highest: int) -> int:
        """Raises DocumentError if this is no whole number of that range."""
        if not isinstance(self.value, str) or not re.fullmatch(r"[0-9]{1,15}", self.value):
            raise self._wrong("a whole number")
        number = int(self.value)
        if not lowest <= number <= highest:
            raise self.error(f"{number} is outside {lowest} to {highest}")
        return number

    def quantity(self, dimension: Dimension) -> Any:
        """In base units; raises DocumentError if this is no such quantity or out of range."""
        return dimension.parse(self.text(), self.path)

    def build(self, construct: Callable[..., _T], **values: Any) -> _T:
        """Calls a constructor; DocumentError has this field's path before the error it raised."""
        try:
            return construct(**values)
        except HPlacerError as error:
            raise DocumentError(f"{self.path}.{error}") from None

    def error(self, message: str) -> DocumentError:
        """An error of this field: its path, then the message."""
        return DocumentError(f"{self.path}: {message}" if self.path else message)

    def _wrong(self, expected: str) -> DocumentError:
        if isinstance(self.value, str):
            found = shorten(self.value) if self.value else "nothing"
        else:
            found = "a mapping" if isinstance(self.value, dict) else "a list"
        return self.error(f"expected {expected}, found {found}")


def parse_yaml(data: bytes) -> Field:
    """The document in a file's bytes; raises DocumentError with the line of what is wrong."""
    if len(data) > MAX_BYTES:
        raise DocumentError(f"has {len(data)} bytes; at most {MAX_BYTES} are read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(f"line {line}: is not UTF-8 text") from None
    try:
        return Field(_build(yaml.parse(text, Loader=_LOADER)), "")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise DocumentError(f"{where}is not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = data.count(b"\n", 0, error.position) + 1
        raise DocumentError(f"line {line}: is not YAML: {error.reason}") from None


class _Open:
    """A mapping or a sequence whose end has not been read."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.key: str | None = None

    def add(self, value: Any, line: int) -> None:
        if isinstance(self.tree, list):
            self.tree.append(value)
        elif self.key is not None:
            self.tree[self.key], self.key = value, None
        elif not isinstance(value, str):
            raise DocumentError(f"line {line}: a key must be text")
        elif value in self.tree:
            raise DocumentError(f"line {line}: the key {shorten(value)} is there twice")
        else:
            self.key = value


def _build(events: Iterator[Any]) -> Any:
    root: list[Any] = []
    stack = [_Open(root)]
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise DocumentError(f"line {line}: anchors and aliases (& and *) are not used here")
        if getattr(event, "tag", None):
            raise DocumentError(f"line {line}: the tag {shorten(event.tag)} is not used here")
        if isinstance(event, yaml.DocumentStartEvent) and root:
            raise DocumentError(f"line {line}: a second document; one is allowed")
        if isinstance(event, yaml.ScalarEvent):
            stack[-1].add(event.value, line)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(stack) > _MAX_DEPTH:
                raise DocumentError(f"line {line}: is nested more than {_MAX_DEPTH} deep")
            tree: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            stack[-1].add(tree, line)
            stack.append(_Open(tree))
        elif isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
    return root[0] if root else ""
