from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hplacer_optimizer as hp
from hplacer_optimizer import _engine
from hplacer_optimizer.planners import etf
from testbed.documents import problem_from_dict
from testbed.large_problem import layered_problem
from testbed.planted_problems import chains, machine
from testbed.random_problems import make_uneven, problems
from tests.shared_cores import shared_cores

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"


def every_placement(problem: hp.Problem) -> NDArray[np.int32]:
    """All placements, [m ** n, n]."""
    rows = list(itertools.product(range(problem.num_devices), repeat=problem.num_ops))
    return np.array(rows, np.int32).reshape(len(rows), problem.num_ops)


def best_makespan_ns(problem: hp.Problem) -> int | None:
    """Of all feasible placements; None if there is none."""
    makespans, feasible, _ = hp.simulate_batch(problem, every_placement(problem))
    return int(makespans[feasible].min()) if feasible.any() else None


def assert_bounds(document: dict[str, Any]) -> None:
    problem = problem_from_dict(document)
    bound = hp.lower_bound(problem)
    best = best_makespan_ns(problem)
    if bound.ns is None:
        assert bound.infeasible_because
        assert best is None
    else:
        assert not bound.infeasible_because
        assert bound.ns == max(bound.terms.values()) == bound.terms[bound.term or ""]
        assert best is None or bound.ns <= best


@settings(max_examples=200, deadline=None)
@given(problems(max_ops=5))
def test_no_feasible_placement_beats_the_bound(document: dict[str, Any]) -> None:
    assert_bounds(document)


@settings(max_examples=133, deadline=None)
@given(problems(max_ops=5, placeable=True), st.data())
def test_no_feasible_placement_beats_the_bound_of_uneven_ops(
    document: dict[str, Any], data: st.DataObject
) -> None:
    make_uneven(document, data, [100, 1500, 3000, 10**6])
    assert_bounds(document)


def test_a_problem_without_a_feasible_placement_has_no_bound() -> None:
    document = chain(2)
    document["ops"][1]["allowed_devices"] = []
    bound = hp.lower_bound(problem_from_dict(document))
    assert (bound.ns, bound.term, bound.terms) == (None, None, {})
    assert bound.infeasible_because == [
        "op 'op1' has no device: allow one with a kernel for all its ops"
    ]


def chain(length: int) -> dict[str, Any]:
    """Ops of 10 ns one after the other; one device."""
    ops = [{"name": f"op{i}", "type": "T", "cost_ns": {"gpu": 10}} for i in range(length)]
    control_edges = [[i, i + 1] for i in range(length - 1)]
    return machine(1, 0) | {"ops": ops, "edges": [], "control_edges": control_edges}


def test_a_chain_by_hand() -> None:
    bound = hp.lower_bound(problem_from_dict(chain(3)))
    assert bound.ns == 30
    assert bound.term == "critical path through op0"
    assert bound.terms == {"critical path through op0": 30, "load of gpu": 30}


def test_devices_that_share_their_cores_bear_the_load_of_one() -> None:
    document = shared_cores()
    problem = problem_from_dict(document)
    assert hp.simulate(problem, [0, 0, 0, 0]).makespan_ns == 10 + 6 + 4 + 5
    assert _engine.lower_bound(problem).terms["load of cpu"] == 25
    assert _engine.lower_bound(problem.replace(device_cores=None)).terms["load of cpu"] == 13
    # Also where the two are not alike.
    document["ops"][0]["allowed_devices"] = [0]
    document["ops"][1]["allowed_devices"] = [1]
    assert _engine.lower_bound(problem_from_dict(document)).ns == 25


