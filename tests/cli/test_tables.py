"""Tables at several widths."""

from __future__ import annotations

import pytest

from hplacer_optimizer.cli.tables import table_lines

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
