"""The planner table and the `etf` planner."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import InfeasibleError, OptionError
from hplacer_optimizer.planners import PLANNERS, Budget, get_planner
from hplacer_optimizer.planners.etf import plan
from hplacer_optimizer.problem import load_problem_file
from hplacer_optimizer.simulator import simulate
from tests.documents import problem_from_dict
from tests.random_problems import problems

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_PROBLEM = GOLDEN / "two_towers.hplacer.json"


def candidates(document: dict[str, Any], i: int) -> set[int]:
    """Devices where op i and its whole colocation group may run."""
    group = document["ops"][i].get("colocation_group")
    result = set(range(len(document["devices"])))
    for j, op in enumerate(document["ops"]):
        if j == i or (group is not None and op.get("colocation_group") == group):
            result &= {
                d
                for d, device in enumerate(document["devices"])
                if device["kind"] in op["cost_ns"] and d in op.get("allowed_devices", [d])
            }
    return result


def large_problem(num_ops: int, num_devices: int = 8, width: int = 50) -> Problem:
    """A random layered graph with colocation groups of ten on equal devices and a slower one."""
    rng = np.random.default_rng(0)
    src = np.maximum(0, np.arange(1, num_ops) - rng.integers(1, width, (2, num_ops - 1)))
    dst = np.broadcast_to(np.arange(1, num_ops), src.shape)
    edges = np.stack([src.ravel(), np.zeros(src.size, np.int64), dst.ravel()], axis=1)
    pairs = [(a, b) for a in range(num_devices) for b in range(num_devices) if a != b]
    cost = rng.integers(1_000, 100_000, num_ops)
    groups = np.where(rng.random(num_ops) < 0.2, np.arange(num_ops) // 10, -1)
    return Problem(
        name="large",
        device_kinds=["cpu", "gpu"],
        device_names=[f"d{d}" for d in range(num_devices)],
        device_kind=np.array([0] + [1] * (num_devices - 1), np.int32),
        device_memory_bytes=np.full(num_devices, 2**40),
        device_slots=np.ones(num_devices, np.int32),
        link_src=np.array([a for a, _ in pairs], np.int32),
        link_dst=np.array([b for _, b in pairs], np.int32),
        link_channel=[f"up{a}" for a, _ in pairs],
        link_latency_ns=np.full(len(pairs), 1_000),
        link_bytes_per_s=np.full(len(pairs), 10**10),
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        cost_ns=np.stack([10 * cost, cost], axis=1),
        output_ptr=np.arange(num_ops + 1),
        output_bytes=rng.integers(0, 100_000, num_ops),
        output_alias_src=np.full(num_ops, -1, np.int32),
        output_alias_output=np.zeros(num_ops, np.int32),
        temp_bytes=np.zeros(num_ops, np.int64),
        persistent_bytes=rng.integers(0, 1_000, num_ops),
        edges=edges.astype(np.int32),
        control_edges=np.zeros((0, 2), np.int32),
        allowed_ptr=np.zeros(num_ops + 1, np.int64),
        allowed_device=np.zeros(0, np.int32),
        allowed_given=np.zeros(num_ops, np.bool_),
        colocation_group=groups.astype(np.int32),
        colocation_group_names=[f"g{i}" for i in range(num_ops // 10 + 1)],
    )


@pytest.mark.parametrize("name", PLANNERS)
def test_golden_placement(name: str) -> None:
    golden = GOLDEN / f"{name}.json"
    assert golden.exists(), f"planner '{name}' needs a golden placement of {GOLDEN_PROBLEM.name}"
    placement = PLANNERS[name](load_problem_file(GOLDEN_PROBLEM), seed=0)
    assert placement.dtype == np.int32
    assert placement.tolist() == json.loads(golden.read_text())


def test_two_towers_run_side_by_side() -> None:
    problem = load_problem_file(GOLDEN_PROBLEM)
    makespan_ns = simulate(problem, plan(problem)).makespan_ns
    one_gpu = [0 if name in ("input", "log") else 1 for name in problem.op_names]
    alone_ns = simulate(problem, one_gpu).makespan_ns
    assert makespan_ns is not None
    assert alone_ns is not None
    assert makespan_ns < 0.7 * alone_ns


@settings(max_examples=300, deadline=None)
@given(problems())
def test_placements_are_valid(document: dict[str, Any]) -> None:
    problem = problem_from_dict(document)
    allowed = [candidates(document, i) for i in range(problem.num_ops)]
    if all(allowed):
        placement = plan(problem)
        assert all(device in devices for device, devices in zip(placement, allowed, strict=True))
        assert placement.tobytes() == plan(problem_from_dict(document)).tobytes()
        groups: dict[str, int] = {}
        for op, device in zip(document["ops"], placement, strict=True):
            if "colocation_group" in op:
                assert groups.setdefault(op["colocation_group"], device) == device
    else:
        with pytest.raises(InfeasibleError, match="can run on none of the devices"):
            plan(problem)


@settings(max_examples=100, deadline=None)
@given(problems(placeable=True))
def test_enough_memory_and_links_make_a_feasible_placement(document: dict[str, Any]) -> None:
    for device in document["devices"]:
        device["memory_bytes"] = 10**6
    if all(candidates(document, i) for i in range(len(document["ops"]))):
        problem = problem_from_dict(document)
        assert simulate(problem, plan(problem)).infeasible_because == []


def test_ten_thousand_ops_take_less_than_a_second() -> None:
    problem = large_problem(10_000)
    start = time.perf_counter()
    placement = plan(problem)
    assert time.perf_counter() - start < 1
    trace = simulate(problem, placement)
    assert trace.feasible
    # Seven equal devices; one alone would take the sum.
    assert trace.makespan_ns is not None
    assert trace.makespan_ns < problem.cost_ns[:, 1].sum() / 3


def test_get_planner() -> None:
    assert get_planner("etf") is plan
    assert get_planner("hplacer_optimizer.planners.etf:plan") is plan


@pytest.mark.parametrize(
    "name",
    ["", "ETF", "etf:", ":plan", "no_such_module:plan", "json:no_such_function", "json:__name__"],
)
def test_unknown_planners(name: str) -> None:
    with pytest.raises(OptionError, match=r"planner: "):
        get_planner(name)


def test_an_unknown_planner_lists_the_valid_ones() -> None:
    with pytest.raises(OptionError, match=r"unknown name 'magic'; valid are etf"):
        get_planner("magic")


@pytest.mark.parametrize(
    "limits",
    [{"seconds": 0}, {"seconds": float("nan")}, {"seconds": "1"}, {"steps": 0}, {"steps": 1.5}],
)
def test_refused_budgets(limits: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="budget"):
        Budget(**limits)