@pytest.mark.parametrize(("sizes", "ns"), [([0, 0, 8], 18), ([8, 0, 8], 36), ([0, 0], 0)])
def test_empty_tensors_of_a_gpu_need_no_channel(sizes: list[int], ns: int) -> None:
    document = chain(2)
    first, second = document["ops"]
    first |= {"cost_ns": {"gpu": 0}, "output_bytes": sizes, "allowed_devices": [0]}
    second |= {"cost_ns": {"gpu": 0}, "allowed_devices": [1]}
    gpu = document["devices"][0]
    gpu |= {"memory_bytes": 100}
    document["devices"] = [gpu | {"launch_ns": 1}, gpu | {"name": "other"}]
    link = {"src": 0, "dst": 1, "channel": "x", "latency_ns": 10, "bytes_per_s": 10**9}
    document |= {"links": [link], "control_edges": []}
    document["edges"] = [[0, tensor, 1] for tensor in range(len(sizes))]
    problem = problem_from_dict(document)
    assert hp.simulate(problem, [0, 1]).makespan_ns == ns
    assert hp.lower_bound(problem).ns == ns


def test_the_bound_of_the_golden_problem_is_near_what_a_planner_finds() -> None:
    problem = hp.load_problem(GOLDEN)
    bound = hp.lower_bound(problem)
    assert bound.terms["critical path through sum"] == 1_071_000
    assert bound.ns == 1_111_000
    assert (bound.term or "").startswith("cost of cutting the graph, or load of the unit of op")
    makespan_ns = hp.simulate(problem, etf.plan(problem).placement).makespan_ns
    assert makespan_ns == bound.ns  # optimal


@pytest.mark.parametrize(
    ("size_bytes", "expected_ns", "term"),
    [
        # Parted anywhere, a chain takes 10 + 50 ns more; so does a join of two devices.
        (50, 800 + 60 + 1, "critical path through join"),
        (500, 800 + 510 + 1, None),
        # Sending takes longer than both chains on one device.
        (1_000, 1600 + 1, None),
    ],
)
def test_the_cost_of_cutting_by_hand(size_bytes: int, expected_ns: int, term: str | None) -> None:
    bound = hp.lower_bound(problem_from_dict(chains(2, 8, 100, size_bytes)[0]))
    joined = "load of the unit of op 'c0/0' of colocation group 'c0/0 and 16 more'"
    expected = term or f"cost of cutting the graph, or {joined}"
    assert (bound.ns, bound.term) == (expected_ns, expected)


def test_the_cost_of_cutting_where_memory_forces_a_cut() -> None:
    document, _ = chains(2, 8, 100, 1_000)
    for op in document["ops"]:
        op["persistent_bytes"] = 1_000
    for device in document["devices"]:
        device["memory_bytes"] = 15_000
    bound = hp.lower_bound(problem_from_dict(document))
    # One chain and the join on one device, the other chain is sent: nothing is shorter.
    assert (bound.ns, bound.term) == (1811, "cost of cutting the graph, or memory")


@pytest.mark.parametrize(
    ("ops", "seconds"), [(50_000, 1.0), pytest.param(1_000_000, 10.0, marks=pytest.mark.slow)]
)
def test_large_problems_are_bounded_in_time(ops: int, seconds: float) -> None:
    problem = deep_problem(ops, devices=9)
    begin = time.process_time()
    first = hp.lower_bound(problem)
    assert time.process_time() - begin < seconds
    assert first.terms == hp.lower_bound(problem).terms


def deep_problem(ops: int, devices: int) -> hp.Problem:
    """A hundred layers, each op reads 4 of the last two layers; a CPU and equal GPUs."""
    rng = np.random.default_rng(0)
    width = ops // 100
    dst = np.repeat(np.arange(width, ops), 4)
    src = np.minimum(np.maximum(dst - 2 * width, 0) + rng.integers(0, width, len(dst)), dst - 1)
    gpu_ns = rng.integers(6_000, 100_000, ops)
    return layered_problem(
        device_names=[f"d{i}" for i in range(devices)],
        device_memory_bytes=10**9 // devices * (ops // 1000),
        channel="{src}-{dst}",
        latency_ns=10_000,
        cost_ns=np.stack([gpu_ns * 8, gpu_ns], axis=1),
        output_bytes=rng.integers(0, 10**6, ops),
        persistent_bytes=rng.integers(0, 1_900_000, ops),
        edges=np.stack([src, np.zeros_like(src), dst], axis=1),
    )
