"""The `exact` planner: its answers and its proofs against all placements."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hplacer_optimizer as hp
from hplacer_optimizer.cli import main
from hplacer_optimizer.errors import InfeasibleError, PlannerUnavailableError
from hplacer_optimizer.planners import Budget, Progress, Proof, exact
from hplacer_optimizer.plans.simulation import simulate_plan
from tests.documents import problem_from_dict
from tests.large_problem import large_problem
from tests.planned import plan_of
from tests.random_problems import every_placement, make_uneven, problems
from tests.shared_cores import shared_cores

pytest.importorskip("ortools")


def best_step_ns(problem: hp.Problem) -> int | None:
    """Of all placements; None if none is feasible."""
    step_ns, feasible, _ = hp.simulate_batch(problem, every_placement(problem))
    return int(step_ns[feasible].min()) if feasible.any() else None


def solve(problem: hp.Problem, **budget: Any) -> tuple[NDArray[np.int32], list[Proof], list[str]]:
    found = exact.plan(problem, budget=Budget(**budget))
    return found.placement, list(found.proofs), list(found.notes)


def assert_optimal(document: dict[str, Any]) -> None:
    problem = problem_from_dict(document)
    try:
        placement, proofs, notes = solve(problem, seconds=5)
    except InfeasibleError:
        return
    if not problem.num_ops:
        return
    best, trace = best_step_ns(problem), hp.simulate(problem, placement)
    if "optimal" not in notes[0] and "is proved" not in notes[0]:  # the time was over
        assert best is None or not proofs or proofs[0].ns <= best
        return
    if best is None:
        assert notes == ["exact: it is proved that no placement fits"]
        assert not proofs
        return
    assert (trace.feasible, trace.makespan_ns) == (True, best)
    assert [proof.ns for proof in proofs] == [best]
    assert notes == [f"exact: {best} ns is optimal: no placement takes less"]


@settings(max_examples=60, deadline=None)
@given(problems(max_ops=6, version1=True))
def test_small_problems_are_solved_to_the_optimum(document: dict[str, Any]) -> None:
    assert_optimal(document)


@settings(max_examples=30, deadline=None)
@given(problems(max_ops=6, placeable=True, version1=True), st.data())
def test_problems_of_uneven_ops_are_solved_to_the_optimum(
    document: dict[str, Any], data: st.DataObject
) -> None:
    make_uneven(document, data, [1500, 3000, 10**6])
    assert_optimal(document)


@settings(max_examples=30, deadline=None)
@given(problems(max_ops=6, placeable=True, version1=True))
def test_a_search_that_ends_early_has_a_valid_bound(document: dict[str, Any]) -> None:
    problem = problem_from_dict(document)
    if not problem.num_ops or not np.diff(problem.candidate_ptr).all():
        return
    placement, proofs, _ = solve(problem, steps=1)
    best, trace = best_step_ns(problem), hp.simulate(problem, placement)
    for proof in proofs:
        assert best is not None
        assert trace.makespan_ns is not None
        assert proof.ns <= best <= trace.makespan_ns


def chains(count: int, length: int, size_bytes: int) -> hp.Problem:
    """Chains of ops of 100 ns, joined at the end by one of 1 ns; as many devices as chains."""
    ops, edges, ends = [], [], []
    for chain in range(count):
        for i in range(length):
            ops.append({"name": f"c{chain}/{i}", "cost_ns": {"gpu": 100}})
            if i:
                edges.append([len(ops) - 2, 0, len(ops) - 1])
        ends.append(len(ops) - 1)
    ops.append({"name": "join", "cost_ns": {"gpu": 1}})
    pairs = itertools.permutations(range(count), 2)
    return problem_from_dict(
        {
            "format": "hplacer-problem/2",
            "name": "chains",
            "device_kinds": ["gpu"],
            "devices": [
                {"name": f"/device:GPU:{d}", "kind": "gpu", "memory_bytes": 10**9}
                for d in range(count)
            ],
            "links": [
                {"src": a, "dst": b, "channel": f"{a}-{b}", "latency_ns": 10, "bytes_per_s": 10**9}
                for a, b in pairs
            ],
            "ops": [op | {"type": "T", "output_bytes": [size_bytes]} for op in ops],
            "edges": [*edges, *([end, 0, len(ops) - 1] for end in ends)],
        }
    )


def three_on_two() -> hp.Problem:
    """Three ops of 100 ns for two devices: 200 ns, but 150 ns of load."""
    ops = [{"name": f"op{i}", "type": "T", "cost_ns": {"gpu": 100}} for i in range(3)]
    devices = [{"name": f"d{d}", "kind": "gpu", "memory_bytes": 10**9} for d in range(2)]
    return problem_from_dict(
        {
            "format": "hplacer-problem/2",
            "name": "three",
            "device_kinds": ["gpu"],
            "devices": devices,
            "links": [],
            "ops": [op | {"output_bytes": []} for op in ops],
            "edges": [],
        }
    )


@pytest.mark.parametrize(
    ("size_bytes", "optimum_ns"),
    [
        (200, 800 + 10 + 200 + 1),  # each chain on a device of its own, the others sent to the last
        (1_000, 1600 + 1),  # sending takes longer than to run both chains on one device
    ],
)
def test_chains_are_solved(size_bytes: int, optimum_ns: int) -> None:
    problem = chains(2, 8, size_bytes)
    placement, proofs, _ = solve(problem, seconds=60)
    assert hp.simulate(problem, placement).makespan_ns == optimum_ns
    assert [proof.ns for proof in proofs] == [optimum_ns]


def test_devices_that_share_their_cores() -> None:
    problem = problem_from_dict(shared_cores())
    placement, proofs, _ = solve(problem, seconds=60)
    assert hp.simulate(problem, placement).makespan_ns == 25  # the sum of all costs
    assert [proof.ns for proof in proofs] == [25]


def test_the_same_steps_give_the_same_answer() -> None:
    problem = large_problem(60, 3, width=8)
    found = []
    for _ in range(2):
        told: list[Progress] = []
        plan = exact.plan(problem, budget=Budget(steps=1), seed=1, on_progress=told.append)
        found.append((plan.placement.tolist(), plan.notes, told))
    assert found[0] == found[1]
    assert [progress.steps for progress in found[0][2]] == [1]
    assert "no placement takes less than" in found[0][1][0]


def test_large_problems_are_refused() -> None:
    with pytest.raises(PlannerUnavailableError, match=r"2000 ops on 8 devices .* more than 10000"):
        exact.plan(large_problem(2_000))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"device_start_ns": [0, 3]}, "devices[1].start_ns: cannot express devices that start"),
        ({"link_send_ns": [0, 5]}, "links[1].send_ns: cannot express transfers that are work for"),
        ({"link_send_bytes_per_s": [5, 0]}, "links[0].send_bytes_per_s: cannot express transfers"),
        ({"link_receive_ns": [1, 2]}, "links[0].receive_ns: cannot express transfers that are wo"),
        ({"link_receive_bytes_per_s": [0, 1]}, "links[1].receive_bytes_per_s: cannot express tra"),
        (
            {"device_start_ns": [1, 0], "link_receive_ns": [1, 0]},
            "devices[0].start_ns: cannot express devices that start late; choose another planner",
        ),
    ],
)
def test_what_the_program_leaves_out_is_refused(arrays: dict[str, Any], message: str) -> None:
    problem = chains(2, 2, 200)
    problem = problem.replace(**{name: np.array(column) for name, column in arrays.items()})
    with pytest.raises(PlannerUnavailableError) as caught:
        exact.plan(problem)
    assert str(caught.value).startswith(f"exact: {message}")


def test_turns_without_work_change_nothing() -> None:
    problem = chains(2, 8, 1_000)
    placement, proofs, _ = solve(problem.replace(device_turn_ns=np.array([7, 7])), seconds=60)
    assert hp.simulate(problem, placement).makespan_ns == 1601
    assert [proof.ns for proof in proofs] == [1601]


def test_a_plan_keeps_the_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.hplacer.json"
    problem = three_on_two()
    hp.save_problem(problem, path)
    known_ns = hp.lower_bound(problem).ns
    assert known_ns is not None
    assert known_ns < 200
    assert main(["plan", str(path), "--planner", "exact", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["step_time_ns"], found["lower_bound_ns"], found["gap"]) == (200, 200, 0.0)
    term = "3 units in any order (exact)"
    assert found["lower_bound_term"] == term
    proved = plan_of(problem, [0, 0, 1], lower_bound_ns=200, lower_bound_term=term)
    assert proved.gap == 0.0
    assert simulate_plan(proved).bound.term == term
    assert simulate_plan(plan_of(problem, [0, 0, 1])).bound.ns == known_ns
