"""A hit and a miss call the functions that the architecture page lists, in its order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.processes import ROOT, run

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
WALK = """
import threading
called, wanted = [], {wanted!r}

def note(frame, event, argument):
    code = frame.f_code
    name = f"{{code.co_qualname}} in {{code.co_filename.rpartition('hplacer_optimizer/')[2]}}"
    if event == "call" and name in wanted:
        called.append(name)

threading.setprofile(note)
on()
losses(trainer())
threading.setprofile(None)
report(called=called, outcomes=outcomes())
"""


def test_a_miss_and_then_a_hit(tmp_path: Path) -> None:
    section = PAGE.read_text().partition("## A hit and a miss")[2].partition("\n## ")[0]
    hit, miss = (
        [f"{name} in {file}" for name, file in re.findall(r"`([\w.]+)` in `([\w./]+)`", part)]
        for part in section.split("A miss begins")
    )
    assert len(hit) == 5
    assert len(set(miss) - set(hit)) <= 5
    code = WALK.format(wanted={*hit, *miss})
    made = run(code, tmp_path).report
    loaded = run(code, tmp_path).report
    assert set(made["outcomes"]) == {"planned"}
    assert set(loaded["outcomes"]) == {"loaded"}
    # Some graphs of the process are planned, all in the same way.
    graphs = len(made["outcomes"])
    assert made["called"] == (hit[:3] + miss) * graphs
    assert loaded["called"] == hit * graphs
