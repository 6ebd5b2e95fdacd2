"""Tables at several widths."""

from __future__ import annotations

from pathlib import Path

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.cli import main, tables
from hplacer_optimizer.cli.tables import table_lines
from hplacer_optimizer.plans.store import PlanStore
from tests.plans.test_plan import FINGERPRINT, make_plan

GOLDEN = str(Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json")

NAME = "gradients/tower_0/convolution_22/BiasAddGrad"
SENTENCE = "list scheduling by earliest start, within the memories; takes milliseconds"


def lines(width: int | None, *rows: tuple[str, ...]) -> list[str]:
    return [*table_lines(("op", "what"), rows, width)]


def test_without_a_width_nothing_is_shortened() -> None:
    header, rule, row = lines(None, (NAME, SENTENCE))
    assert header == f"  {'op':{len(NAME)}}  what"
    assert row == f"  {NAME}  {SENTENCE}"
    assert len(rule) == len(row) + 1


@pytest.mark.parametrize("width", [80, 60, 40])
def test_sentences_wrap_and_names_are_not_broken(width: int) -> None:
    found = lines(width, (NAME, SENTENCE), ("MatMul", "short"))
    assert max(map(len, found)) <= width
    words = [word for line in found[2:] for word in line.split()]
    assert [word for word in words if word in SENTENCE.split()] == SENTENCE.split()
    if width == 80:
        assert NAME in words
    (shown,) = {word for word in words if word.startswith("grad")}
    begin, _, end = shown.partition("…")
    assert NAME.startswith(begin)
    assert NAME.endswith(end)


def test_lines_within_a_cell_stay() -> None:
    assert lines(80, ("a\nb", "c"))[2:] == ["  a   c", "  b"]


def test_many_columns_are_shortened_as_far_as_needed() -> None:
    row = tuple(f"{'x' * 30}{i}" for i in range(5))
    found = [*table_lines(tuple("abcde"), [row], 80)]
    assert max(map(len, found)) <= 80
    assert [cell[-1] for cell in found[2].split()] == list("01234")


@pytest.mark.parametrize(
    "line",
    [
        "cache list --cache plans",
        "show 3f9c --all --cache plans",
        "show x.hplan --all --depth 2",
        "explain x.hplan --all --budget 1",
        "diff x.hplan x.hplan",
        f"simulate {GOLDEN} --placement etf",
        "machine list",
        "machine show 8xv100",
        "machine show 2hosts-2xcpu",
        "policy show",
        "plan --planner help",
    ],
)
def test_what_is_printed_fits_80_columns(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    PlanStore(tmp_path / "plans").put(make_plan())
    hp.plan(GOLDEN, "etf").save(tmp_path / "x.hplan")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tables, "terminal_width", lambda: 80)
    assert main(line.split()) == 0
    printed = capsys.readouterr().out
    assert [one for one in printed.splitlines() if len(one) > 80] == []
    assert FINGERPRINT not in printed
