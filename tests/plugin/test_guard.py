"""The guard: a plan takes effect only where it is better than TensorFlow's own placement."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.capture import native
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from tests.processes import run

pytestmark = pytest.mark.skipif(native.is_missing(), reason="needs the native module _tf")

STEPS = """
expected = losses(trainer())
start = len(plugin.history())
on(**OPTIONS)
found = losses(trainer())
report(same=found == expected, history=[
    vars(entry) for entry in plugin.history()[start:] if entry.graph == "function train_step"])
"""


def train(directory: Path, **options: object) -> tuple[dict[str, object], list[str]]:
    """What became of the training step, and the log."""
    outcome = run(f"OPTIONS = {options!r}\n{STEPS}", directory, log="info")
    assert outcome.report["same"]
    (entry,) = outcome.report["history"]
    return entry, outcome.log


def stored(directory: Path) -> Plan:
    (entry,) = [
        entry
        for entry in PlanStore(str(directory / "cache")).list()
        if entry.plan is not None and entry.plan.label == "function train_step"
    ]
    assert entry.plan is not None
    return entry.plan


def test_devices_that_share_cores_keep_tensorflows_placement(tmp_path: Path) -> None:
    options = {"planner": "local_search", "budget_s": 0.2, "on_miss": "plan"}
    first, log = train(tmp_path, **options, min_gain=None)
    again, _ = train(tmp_path, **options, min_gain=None)
    asked, _ = train(tmp_path, **options)  # min_gain=-1

    assert (first["outcome"], first["placed"]) == ("kept", 0)
    assert first["predicted_ns"] == first["baseline_ns"]
    assert "function train_step is left alone: nothing faster than TensorFlow's" in log[-1]
    assert (again["outcome"], again["reason"]) == ("kept", first["reason"])
    assert again["plan_s"] == 0  # each lookup decides, nothing is planned anew
    assert asked["outcome"] == "loaded"


def test_a_pinned_plan_is_the_only_one(tmp_path: Path) -> None:
    train(tmp_path)
    path = tmp_path / "pinned.hplan"
    stored(tmp_path).save(path)
    empty = {"cache": str(tmp_path / "empty"), "min_gain": None}

    entry, log = train(tmp_path, plan=str(path), **empty)
    assert (entry["outcome"], entry["planner"]) == ("loaded", "random")
    assert entry["store_path"] == str(path)
    assert entry["placed"]
    assert log[-1].startswith("hplacer: plan loaded for function train_step")

    foreign = dataclasses.replace(stored(tmp_path), fingerprint="0" * 32)
    foreign.save(path)
    entry, log = train(tmp_path, plan=str(path), **empty)
    assert (entry["outcome"], entry["placed"]) == ("kept", 0)
    assert log[-1].endswith(f"it is not the graph of the plan {path} (option plan)")

    path.unlink()
    entry, log = train(tmp_path, plan=str(path), **empty)
    assert entry["outcome"] == "failed"
    assert "there is no such file" in log[-1]
    assert not os.path.exists(empty["cache"])  # nothing was planned


def test_threads_that_arrive_together_keep_it_together(tmp_path: Path) -> None:
    code = """
on(min_gain=1000)
steps = [trainer() for _ in range(4)]
start = len(plugin.history())
threads = [threading.Thread(target=step) for step in steps]
for thread in threads: thread.start()
for thread in threads: thread.join()
report(outcomes=[entry.outcome for entry in plugin.history()[start:]])
"""
    assert run(code, tmp_path).report["outcomes"] == ["kept"] * 4
