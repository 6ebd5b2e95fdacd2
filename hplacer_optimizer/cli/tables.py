"""Tables that fit a terminal: sentences wrap between words, names are never broken over lines."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

_GAP = 2
_READABLE = 24  # characters of a line of a sentence
_LEAST_NAME = 12  # characters that stay of a name that is too long


def terminal_width() -> int | None:
    """Columns of the terminal; None, that is any number, where stdout is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_line(text: str) -> None:
    """Wrapped between words on a terminal, in one line elsewhere."""
    width = terminal_width()
    if width is None:
        print(text)
        return
    print(
        *textwrap.wrap(
            text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        ),
        sep="\n",
    )


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Nothing without rows."""
    if rows:
        print("", *table_lines(columns, rows, terminal_width()), "", sep="\n")


def without_empty_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """The table without the columns that are empty in every row."""
    used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return [columns[i] for i in used], [[row[i] for i in used] for row in rows]


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the terminal is wide enough to show everything in one line each."""
    width = terminal_width()
    return not rows or width is None or _total(_natural([columns, *rows])) <= width


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None
) -> Iterator[str]:
    """The lines of a table of at most `width` characters, if a dozen for each column suffice."""
    table = [columns, *rows]
    widths = _natural(table)
    if width is not None:
        words = [max(map(_longest_word, column)) for column in zip(*table, strict=True)]
        readable = [max(word, min(one, _READABLE)) for word, one in zip(words, widths, strict=True)]
        shorter = [min(word, max(width // 3, _READABLE)) for word in words]
        # Sentences give way first, then names that are very long, then both.
        _shrink(widths, readable, width)
        _shrink(widths, [min(pair) for pair in zip(readable, shorter, strict=True)], width)
        _shrink(widths, [min(word, _LEAST_NAME) for word in words], width)
    for number, row in enumerate(table):
        yield from _row_lines(row, widths)
        if number == 0:
            yield " " + "─" * (_total(widths) - 2)


def _natural(table: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(len(line) for cell in column for line in cell.split("\n"))
        for column in zip(*table, strict=True)
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) + 1)


def _longest_word(cell: str) -> int:
    """A short cell, such as a quantity with its unit, counts as one word."""
    return len(cell) if len(cell) <= _LEAST_NAME else max(map(len, cell.split()), default=0)


def _shrink(widths: list[int], least: Sequence[int], width: int) -> None:
    """Takes from the widest column that may shrink until all fit."""
    while _total(widths) > width:
        may_shrink = [i for i, one in enumerate(widths) if one > least[i]]
        if not may_shrink:
            return
        widths[max(may_shrink, key=lambda i: widths[i])] -= 1


def _row_lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [_cell_lines(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
        yield (" " * _GAP + (" " * _GAP).join(padded)).rstrip()


def _cell_lines(cell: str, width: int) -> list[str]:
    lines = []
    for line in cell.split("\n"):
        lines += textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [_shorten(line, width) for line in lines]


def _shorten(name: str, width: int) -> str:
    """Without its middle, since the ends tell names apart."""
    if len(name) <= width:
        return name
    begin = (width - 1) // 2
    return f"{name[:begin]}…{name[len(name) - (width - 1 - begin) :]}"
