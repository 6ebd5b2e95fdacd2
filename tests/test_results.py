"""The record of results: whose each file is, and what is stale."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import figures
import result_tables
import results
from hplacer_optimizer.problem.simulator import SIMULATOR_VERSION

_MOST_LINES = 15_000
_MOST_PROSE_LINES = 60


def test_each_file_is_of_one_part() -> None:
    """`read` refuses a file of two."""
    recorded = {file for part in results.read() for file in part.files}
    pages = {part.page for part in results.read()}
    there = {
        str(path.relative_to(results.RESULTS))
        for path in results.RESULTS.glob("**/*")
        if path.is_file() and path != results.RECORD
    }
    assert there == recorded | pages


def test_another_version_of_the_simulator_makes_results_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pages have the reason in their header, which tests/test_documentation.py compares."""
    fresh = [part for part in results.read() if not part.reason]
    assert fresh
    assert {part.simulator for part in fresh} == {SIMULATOR_VERSION}
    monkeypatch.setattr(results, "SIMULATOR_VERSION", SIMULATOR_VERSION + 1)
    assert all("simulator" in part.reason for part in fresh)
    assert all("**stale**" in part.row() for part in fresh)


def test_the_record_changes_one_part_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = tmp_path / "record.yaml"
    copy.write_text(results.RECORD.read_text())
    monkeypatch.setattr(results, "RECORD", copy)
    before = results.read()
    changed = dataclasses.replace(before[2], commit="1234567", stale="a: reason")
    results.write(changed)
    assert results.read() == [*before[:2], changed, *before[3:]]
    assert copy.read_text().startswith("# What made the results")


def test_results_stay_small() -> None:
    files = [path for path in results.RESULTS.glob("**/*") if path.suffix in {".json", ".md"}]
    assert sum(len(path.read_text().splitlines()) for path in files) < _MOST_LINES


def test_pages_stay_short() -> None:
    """Beside their headings and tables."""
    for page in results.RESULTS.glob("*.md"):
        lines = figures.WRITTEN.sub("", page.read_text()).splitlines()
        prose = [line for line in lines if line.strip() and not line.startswith(("#", "|"))]
        assert len(prose) <= _MOST_PROSE_LINES, page


@pytest.mark.parametrize("name", result_tables.TABLES)
def test_rows_of_a_table_are_as_wide_as_its_head(name: str) -> None:
    _, make = result_tables.TABLES[name]
    head, _, *rows = make().splitlines()
    assert rows
    assert {row.count(" | ") for row in rows} == {head.count(" | ")}
    assert not any("nan" in row or "inf" in row for row in rows)
