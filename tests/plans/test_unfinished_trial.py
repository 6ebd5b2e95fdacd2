"""What a trial measured before its training ended, and where it is kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplacer_optimizer.machines import host
from hplacer_optimizer.measuring.running_trial import Observations
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.unfinished_trial import UnfinishedTrial
from tests.plans.test_plan import FINGERPRINT, make_plan

numbers = st.floats(0, 1e6)
observed = st.builds(
    Observations,
    logarithms=st.lists(st.floats(-9, 9), max_size=20).map(tuple),
    plan_s=numbers,
    baseline_s=numbers,
    steps=st.integers(0, 10**6),
)


@given(observed)
def test_its_file_holds_all_of_it(found: Observations) -> None:
    trial = UnfinishedTrial.of(make_plan(), found)
    assert UnfinishedTrial.from_bytes(trial.to_bytes()) == trial


@given(st.binary(max_size=50))
def test_what_is_no_such_file_says_nothing(data: bytes) -> None:
    assert UnfinishedTrial.from_bytes(data) is None


@pytest.mark.parametrize(
    "change",
    [
        {"format": "hplacer-trial/2"},
        {"hardware": {"model": "a"}},
        {"observations": {"logarithms": [0.1]}},
        {"observations": {"logarithms": [1e999], "plan_s": 1, "baseline_s": 1, "steps": 1}},
    ],
)
def test_what_another_version_wrote_says_nothing(change: dict[str, Any]) -> None:
    whole = json.loads(UnfinishedTrial.of(make_plan(), Observations()).to_bytes())
    assert UnfinishedTrial.from_bytes(json.dumps(whole | change).encode()) is None


def test_it_is_of_one_plan_on_like_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan()
    trial = UnfinishedTrial.of(plan, Observations((0.1,), 1.0, 1.1, 12))
    assert trial.is_of(plan)
    assert not trial.is_of(make_plan(node_devices=[1, 1, 0]))
    monkeypatch.setattr(host, "name", lambda: "another-container")
    assert trial.is_of(plan)
    monkeypatch.setattr(host, "usable_cores", lambda: 96)
    assert not trial.is_of(plan)


def test_the_store_keeps_it_beside_the_plan(tmp_path: Path) -> None:
    store, plan = PlanStore(tmp_path), make_plan()
    store.put(plan)
    assert store.unfinished_trial(FINGERPRINT) is None
    trial = UnfinishedTrial.of(plan, Observations((0.1, 0.2), 1.0, 1.1, 24))
    store.keep_unfinished_trial(FINGERPRINT, trial)
    assert store.unfinished_trial(FINGERPRINT) == trial
    assert store.fingerprints() == [FINGERPRINT]
    later = dataclasses.replace(trial, observations=Observations((0.1,), 1.0, 1.1, 12))
    store.keep_unfinished_trial(FINGERPRINT, later)
    assert store.unfinished_trial(FINGERPRINT) == later
    store.keep_unfinished_trial(FINGERPRINT, None)
    assert store.unfinished_trial(FINGERPRINT) is None
    store.keep_unfinished_trial(FINGERPRINT, trial)
    store.remove(FINGERPRINT)
    assert store.unfinished_trial(FINGERPRINT) is None
