"""The named parts of a fingerprint: how two differ, and a lookup without a plan in a log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hplacer_optimizer.plans.fingerprint import Miss, differences, miss_line, read_misses


def test_what_differs_is_named_with_a_remedy() -> None:
    wanted = {"graph": "a", "targets": "b", "machine": "c", "new": "n"}
    found = differences(wanted, {"graph": "a", "targets": "x", "machine": "c", "old": "o"})
    assert [(d.part, d.wanted, d.found) for d in found] == [
        ("targets", "b", "x"),
        ("new", "n", None),
        ("old", None, "o"),
    ]
    assert all(d.meaning and d.remedy for d in found)


@given(
    label=st.text("abz /:=,().", min_size=1).filter(lambda text: text == text.strip()),
    parts=st.dictionaries(
        st.text("abz_", min_size=1), st.text("abz019-/. ").map(str.strip), min_size=1
    ),
)
def test_a_miss_in_a_log_is_read_as_it_was_written(label: str, parts: dict[str, str]) -> None:
    line = miss_line(label, parts)
    if ": " in label or label.endswith(":"):
        return  # ambiguous; TensorFlow's names of graphs and functions have none
    lines = ["epoch 1", f"INFO:hplacer: {line}\r\n", "no stored plan for anything"]
    assert list(read_misses(lines)) == [Miss(label=label, parts=parts)]
