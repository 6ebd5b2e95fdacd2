"""The environment of children."""

from __future__ import annotations

import pytest

from hplacer_optimizer.support.child_process import planner_variables, without_gpus

LIBRARY = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"


def test_children_without_gpus_have_no_emulated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIBRARY, "/of/somebody/else.so")
    assert without_gpus() == {"CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.setenv("HPLACER_EMULATION", "/tmp/emulation")
    assert without_gpus() == {
        "CUDA_VISIBLE_DEVICES": "",
        LIBRARY: "",
        "HPLACER_EMULATION": "",
        "HPLACER_EMULATED_MACHINE": "",
    }
    assert without_gpus().items() <= planner_variables().items()
