"""Whether a plan is one for other accelerators."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from hplacer_optimizer.machines import Machine, load_machine, machine_to_yaml, nvidia
from hplacer_optimizer.plans.elsewhere import made_for, why_elsewhere
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.verdict import Verdict
from tests.plans.test_plan import make_plan
from tests.processes import ROOT

GIB = 1 << 30
DEVICES = [f"/job:localhost/replica:0/task:0/device:{name}" for name in ("CPU:0", "GPU:0", "GPU:1")]


def detected(model: str, gib: int = 40) -> Machine:
    """A CPU and two GPUs as training describes them."""
    machine = load_machine("2xa100")
    kinds = [
        kind if kind.type == "CPU" else replace(kind, name=f"GPU {model}", memory_bytes=gib * GIB)
        for kind in machine.kinds
    ]
    devices = [
        replace(device, kind=kinds[machine.device_kind[number]].name)
        for number, device in enumerate(machine.devices)
    ]
    return replace(machine, kinds=tuple(kinds), devices=tuple(devices))


def plan(machine: Machine, *, gib: int = 1, **fields: Any) -> Plan:
    kinds = [machine.kinds[kind].name for kind in machine.device_kind]
    return make_plan(
        machine=machine_to_yaml(machine),
        device_names=DEVICES,
        device_kinds=kinds,
        peak_bytes=[0, gib * GIB, gib * GIB],
        **fields,
    )


A100, A100_80, K40 = "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "Tesla K40m"


@pytest.mark.parametrize(
    ("there", "here", "why"),
    [
        (detected(A100), detected(A100), ""),
        (load_machine("2xa100"), detected(A100), ""),  # pretrained
        (detected(A100), detected(K40), "it was made for 2 x a100, and here are 2 x k40"),
        (load_machine("2xk40"), detected(A100), "it was made for 2 x k40, and here are 2 x a100"),
        (detected("Mystery 9000"), detected(A100), ""),
        (detected(A100), detected("Mystery 9000"), ""),
    ],
)
def test_models_that_are_known(there: Machine, here: Machine, why: str) -> None:
    assert why_elsewhere(plan(there), here) == why


def test_less_memory_than_the_plan_takes() -> None:
    there, here = detected(A100_80, 80), detected(A100_80, 39)
    assert why_elsewhere(plan(there, gib=39), here) == ""
    why = why_elsewhere(plan(there, gib=45), here)
    assert why == "it takes 45 GiB on GPU:0, which has 39 GiB here"
    assert why_elsewhere(plan(there, gib=45, feasible=False), here) == ""


def test_what_was_measured_here_is_used() -> None:
    verdict = Verdict.now(
        speedup=1.5, low=1.4, high=1.6, plan_ns=10, baseline_ns=15, turns=6, by="hplacer try"
    )
    assert why_elsewhere(plan(detected(A100)), detected(K40))
    assert why_elsewhere(plan(detected(A100), verdict=verdict), detected(K40)) == ""


@pytest.mark.parametrize(
    ("here", "ends"),
    [
        (
            "NVIDIA A100-SXM4-40GB, 40960 MiB, 40000 MiB\n" * 2,
            "; this host has such GPUs",
        ),
        ("NVIDIA A100-SXM4-40GB, 40960 MiB, 40000 MiB\n", "; this host has 1 GPU"),
        (
            "Tesla K40m, 11441 MiB, 11000 MiB\n" * 2,
            "; training here makes it anew: it was made for 2 x a100, and here are 2 x k40",
        ),
        (None, "; NVIDIA's driver finds no GPUs on this host"),
    ],
)
def test_what_it_was_made_for_beside_what_is_here(
    monkeypatch: pytest.MonkeyPatch, here: str | None, ends: str
) -> None:
    monkeypatch.setattr(nvidia, "_nvidia_smi", lambda *_: here)
    told = made_for(plan(detected(A100)))
    assert re.fullmatch(
        r"made for 1 x \S+ with .+, 2 x GPU NVIDIA A100-SXM4-40GB with 40 GiB.*", told
    )
    assert told.endswith(ends)


def test_a_plan_for_cpus_is_not_compared() -> None:
    cpus = load_machine(str(ROOT / "testbed" / "two_cpus.yaml"))
    made = made_for(make_plan(machine=machine_to_yaml(cpus)))
    assert made.startswith("made for 2 x ")
    assert ";" not in made
    assert made_for(make_plan(machine=None)) == ""
