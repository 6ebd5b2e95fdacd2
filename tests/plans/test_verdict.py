"""What was measured of a plan: kept with it, and stronger than predictions on the same hardware."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplacer_optimizer.cli import main
from hplacer_optimizer.errors import PlanError, StoreError
from hplacer_optimizer.machines import host, load_machine
from hplacer_optimizer.plans import verdict as verdict_module
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.verdict import FASTER, NO_DIFFERENCE, SLOWER, Verdict
from tests.plans.test_plan import BASELINE, FINGERPRINT, changed, make_plan

SPEEDUPS = {FASTER: (1.4, 1.5, 1.6), SLOWER: (0.4, 0.5, 0.6), NO_DIFFERENCE: (0.99, 1.0, 1.01)}


ELSEWHERE: dict[str, Any] = {"host": "worker-9", "cores": 96.0}


def verdict(outcome: str, **changes: Any) -> Verdict:
    low, speedup, high = SPEEDUPS[outcome]
    found = Verdict.now(
        speedup=speedup,
        low=low,
        high=high,
        plan_ns=round(80_000_000 / speedup),
        baseline_ns=80_000_000,
        turns=4,
        by="hplacer try train.py",
    )
    return dataclasses.replace(found, **changes)


def plan(outcome: str | None = None, devices: tuple[int, ...] = (0, 1, 1), **changes: Any) -> Plan:
    return make_plan(
        verdict=None if outcome is None else verdict(outcome), node_devices=devices, **changes
    )


def elsewhere(plan: Plan) -> Plan:
    assert plan.verdict is not None
    return dataclasses.replace(plan, verdict=dataclasses.replace(plan.verdict, **ELSEWHERE))


@pytest.mark.parametrize("machine", ["8xa100", None])
@pytest.mark.parametrize("outcome", SPEEDUPS)
def test_a_plan_file_keeps_it(outcome: str, machine: str | None) -> None:
    judged = make_plan(verdict=verdict(outcome, emulated=machine))
    again = Plan.from_bytes(judged.to_bytes())
    assert again == judged != plan()
    assert again.verdict == judged.verdict
    assert again.verdict is not None
    assert again.verdict.outcome == outcome
    assert ("emulated" in again.verdict.as_json()) is (machine is not None)
    assert Plan.from_bytes(plan().to_bytes()).verdict is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"speedup": 2.0},
        {"low": -1.0},
        {"measured": "yesterday"},
        {"models": "a"},
        {"emulated": 8},
    ],
)
def test_what_is_no_verdict_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=r"plan\.verdict "):
        make_plan(verdict={**verdict(FASTER).as_json(), **wrong})
    with pytest.raises(PlanError, match="does not hold JSON"):
        Plan.from_bytes(changed(verdict=b"{"))
    with pytest.raises(PlanError, match=r"plan\.verdict must be an object of"):
        Plan.from_bytes(changed(verdict=b"{}"))


def test_it_binds_where_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict(SLOWER).binds
    assert verdict(SLOWER).outcome_here == SLOWER
    assert verdict(SLOWER, host="worker-9").binds  # a container has a new name at each start
    assert not verdict(SLOWER, cores=96.0).binds
    assert not verdict(SLOWER, host="worker-9", cores=None).binds  # as of an older version
    assert verdict(SLOWER, models=["another processor"]).outcome_here is None
    judged = plan(SLOWER)
    monkeypatch.setattr(host, "name", lambda: "worker-9")
    assert judged.is_retired
    monkeypatch.setattr(host, "usable_cores", lambda: 96)
    assert not judged.is_retired
    monkeypatch.undo()
    monkeypatch.setattr(host, "models", lambda: ("another processor",))
    assert not judged.is_retired


def test_a_plan_of_a_failed_step_is_retired(tmp_path: Path) -> None:
    failed = verdict(FASTER, failure="ResourceExhaustedError: OOM")
    assert failed.outcome == SLOWER
    assert str(failed) == "a step with the plan failed (ResourceExhaustedError: OOM)"
    judged = dataclasses.replace(plan(), verdict=failed)
    assert Plan.from_bytes(judged.to_bytes()).is_retired


OTHER = (1, 0, 1)


def test_a_later_verdict_on_the_same_placement_counts(tmp_path: Path) -> None:
    store = PlanStore(tmp_path)
    early = dataclasses.replace(plan(), verdict=verdict(FASTER, measured="2026-05-01T12:00:00Z"))
    late = dataclasses.replace(plan(), verdict=verdict(SLOWER, measured="2026-05-02T12:00:00Z"))
    assert store.put(early)
    assert store.put(late)
    assert not store.put(early)


def test_a_plan_is_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directories = [tmp_path / "near", tmp_path / "far"]
    store = PlanStore(";".join(map(str, directories)))
    assert store.put(plan(SLOWER, baseline=BASELINE))
    assert main(["cache", "restore", FINGERPRINT[:6], "--cache", store.directory]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"restored {directory}/{FINGERPRINT}.hplan: its verdict is deleted"
        for directory in directories
    ]
    assert store.get(FINGERPRINT) == plan(baseline=BASELINE)
    assert main(["cache", "restore", FINGERPRINT[:6], "--cache", store.directory]) == 1
    assert "nobody has measured the plan" in capsys.readouterr().err
    with pytest.raises(StoreError, match="no plan"):
        store.restore("00")


# ---- emulated devices ----

EMULATED, REAL = "8xa100", None


@contextmanager
def devices_of(machine: str | None) -> Iterator[None]:
    """The devices of this process are emulated as those of a shipped machine, or real ones."""
    with pytest.MonkeyPatch.context() as patch:
        found = machine and load_machine(machine)
        patch.setattr(verdict_module, "emulated_machine", lambda: found)
        yield


def of(
    machine: str | None, outcome: str, devices: tuple[int, ...] = (0, 1, 1), **more: Any
) -> Plan:
    """A plan that was measured on emulated or real devices."""
    with devices_of(machine):
        return plan(outcome, devices, baseline=BASELINE, **more)


def test_an_emulated_verdict_counts_on_every_host(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = of(EMULATED, SLOWER)
    monkeypatch.setattr(host, "name", lambda: "worker-9")
    with devices_of(EMULATED):
        assert judged.is_retired


EARLY = {"measured": "2026-05-01T12:00:00Z"}


def dated(plan: Plan) -> Plan:
    assert plan.verdict is not None
    return dataclasses.replace(plan, verdict=dataclasses.replace(plan.verdict, **EARLY))


@pytest.mark.parametrize(
    ("existing", "new", "here", "wins"),
    [
        (plan(FASTER), plan(None, OTHER, step_time_ns=1), REAL, False),
        (plan(FASTER), plan(None), REAL, False),
        (elsewhere(plan(FASTER)), plan(None, OTHER, step_time_ns=1), REAL, False),
        (plan(SLOWER), plan(None), REAL, False),
        (plan(SLOWER), plan(None, OTHER, step_time_ns=10**9), REAL, True),
        (plan(SLOWER), plan(None, OTHER, feasible=False), REAL, False),
        (plan(None), plan(SLOWER), REAL, True),
        (plan(None), plan(SLOWER, OTHER, step_time_ns=1), REAL, False),
        (plan(None), plan(FASTER, OTHER, step_time_ns=10**9), REAL, True),
        (plan(None), plan(NO_DIFFERENCE, OTHER, step_time_ns=1), REAL, True),
        (plan(NO_DIFFERENCE), plan(None, OTHER, step_time_ns=1), REAL, True),
        (plan(FASTER), plan(SLOWER, OTHER), REAL, False),
        (plan(SLOWER), plan(FASTER, OTHER), REAL, True),
        (plan(FASTER), plan(FASTER, OTHER), REAL, False),
        # On one placement the verdict of real devices stays, and a later one of emulated devices.
        (of(REAL, SLOWER), of(EMULATED, FASTER), EMULATED, False),
        (of(REAL, FASTER), of(EMULATED, SLOWER), REAL, False),
        (of(EMULATED, FASTER), dated(of(REAL, SLOWER)), EMULATED, True),
        (dated(of(EMULATED, FASTER)), of(EMULATED, SLOWER), REAL, True),
        (of(EMULATED, FASTER), dated(of(EMULATED, SLOWER)), REAL, False),
        (plan(None), of(EMULATED, SLOWER), REAL, True),
        (of(EMULATED, SLOWER), plan(None), REAL, False),
        # What is confirmed or retired on real devices does not give way to emulated ones.
        (of(REAL, FASTER), of(EMULATED, FASTER, OTHER, step_time_ns=1), EMULATED, False),
        (of(REAL, NO_DIFFERENCE), of(EMULATED, FASTER, OTHER, step_time_ns=10**9), EMULATED, False),
        (of(EMULATED, FASTER), of(REAL, FASTER, OTHER, step_time_ns=10**9), EMULATED, True),
        (of(EMULATED, FASTER), of(REAL, SLOWER, OTHER, step_time_ns=1), REAL, False),
        # Between plans that no real device has seen it chooses on such devices only.
        (plan(None), of(EMULATED, FASTER, OTHER, step_time_ns=10**9), EMULATED, True),
        (plan(None), of(EMULATED, FASTER, OTHER, step_time_ns=10**9), REAL, False),
        (plan(None), of(EMULATED, FASTER, OTHER, step_time_ns=10**9), "8xv100", False),
        (of(EMULATED, FASTER), plan(None, OTHER, step_time_ns=1), EMULATED, False),
        (of(EMULATED, FASTER), plan(None, OTHER, step_time_ns=1), REAL, True),
        (of(EMULATED, SLOWER), plan(None, OTHER, step_time_ns=10**9), EMULATED, True),
        (of(EMULATED, SLOWER), plan(None, OTHER, step_time_ns=10**9), REAL, False),
    ],
)
def test_which_plan_the_store_keeps(
    tmp_path: Path, existing: Plan, new: Plan, here: str | None, wins: bool
) -> None:
    store = PlanStore(tmp_path)
    assert store.put(existing)
    with devices_of(here):
        assert store.put(new) is wins
    assert store.get(FINGERPRINT) == (new if wins else existing)


def test_whoever_tells_it_says_emulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    judged = of(EMULATED, SLOWER)
    assert judged.verdict is not None
    assert str(judged.verdict).endswith("160 ms instead of 80 ms; emulated 8xa100)")
    assert "by hplacer try train.py on emulated devices (8xa100), " in judged.verdict.source
    assert judged.summary_line().endswith("; measured: 0.50 times as fast (emulated)")
    store, cache = PlanStore(tmp_path), ["--cache", str(tmp_path)]
    store.put(judged)
    assert "0.50 emulated" in shown(capsys, "cache", "list", *cache)
    assert "it decides nothing on real ones" in shown(capsys, "show", FINGERPRINT, *cache)
    with devices_of(EMULATED):
        assert "0.50 emulated, retired" in shown(capsys, "cache", "list", *cache)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_commands_tell_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    store, cache = PlanStore(tmp_path), ["--cache", str(tmp_path)]
    store.put(plan(SLOWER, baseline=BASELINE))
    assert "0.50, retired" in shown(capsys, "cache", "list", *cache)
    said = shown(capsys, "show", FINGERPRINT, *cache)
    ratio = "0.50 times as fast as TensorFlow's placement"
    assert f"measured: {ratio} (0.40 to 0.60; 160 ms instead of 80 ms)" in said
    assert "by hplacer try train.py" in said
    assert (
        "retired: training keeps TensorFlow's placement; `hplacer cache restore 3f9c2b1a`" in said
    )

    store.restore(FINGERPRINT)
    store.put(elsewhere(plan(SLOWER, baseline=BASELINE)))
    assert "0.50 on worker-9" in shown(capsys, "cache", "list", *cache)
    assert "it decides nothing here" in shown(capsys, "show", FINGERPRINT, *cache)


def test_why_tells_that_a_plan_is_retired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = plan(SLOWER, baseline=BASELINE)
    PlanStore(tmp_path / "cache").put(judged)
    parts = ", ".join(f"{name}={value}" for name, value in judged.fingerprint_parts.items())
    log = tmp_path / "train.log"
    log.write_text(f"hplacer: no stored plan for {judged.label}: {parts}\n")
    arguments = ["why", str(log), "--cache", str(tmp_path / "cache")]
    assert main(arguments) == 1
    said = capsys.readouterr().out
    assert "is stored now and fits" in said
    assert "retired: training keeps TensorFlow's placement" in said
    PlanStore(tmp_path / "cache").restore(FINGERPRINT)
    assert main(arguments) == 0


def test_models_are_those_of_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert all(isinstance(model, str) and model for model in host.models())
    for number in range(2):
        gpu = tmp_path / "gpus" / f"0000:0{number}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text("Model: \t\t NVIDIA H100\nIRQ: 1\n")
    original: Callable[..., Path] = host.Path

    def path(name: str) -> Path:
        return original(name.replace("/proc/driver/nvidia", str(tmp_path)))

    monkeypatch.setattr(host, "Path", path)
    host.models.cache_clear()
    try:
        assert host.models()[-2:] == ("NVIDIA H100", "NVIDIA H100")
    finally:
        host.models.cache_clear()


def test_the_same_nodes_on_the_same_devices() -> None:
    assert plan().places_as(plan(SLOWER, planner="other"))
    assert not plan().places_as(plan(None, OTHER))
    assert not plan().places_as(make_plan(node_hashes=np.array([1, 2, 3], np.uint64)))
