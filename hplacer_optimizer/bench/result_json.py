"""How results are written as JSON: short enough to be read and compared, a row on a line."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["result_json"]

_WIDTH = 120
_ROW_WIDTH = 300  # of a record without parts
_DIGITS = 6  # more than any clock here is worth


def result_json(value: Any, *, indent: int = 0) -> str:
    """JSON with a row on a line, several numbers of a long list on one, and floats of six digits.

    Raises TypeError if JSON has no such value.
    """
    line = json.dumps(_rounded(value))
    if not isinstance(value, dict | list | tuple) or not value:
        return line
    if indent + len(line) <= (_ROW_WIDTH if _is_record(value) else _WIDTH):
        return line
    if isinstance(value, dict):
        keys = [json.dumps(str(key)) for key in value]
        parts = [result_json(part, indent=indent + 1) for part in value.values()]
        lines = [f"{key}: {part}" for key, part in zip(keys, parts, strict=True)]
    else:
        lines = _filled([result_json(part, indent=indent + 1) for part in value], indent + 1)
    left, right = "{}" if isinstance(value, dict) else "[]"
    inner = ",\n".join(" " * (indent + 1) + line for line in lines)
    return f"{left}\n{inner}\n{' ' * indent}{right}"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and not any(
        isinstance(part, dict) or (isinstance(part, list | tuple) and len(part) > 10)
        for part in value.values()
    )


def _filled(parts: list[str], indent: int) -> list[str]:
    lines = [parts[0]]
    for part in parts[1:]:
        if "{" not in part and indent + len(lines[-1]) + len(part) + 2 <= _WIDTH:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return lines
