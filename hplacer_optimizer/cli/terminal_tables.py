"""Tables that fit a terminal: sentences wrap between words, names are never broken over lines."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

_GAP = 2
_NO_BREAK = "\u00a0"
_READABLE = 24  # characters of a line of a sentence
_ONE_WORD = 16  # a cell of so many characters is no sentence, such as a quantity with its unit
_LEAST_NAME = 12  # characters that stay of a name that is too long


def terminal_width() -> int | None:
    """Columns of the terminal; None, that is any number, where stdout is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def unbroken(text: str) -> str:
    """A name with spaces that no line of a table or of `print_line` ends in."""
    return text.replace(" ", _NO_BREAK)


def print_line(text: str) -> None:
    """Wrapped between words on a terminal, in one line elsewhere.

    A name that is longer than a line is shortened. A path is not: it is of no use then.
    """
    width = terminal_width()
    if width is None:
        print(_with_spaces(text))
        return
    words = text.split(" ")
    shown = (word if _is_path(word) else _shorten(word, width - _GAP) for word in words)
    for number, line in enumerate(_wrapped(" ".join(shown), width - _GAP)):
        print(" " * _GAP * (number > 0) + _with_spaces(line))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, spare: Sequence[str] = ()
) -> None:
    """Nothing without rows. A narrow terminal does without the `spare` columns, the first first."""
    if rows:
        print("", *table_lines(columns, rows, terminal_width(), spare), "", sep="\n")


def without_empty_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """The table without the columns that are empty in every row."""
    return _chosen(columns, rows, [i for i in range(len(columns)) if any(row[i] for row in rows)])


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the terminal is wide enough to show everything in one line each."""
    width = terminal_width()
    return not rows or width is None or _total(_natural([columns, *rows])) <= width


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    spare: Sequence[str] = (),
) -> Iterator[str]:
    """The lines of a table of at most `width` characters.

    Columns of `spare` are left out, the first ones first, until long names can be read. Where a
    dozen characters for each column are too many, the rows follow each other as lists.
    """
    if width is None:
        yield from _lines_of_widths([columns, *rows], _natural([columns, *rows]))
        return
    kept = _without_spare(columns, rows, width, spare)
    table = [kept[0], *kept[1]]
    widths = _natural(table)
    for least in _limits(table, width):
        _shrink(widths, least, width)
    if _total(widths) > width:
        yield from _list_lines(columns, rows, width)
    else:
        yield from _lines_of_widths(table, widths)


def _lines_of_widths(table: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for number, row in enumerate(table):
        yield from _row_lines(row, widths)
        if number == 0:
            yield " " + "─" * (_total(widths) - 2)


def _natural(table: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(len(line) for cell in column for line in cell.split("\n"))
        for column in zip(*table, strict=True)
    ]


# ---- widths ----


def _limits(table: Sequence[Sequence[str]], width: int) -> Iterator[list[int]]:
    """How narrow each column may become, stage by stage.

    Sentences get several lines. Then very long names are shortened, then short cells get several
    lines, and in the end all names are shortened.
    """
    cells, words, parts = _natural(table[1:]), _words(table, _ONE_WORD), _words(table, _LEAST_NAME)
    readable = [max(word, min(cell, _READABLE)) for word, cell in zip(words, cells, strict=True)]
    longest = max(width // 3, _READABLE)
    yield readable
    yield [min(one, longest) for one in readable]
    yield [min(part, longest) for part in parts]
    yield [min(part, _LEAST_NAME) for part in parts]


def _words(table: Sequence[Sequence[str]], one_word: int) -> list[int]:
    """The longest word of each column; a cell of at most so many characters counts as one word."""
    header, *rows = table
    of_header = (_longest_word(name, 0) for name in header)
    of_rows = (
        max(_longest_word(cell, one_word) for cell in cells) for cells in zip(*rows, strict=True)
    )
    return [max(pair) for pair in zip(of_header, of_rows, strict=True)]


def _longest_word(cell: str, one_word: int) -> int:
    return len(cell) if len(cell) <= one_word else max(map(len, re.split("[ \n]", cell)))


def _without_spare(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    for name in spare:
        _, readable, *_ = _limits([columns, *rows], width)
        if _total(readable) <= width:
            break
        kept = [i for i, column in enumerate(columns) if column != name]
        columns, rows = _chosen(columns, rows, kept)
    return columns, rows


def _chosen(
    columns: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int]
) -> tuple[list[str], list[list[str]]]:
    return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) + 1)


def _shrink(widths: list[int], least: Sequence[int], width: int) -> None:
    """Takes from the widest column that may shrink until all fit."""
    while _total(widths) > width:
        may_shrink = [i for i, one in enumerate(widths) if one > least[i]]
        if not may_shrink:
            return
        widths[max(may_shrink, key=lambda i: widths[i])] -= 1


def _list_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """A line for each cell that is not empty, after the name of its column."""
    longest = max(map(len, columns))
    widths = [longest, max(_LEAST_NAME, width - longest - 3 * _GAP)]
    for number, row in enumerate(rows):
        if number:
            yield ""
        for name, cell in zip(columns, row, strict=True):
            if cell:
                yield from _row_lines((name, cell), widths)


def _row_lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [_cell_lines(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
        yield _with_spaces(" " * _GAP + (" " * _GAP).join(padded)).rstrip()


def _cell_lines(cell: str, width: int) -> list[str]:
    lines = []
    for line in cell.split("\n"):
        lines += _wrapped(line, width) or [""]
    return [_shorten(line, width) for line in lines]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _with_spaces(text: str) -> str:
    """As it is printed, when all lines are known."""
    return text.replace(_NO_BREAK, " ")


def _is_path(word: str) -> bool:
    return word.lstrip("'\"`(").startswith(("/", "~", ".")) or "://" in word


def _shorten(name: str, width: int) -> str:
    """Without its middle, since the ends tell names apart."""
    if len(name) <= width:
        return name
    begin = (width - 1) // 2
    return f"{name[:begin]}…{name[len(name) - (width - 1 - begin) :]}"
