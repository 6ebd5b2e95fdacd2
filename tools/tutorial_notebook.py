"""The notebook of the page docs/start/tutorial.md.

Text becomes Markdown cells. Python becomes code cells, and so do shell commands, under `%%bash`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

TEXT, PYTHON, SHELL = "text", "python", "sh"
SHELL_MARK = "%%bash\n"

_BLOCK = re.compile(rf"^```({PYTHON}|{SHELL})\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def notebook(page: str) -> str:
    """The notebook of a page, in nbformat 4.5 and without outputs."""
    document = {
        "cells": [_cell(number, *part) for number, part in enumerate(parts(page), 1)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def parts(page: str) -> Iterator[tuple[str, str]]:
    """Text and code in their order, each with what it is: TEXT, PYTHON or SHELL."""
    end = 0
    for block in _BLOCK.finditer(page):
        if text := page[end : block.start()].strip():
            yield TEXT, text
        yield block[1], block[2].strip()
        end = block.end()
    if text := page[end:].strip():
        yield TEXT, text


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    if kind == SHELL:
        text = f"{SHELL_MARK}{text}"
    source = {"metadata": {}, "source": text.splitlines(keepends=True)}
    if kind == TEXT:
        return {"cell_type": "markdown", "id": f"cell-{number}", **source}
    code = {"cell_type": "code", "execution_count": None, "id": f"cell-{number}"}
    return {**code, "outputs": [], **source}
