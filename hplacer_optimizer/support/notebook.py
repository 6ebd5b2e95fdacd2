"""What an object says of itself: a `repr` of a few lines, and the same as a table in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import islice

__all__ = ["Described", "as_html", "as_text"]

_LONGEST_LINE = 120


class Described:
    """Base of classes that hold much and say little: a title, and at most four facts."""

    def _describe(self) -> tuple[str, dict[str, str]]:
        """The title, and facts by their names."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return as_text(*self._describe())

    def _repr_html_(self) -> str:
        return as_html(*self._describe())


def as_text(title: str, facts: Mapping[str, str]) -> str:
    """One line for the title and one for each fact, whatever the names in them."""
    return "\n".join(map(_line, [title, *(f"  {name}: {fact}" for name, fact in facts.items())]))


def as_html(title: str, facts: Mapping[str, str]) -> str:
    """The same as a table; what comes from a problem or a plan is escaped."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(_line(fact))}</td></tr>"
        for name, fact in facts.items()
    )
    return f"<table><caption>{escape(_line(title))}</caption><tbody>{rows}</tbody></table>"


def _line(text: str) -> str:
    """The text on one line: control characters as Python writes them, and what is too long cut."""
    shown = "".join(
        character if character.isprintable() else ascii(character)[1:-1]
        for character in islice(text, _LONGEST_LINE + 1)
    )
    return shown if len(shown) <= _LONGEST_LINE else f"{shown[: _LONGEST_LINE - 1]}…"
