"""Figures in README and the documentation have one source."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import figures
import results


def test_each_figure_has_a_source() -> None:
    found = [use for page in figures.pages() for use in figures.uses(page)]
    assert len(found) > 20
    assert [use for use in found if not use.source] == []


def test_every_source_is_quoted() -> None:
    text = "".join(page.read_text() for page in figures.pages())
    assert [name for name in figures.FIGURES if f"<!-- ={name} -->" not in text] == []


def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> list[tuple[str, str]]:
    """The figures of a page of docs with their sources."""
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    return [(use.text, use.source) for use in figures.uses(page)]


def test_a_figure_of_a_sample_on_the_page_has_a_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sample = "```sh\nhplacer try --time 5m  # 52.2 ms, 88%\n```\n"
    text = "52.2 ms, 2 ms, 5 minutes, 9 minutes, 88 to 92%, 88%.\n"
    has = {"52.2 ms", "5 minutes", "88%"}
    found = used(tmp_path, monkeypatch, sample + text)
    assert {figure for figure, source in found if source == "the sample on this page"} == has
    assert {figure for figure, source in found if not source} == {"2 ms", "9 minutes", "88 to 92%"}


def test_a_figure_in_a_written_part_has_a_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = "<!-- a-b: written by `x` -->\n7 ms\n<!-- end of a-b -->\n8 ms\n"
    assert used(tmp_path, monkeypatch, text) == [("7 ms", "tools/write_docs.py a-b"), ("8 ms", "")]


def test_a_figure_typed_on_a_page_of_results_is_of_the_section_that_the_header_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = dataclasses.replace(
        results.read()[0], page="page.md", section="One", commit="1234567", files=["made.md"]
    )
    monkeypatch.setattr(figures, "_record", lambda: [part])
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    text = "1 ms\n\n## One\n\n2 ms\n\n## Two\n\n3 ms\n"
    found = used(tmp_path, monkeypatch, text)
    assert [(figure, "1234567" in source) for figure, source in found] == [
        ("1 ms", True),
        ("2 ms", True),
        ("3 ms", False),
    ]


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
