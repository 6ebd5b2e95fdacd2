"""Shows the examples of docstrings as code on the site: an extension of Griffe (mkdocs.yml).

Docstrings of this package have one example each, under `Example:` or, where it goes on from that of
another name, under "Example, after that of `NAME`:". Griffe knows `Examples:` only.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_HEADING = re.compile(r"^Example(?:, after that of `(?P<before>\w+)`)?:$", re.MULTILINE)


class Examples(griffe.Extension):
    """Renames the heading of each example."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every object that Griffe has read."""
        if obj.docstring:
            obj.docstring.value = _HEADING.sub(_renamed, obj.docstring.value)


def _renamed(heading: re.Match[str]) -> str:
    before = heading["before"]
    return f"Examples: Example, after that of {before}:" if before else "Examples: Example:"
