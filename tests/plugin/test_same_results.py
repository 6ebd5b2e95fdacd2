"""Trials change no result: switches at every call, and real trials, beside training alone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.capture import native
from testbed.same_results import NAMES, compare_in_process
from testbed.tried_steps import KEEP_STATE

pytestmark = pytest.mark.skipif(native.is_missing(), reason="needs the native module _tf")

FAST = {"lookup tables"}


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_trial_changes_no_result(name: str, tmp_path: Path) -> None:
    found = compare_in_process(name, tmp_path)
    assert found.is_same
    if name in KEEP_STATE:
        assert "keeps state in its kernel" in found.left_out
        assert (found.switched, found.tried) == (0, 0)
    else:
        assert found.left_out == ""
        assert found.is_tried
