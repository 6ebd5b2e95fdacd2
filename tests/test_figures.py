"""Figures in README and the documentation have one source."""

from __future__ import annotations

from pathlib import Path

import pytest

import figures


def test_each_figure_of_the_pages_held_to_it_has_a_source() -> None:
    found = [use for page in figures.HELD for use in figures.uses(figures.ROOT / page)]
    assert len(found) > 20
    assert [use for use in found if not use.source] == []


def test_every_source_is_quoted() -> None:
    text = "".join(page.read_text() for page in figures.pages())
    assert [name for name in figures.FIGURES if f"<!-- ={name} -->" not in text] == []


def test_a_number_without_a_source_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "It is\n1.9 times as fast, `2 times`, up to <!-- =guard.faster -->7<!-- = -->.\n"
    )
    assert [(use.line, use.text, bool(use.source)) for use in figures.uses(page)] == [
        (2, "7", True),
        (2, "1.9 times", False),
    ]
    assert figures.written(page.read_text()).endswith("<!-- =guard.faster -->8<!-- = -->.\n")
