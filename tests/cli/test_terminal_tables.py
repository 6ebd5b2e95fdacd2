"""Tables at several widths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.cli import main, terminal_tables
from hplacer_optimizer.cli.terminal_tables import table_lines
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.verdict import Verdict
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


def test_what_is_too_narrow_for_a_table_is_a_list() -> None:
    rows = [("a", NAME, "", "x"), ("b", "", "c", "")]
    assert [*table_lines(("", "what", "where", "why"), rows, 24)] == [
        "         a",
        "  what   gradie…ddGrad",
        "  why    x",
        "",
        "         b",
        "  where  c",
    ]


def test_a_name_with_spaces_stays_in_one_line() -> None:
    where = " -> ".join(terminal_tables.unbroken(f"worker/{task} CPU:0") for task in range(2))
    found = [*table_lines(("where", "what"), [(where, SENTENCE)], 50)]
    assert found[2].startswith("  worker/0 CPU:0 ->  ")
    assert found[3].startswith("  worker/1 CPU:0     ")


@pytest.mark.parametrize(
    ("width", "columns"),
    [(None, "a b c name"), (60, "a b c name"), (48, "b c name"), (40, "b name"), (20, "b name")],
)
def test_spare_columns_go_one_after_the_other(width: int | None, columns: str) -> None:
    rows = [("first cell", "b", "third cell", NAME)]
    header, *_ = table_lines(("a", "b", "c", "name"), rows, width, spare=("a", "c"))
    assert header.split() == columns.split()


def test_many_columns_are_shortened_as_far_as_needed() -> None:
    row = tuple(f"{'x' * 30}{i}" for i in range(5))
    found = [*table_lines(tuple("abcde"), [row], 80)]
    assert max(map(len, found)) <= 80
    assert [cell[-1] for cell in found[2].split()] == list("01234")


def heads(lines: list[str]) -> list[str]:
    """Of a table's columns; each may be broken over several lines."""
    rule = next(number for number, line in enumerate(lines) if "──" in line)
    starts = [match.start() for match in re.finditer(r"\S+(?: \S+)*", lines[0])]
    ends = [*starts[1:], None]
    cells = (
        [line[a:b].strip() for line in lines[:rule]] for a, b in zip(starts, ends, strict=True)
    )
    return [" ".join(filter(None, cell)) for cell in cells]


def with_verdict(speedup: float, host: str) -> Verdict:
    return Verdict(
        speedup=speedup,
        low=speedup - 0.1,
        high=speedup + 0.1,
        plan_ns=10**6,
        baseline_ns=round(speedup * 10**6),
        turns=3,
        by="hplacer try",
        measured="2024-05-01T12:00:00Z",
        host=host,
        models=[],
    )


def fill(store: PlanStore) -> None:
    """Plans with short and with long names, one of them measured, and one that does not fit."""
    store.put(make_plan())
    store.put(make_plan(fingerprint="00" * 16, planner="local_search", label="session graph"))
    store.put(
        make_plan(
            fingerprint="ab" * 16,
            planner="hierarchical:paper",
            label="__inference_one_step_on_data_distributed_3487",
            verdict=with_verdict(0.52, "train-17.cluster.example.org"),
        )
    )
    store.put(make_plan(fingerprint="cd" * 16, feasible=False))


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (240, "plan|label|planner|step|times as fast|measured|gap|ops|devices|created"),
        (120, "plan|label|step|times as fast|measured|created"),
        (60, "plan|label|step|times as fast|measured"),
    ],
)
def test_a_list_of_plans_keeps_the_columns_that_matter(
    width: int,
    columns: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(PlanStore(tmp_path))
    monkeypatch.setattr(terminal_tables, "terminal_width", lambda: width)
    assert main(["cache", "list", "--cache", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert heads(lines) == columns.split("|")
    assert max(map(len, lines)) <= width
    assert ("train-17" in "".join(lines)) is (width == 240)


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize(
    "line",
    [
        "cache list --cache plans",
        "show 3f9c --all --cache plans",
        "show abab --all --cache plans",
        "show x.hplan --all --depth 2",
        "explain x.hplan --all --budget 1",
        "diff x.hplan x.hplan",
        f"simulate {GOLDEN} --placement etf",
        "machine list",
        "machine show 8xv100",
        "machine show 2hosts-2xcpu",
        "plan --planner help",
    ],
)
def test_what_is_printed_fits(
    line: str,
    width: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(PlanStore(tmp_path / "plans"))
    hp.plan(GOLDEN, "etf").save(tmp_path / "x.hplan")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal_tables, "terminal_width", lambda: width)
    assert main(line.split()) == 0
    printed = capsys.readouterr().out
    assert [one for one in printed.splitlines() if len(one) > width] == []
    assert FINGERPRINT not in printed
