"""Searches at the limits of what a problem may hold."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.planners import get_planner, rollout
from testbed.documents import problem_from_dict
from testbed.planted_problems import machine


def op(number: int, cost_ns: int, **more: Any) -> dict[str, Any]:
    return {"name": f"op{number}", "type": "T", "cost_ns": {"gpu": cost_ns}} | more


@pytest.mark.parametrize("planner", ["local_search", "rollout", "auto"])
def test_ops_may_take_months(planner: str) -> None:
    ops = [op(i, 15 * 10**16, allowed_devices=[0, 1]) for i in range(16)]
    problem = problem_from_dict(machine(600, is_linked=False) | {"ops": ops, "edges": []})
    found = get_planner(planner).plan(problem, budget=hp.Budget(steps=900))
    assert hp.simulate(problem, found.placement).makespan_ns == 8 * 15 * 10**16


def test_a_kind_without_devices_may_have_any_cost() -> None:
    document = machine(2)
    document["device_kinds"] = ["gpu", "tpu"]
    costs = [{"gpu": 1000 + i, "tpu": 2**61} for i in range(48)]
    document["ops"] = [op(i, 0, output_bytes=[1]) | {"cost_ns": costs[i]} for i in range(48)]
    document["edges"] = [[i, 0, i + 1] for i in range(47)]
    problem = problem_from_dict(document)
    found = get_planner("local_search").plan(problem, budget=hp.Budget(steps=30_000))
    step_ns = hp.simulate(problem, found.placement).makespan_ns
    assert step_ns == sum(cost["gpu"] for cost in costs)


def test_memory_that_is_missing_may_be_more_than_can_be_counted() -> None:
    document = machine(9, memory_bytes=0)
    document["devices"][0]["memory_bytes"] = 2**62
    for link in document["links"]:
        link["bytes_per_s"] = 2**62
    document["ops"] = [op(0, 1, allowed_devices=[0], output_bytes=[2**61])]
    document["ops"] += [op(i, 1, allowed_devices=[i]) for i in range(1, 9)]
    document["ops"] += [op(9, 1)]
    document["edges"] = [[0, 0, i] for i in range(1, 9)]
    told: list[hp.Progress] = []
    problem = problem_from_dict(document)
    found = get_planner("local_search").plan(problem, on_progress=told.append)
    assert not hp.simulate(problem, found.placement).feasible
    assert told[-1].best_ns is None


def test_a_few_placements_of_a_large_graph_end_with_the_budget() -> None:
    ops = [op(i, 10, allowed_devices=[0] if i >= 12 else [0, 1]) for i in range(20_000)]
    problem = problem_from_dict(machine(2) | {"ops": ops, "edges": []})
    stop = threading.Event()
    found = get_planner("local_search").plan(
        problem, budget=hp.Budget(stop=stop), on_progress=lambda _: stop.set()
    )
    assert found.placements < 1000


def test_passes_are_at_least_one() -> None:
    with pytest.raises(hp.ProblemError, match="passes: must be from 1 to 1048576, got 0"):
        rollout.search(hp.load_problem("example"), passes=0)


def test_ctrl_c_ends_a_large_batch() -> None:
    problem = problem_from_dict(machine(2) | {"ops": [op(i, 1) for i in range(1000)], "edges": []})

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    placements = np.zeros((20_000, 1000), np.int32)
    before = signal.signal(signal.SIGALRM, interrupt)
    begin = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            hp.simulate_batch(problem, placements)
        interrupted_s = time.monotonic() - begin
        begin = time.monotonic()
        hp.simulate_batch(problem, placements)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted_s < (time.monotonic() - begin) / 2


def test_names_are_text() -> None:
    problem = hp.load_problem("example")
    with pytest.raises(TypeError, match="'name' has the wrong type"):
        problem.replace(name=b"\xff")
    with pytest.raises(TypeError, match="'op_types' has the wrong type"):
        problem.replace(op_types=[b"\xff"] * problem.num_ops)
    assert problem.replace(name="\u00e4").name == "\u00e4"


def test_a_budget_can_be_counted() -> None:
    with pytest.raises(hp.OptionError, match="budget steps: must be at most"):
        hp.Budget(steps=2**63)
    assert hp.plan("example", "local_search", steps=2**63 - 1).feasible
