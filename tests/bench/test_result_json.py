"""Results as JSON: the same values, with a row on a line."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from hplacer_optimizer.bench.result_json import result_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda part: st.lists(part, max_size=20) | st.dictionaries(st.text(), part, max_size=20),
    max_leaves=80,
)


@given(VALUES)
def test_it_reads_back(value: object) -> None:
    assert json.loads(result_json(value)) == value


def test_a_record_is_a_line_and_floats_have_six_digits() -> None:
    rows = [{"graph": f"graph {i}", "speedup": 1 / 3, "steps": [1, 2, 3]} for i in range(9)]
    text = result_json({"rows": rows, "curve": [*range(400)]})
    assert '  {"graph": "graph 8", "speedup": 0.333333, "steps": [1, 2, 3]}\n' in text
    assert len(text.splitlines()) < 40
