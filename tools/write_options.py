"""Writes the table of the optimizer's options into docs/reference/options.md.

    python tools/write_options.py

The table is that of `hplacer_optimizer.options`; tests/test_documentation.py compares the two.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "reference" / "options.md"
BEGIN = "<!-- options: written by `python tools/write_options.py` -->\n"
END = "<!-- end of options -->\n"
_HUGE = 1e6  # a limit from here on only keeps numbers within their type


def table() -> str:
    """The Markdown table: a row per option in the order of their declaration."""
    from hplacer_optimizer.options import Options

    rows = [
        f"| `{field.name}` | `{field.default!r}` | {_values(field)} | {field.metadata['doc']} |\n"
        for field in dataclasses.fields(Options)
    ]
    return "| option | default | values | meaning |\n|---|---|---|---|\n" + "".join(rows)


def main() -> None:
    """Replaces what stands between the two marks."""
    before, rest = DOCUMENT.read_text().split(BEGIN)
    _, after = rest.split(END)
    DOCUMENT.write_text(before + BEGIN + table() + END + after)


def _values(field: dataclasses.Field[Any]) -> str:
    if field.metadata["choices"]:
        return ", ".join(f"`{choice!r}`" for choice in field.metadata["choices"])
    limits = []
    if field.metadata["minimum"] is not None:
        limits.append(f"at least {field.metadata['minimum']:g}")
    if (field.metadata["maximum"] or math.inf) < _HUGE:
        limits.append(f"at most {field.metadata['maximum']:g}")
    kind = str(field.type).replace(" | None", " or None").replace("tuple[str, ...]", "list of str")
    return ", ".join([kind, *limits])


if __name__ == "__main__":
    main()
