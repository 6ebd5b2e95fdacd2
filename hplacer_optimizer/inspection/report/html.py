"""HTML text from Python values; everything that comes from a plan or a graph is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Part", "TableCell", "bar", "facts", "items", "legend", "paragraph", "table", "tiles"]


@dataclass(frozen=True)
class TableCell:
    """A table cell; `value` is the exact number behind the text, for whoever reads the page."""

    text: str
    value: int | float | None = None
    markup: str = ""  # trusted, instead of the text

    def __str__(self) -> str:
        content = self.markup or escape(self.text)
        if self.value is not None:
            return f'<td class="number" data-value="{self.value}">{content}</td>'
        return f'<td class="bar">{content}</td>' if self.markup else f"<td>{content}</td>"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a bar; `colour` is a custom property of the style sheet, such as "--c0"."""

    label: str
    colour: str
    share: float  # of the bar, 0 to 1


def bar(parts: Sequence[Part]) -> str:
    """Parts side by side, those of no width left out; a reader hears their labels and shares."""
    shown = [part for part in parts if part.share > 0]
    label = escape(", ".join(f"{part.label} {part.share:.1%}" for part in shown))
    return (
        f'<div class="parts" role="img" aria-label="{label}" title="{label}">'
        + "".join(
            f'<i style="width:{100 * part.share:.3f}%;background:var({part.colour})"></i>'
            for part in shown
        )
        + "</div>"
    )


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """What colours stand for; entries are (custom property, text)."""
    return (
        '<ul class="legend">'
        + "".join(
            f'<li><i style="background:var({colour})"></i>{escape(text)}</li>'
            for colour, text in entries
        )
        + "</ul>"
    )


def table(
    caption: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[TableCell], bool]]
) -> str:
    """A table whose rows, at least one, are (row header, cells, whether it is the plan's own)."""
    rows = list(rows)
    numeric = [False, *(cell.value is not None for cell in rows[0][1])]
    heads = "".join(
        f'<th scope="col"{_style("number", i < len(numeric) and numeric[i])}>{escape(column)}</th>'
        for i, column in enumerate(columns)
    )
    body = "\n".join(
        f"<tr{_style('own', own)}>"
        f'<th scope="row">{escape(name)}</th>{"".join(map(str, cells))}</tr>'
        for name, cells, own in rows
    )
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _style(name: str, holds: bool) -> str:
    return f' class="{name}"' if holds else ""


def tiles(entries: Iterable[tuple[str, str, str, int | float]]) -> str:
    """Large figures as (id, label, text, exact value)."""
    return (
        '<dl class="tiles">'
        + "".join(
            f'<div><dt>{escape(label)}</dt><dd id="{name}" data-value="{value}">'
            f"{escape(text)}</dd></div>"
            for name, label, text, value in entries
        )
        + "</dl>"
    )


def facts(entries: Iterable[tuple[str, str]]) -> str:
    """A list of labels and values; a value that is markup comes from `items`."""
    return (
        '<dl class="facts">'
        + "".join(f"<dt>{escape(label)}</dt><dd>{value}</dd>" for label, value in entries)
        + "</dl>"
    )


def items(texts: Iterable[str]) -> str:
    texts = [escape(text) for text in texts]
    return "<ul>" + "".join(f"<li>{text}</li>" for text in texts) + "</ul>" if texts else "none"


def paragraph(text: str, style: str = "sub") -> str:
    return f'<p class="{style}">{escape(text)}</p>'
