"""The planner table, and what every planner in it promises."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import InfeasibleError, OptionError, PlannerUnavailableError
from hplacer_optimizer.options import Options
from hplacer_optimizer.planners import (
    PLANNERS,
    Budget,
    PlannerResult,
    Progress,
    auto,
    etf,
    get_planner,
    human_expert,
    scotch,
)
from hplacer_optimizer.planners.devices import device_types
from hplacer_optimizer.planners.launch_orders import mean_steps_ns
from hplacer_optimizer.planners.learning import LEARNED_PLANNERS
from hplacer_optimizer.planners.robustness import TOLERANCE
from hplacer_optimizer.plans.making import Search
from hplacer_optimizer.problem.problem_file import load_problem_file
from hplacer_optimizer.problem.simulator import simulate
from testbed.documents import problem_from_dict
from testbed.large_problem import large_problem
from testbed.planted_problems import machine
from testbed.random_problems import problems


def scotch_version() -> str:
    program = shutil.which("scotch_gmap") or shutil.which("gmap")
    if program is None:
        return ""
    return subprocess.run([program, "-V"], capture_output=True, text=True, timeout=10).stderr


def has_package(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


NEEDED_LIBRARY = {
    "metis": lambda: has_package("pymetis"),
    "mincut": lambda: bool(scotch_version()),
    "scotch": lambda: bool(scotch_version()),
    "sct": lambda: has_package("scipy"),
}
GOLDEN = Path(__file__).parents[1] / "golden"
GOLDEN_PROBLEM = GOLDEN / "two_towers.hplacer.json"
# No random graph is a workload that the expert knows: here it has rules of its own. What learns has
# tests of its own, in test_learning.py.
QUICK = {name: entry.plan for name, entry in PLANNERS.items() if name not in LEARNED_PLANNERS}
TESTED = {**QUICK, "human_expert": human_expert.with_rules(GOLDEN / "expert_rules.yaml")}
SEARCHES = {"auto", "local_search", "rollout"}  # better ones give other placements
LIST_SCHEDULERS = ["etf", "heft", "sct"]
NEEDED_TYPE = {"cpu_only": "cpu", "gpu_only": "gpu", "human_expert": "gpu"}


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


@pytest.fixture(autouse=True)
def _skip_without_the_library(request: pytest.FixtureRequest) -> None:
    """Planners of optional libraries are tested where these are installed, as in `.ci/run`."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if name in NEEDED_LIBRARY and not NEEDED_LIBRARY[name]():
        pytest.skip(f"planner '{name}' is not available: see docs/reference/planners.md")


@pytest.mark.parametrize("name", sorted(TESTED.keys() - SEARCHES))
def test_golden_placement(name: str) -> None:
    if name in ("scotch", "mincut") and "version 7.0.3" not in scotch_version():
        pytest.skip("the golden placement is of Scotch 7.0.3")
    golden = GOLDEN / f"{name}.json"
    assert golden.exists(), f"planner '{name}' needs a golden placement of {GOLDEN_PROBLEM.name}"
    placement = TESTED[name](load_problem_file(GOLDEN_PROBLEM), seed=0).placement
    assert placement.dtype == np.int32
    assert placement.tolist() == json.loads(golden.read_text())


@pytest.mark.parametrize("name", TESTED)
@settings(max_examples=40, deadline=None)
@given(document=problems())
def test_placements_are_valid_and_deterministic(name: str, document: dict[str, Any]) -> None:
    planner = TESTED[name]
    problem = problem_from_dict(document)
    allowed = [candidates(document, i) for i in range(problem.num_ops)]
    needed = NEEDED_TYPE.get(name)
    try:
        placement = planner(problem, seed=3).placement
    except PlannerUnavailableError:
        assert needed is not None
        assert needed not in [device["kind"] for device in document["devices"]]
        return
    except InfeasibleError:  # its message: test_a_unit_without_any_device_is_named
        assert not all(allowed)
        return
    assert all(allowed)
    assert placement.dtype == np.int32
    assert all(device in devices for device, devices in zip(placement, allowed, strict=True))
    again = planner(problem_from_dict(document), seed=3).placement
    assert placement.tobytes() == again.tobytes()
    groups: dict[str, int] = {}
    for op, device in zip(document["ops"], placement, strict=True):
        if "colocation_group" in op:
            assert groups.setdefault(op["colocation_group"], device) == device


@pytest.mark.parametrize("name", LIST_SCHEDULERS)
@settings(max_examples=100, deadline=None)
@given(document=problems(placeable=True))
def test_enough_memory_and_links_make_a_feasible_placement(
    name: str, document: dict[str, Any]
) -> None:
    for device in document["devices"]:
        device["memory_bytes"] = 10**6
    if all(candidates(document, i) for i in range(len(document["ops"]))):
        problem = problem_from_dict(document)
        assert simulate(problem, TESTED[name](problem).placement).infeasible_because == []


@pytest.mark.parametrize("name", TESTED)
def test_a_unit_without_any_device_is_named(name: str) -> None:
    document = json.loads(GOLDEN_PROBLEM.read_text())
    document["ops"][3]["allowed_devices"] = []
    document["ops"][3].pop("colocation_group", None)
    with pytest.raises(InfeasibleError, match=r"op 'a0/matmul'.*can run on none of the devices"):
        TESTED[name](problem_from_dict(document))


@pytest.mark.parametrize("name", TESTED)
def test_too_little_memory_still_gives_a_placement(name: str) -> None:
    document = json.loads(GOLDEN_PROBLEM.read_text())
    for device in document["devices"]:
        device["memory_bytes"] = 1000
    problem = problem_from_dict(document)
    trace = simulate(problem, TESTED[name](problem).placement)
    assert trace.has_trace
    assert not trace.feasible
    assert all("bytes" in reason for reason in trace.infeasible_because)


@pytest.mark.parametrize("name", TESTED)
def test_a_budget_is_kept_and_progress_is_told_in_order(name: str) -> None:
    problem = large_problem(2_000)
    calls: list[Progress] = []
    start = time.perf_counter()
    found = TESTED[name](problem, budget=Budget(seconds=1), on_progress=calls.append)
    assert time.perf_counter() - start < 3
    steps = [call.steps for call in calls]
    assert steps == sorted(set(steps))
    assert all(step >= 1 for step in steps)
    best = [call.best_ns for call in calls if call.best_ns is not None]
    assert best == sorted(best, reverse=True)
    if best:
        step_ns = simulate(problem, found.placement).makespan_ns
        assert step_ns is not None
        # `auto` makes it robust after the search.
        assert step_ns <= best[-1] * (1 + TOLERANCE) if name == "auto" else step_ns == best[-1]
    assert (found.steps, len(found.curve)) == (steps[-1] if steps else 0, len(calls))


@pytest.mark.parametrize("name", TESTED)
def test_an_interrupt_from_the_progress_callback_leaves(name: str) -> None:
    problem = large_problem(500)
    called = False

    def interrupt(_: Progress) -> None:
        nonlocal called
        called = True
        raise KeyboardInterrupt

    try:
        TESTED[name](problem, on_progress=interrupt)
    except KeyboardInterrupt:
        assert called
    else:
        assert not called


# ---- cpu_only, gpu_only, round_robin, random ----


def small_problem(devices: list[tuple[str, str]], ops: list[dict[str, Any]]) -> Problem:
    """`devices`: (name, kind); every op has a kernel on every kind unless it says otherwise."""
    kinds = sorted({kind for _, kind in devices})
    document = machine([name for name, _ in devices], 1000, is_linked=False)
    for device, (_, kind) in zip(document["devices"], devices, strict=True):
        device["kind"] = kind
    ops = [
        {"name": f"op{i}", "type": "T", "cost_ns": dict.fromkeys(kinds, 1), **op}
        for i, op in enumerate(ops)
    ]
    return problem_from_dict(document | {"device_kinds": kinds, "ops": ops, "edges": []})


MACHINE = [("/device:CPU:0", "x"), ("/device:GPU:0", "y"), ("/device:GPU:1", "y")]


def test_cpu_only_and_gpu_only_leave_what_has_no_kernel() -> None:
    ops: list[dict[str, Any]] = [
        {},
        {"cost_ns": {"x": 1}},
        {"cost_ns": {"y": 1}},
        {"allowed_devices": [2]},
        {"colocation_group": "g"},
        {"colocation_group": "g", "cost_ns": {"x": 1}},
    ]
    problem = small_problem(MACHINE, ops)
    assert PLANNERS["cpu_only"].plan(problem).placement.tolist() == [0, 0, 1, 2, 0, 0]
    assert PLANNERS["gpu_only"].plan(problem).placement.tolist() == [1, 0, 1, 2, 0, 0]


@pytest.mark.parametrize(
    ("name", "kind", "device_type"),
    [
        ("/job:worker/replica:0/task:1/device:GPU:3", "k40", "GPU"),
        ("/device:XLA_GPU:0", "gpu", "XLA_GPU"),
        ("d0", "CPU (1/2 of the cores)", "CPU"),
        ("d0", "GPU NVIDIA H200", "GPU"),
        ("d0", "tpu", "TPU"),
    ],
)
def test_device_types(name: str, kind: str, device_type: str) -> None:
    assert device_types(small_problem([(name, kind)], [])) == [device_type]


def test_a_missing_type_of_device_is_named() -> None:
    with pytest.raises(PlannerUnavailableError, match=r"gpu_only: there is no GPU among .*CPU:0"):
        PLANNERS["gpu_only"].plan(small_problem(MACHINE[:1], [{}]))
    with pytest.raises(PlannerUnavailableError, match=r"cpu_only: there is no CPU among .*GPU:1"):
        PLANNERS["cpu_only"].plan(small_problem(MACHINE[1:], [{}]))


def test_round_robin_deals_units_over_their_candidates() -> None:
    ops: list[dict[str, Any]] = [
        {},
        {"colocation_group": "g"},
        {"colocation_group": "g"},
        {"cost_ns": {"y": 1}},
        {},
    ]
    # Unit 2 is op 3, with the candidates 1 and 2; unit 3 is op 4.
    placement = PLANNERS["round_robin"].plan(small_problem(MACHINE, ops)).placement
    assert placement.tolist() == [0, 1, 1, 1, 0]


def test_random_is_uniform_over_candidates() -> None:
    ops = [{}, {"cost_ns": {"y": 1}}]
    problem = small_problem(MACHINE, ops * 3000)
    placement = PLANNERS["random"].plan(problem, seed=7).placement.reshape(3000, 2)
    everywhere = np.bincount(placement[:, 0], minlength=3)
    on_gpus = np.bincount(placement[:, 1], minlength=3)
    # Five standard deviations of a binomial distribution.
    assert np.abs(everywhere - 1000).max() < 130
    assert on_gpus[0] == 0
    assert abs(on_gpus[1] - 1500) < 137


def test_a_seed_in_the_name_wins() -> None:
    problem = large_problem(200)
    seven = PLANNERS["random"].plan(problem, seed=7).placement.tobytes()
    assert get_planner("random:7").plan(problem, seed=1).placement.tobytes() == seven
    assert get_planner("random").plan(problem, seed=1).placement.tobytes() != seven
    assert Options(planner="random:7").planner == "random:7"
    with pytest.raises(OptionError, match="planner: "):
        Options(planner="random:x y")


@pytest.mark.skipif(not has_package("pymetis"), reason="needs pymetis")
def test_metis_spreads_fewer_units_than_devices_without_a_word_on_stdout(tmp_path: Path) -> None:
    ops = [
        {"name": name, "type": "T", "cost_ns": {"gpu": cost_ns}, "output_bytes": [1]}
        for name, cost_ns in (("small", 2), ("large", 5))
    ]
    document = machine(4) | {"ops": ops, "edges": [[0, 0, 1]]}
    for device, slots in zip(document["devices"], (1, 2, 2, 3), strict=True):
        device["slots"] = slots
    path = tmp_path / "few.hplacer.json"
    path.write_text(json.dumps(document))
    command = [sys.executable, "-m", "hplacer_optimizer", "plan", str(path)]
    done = subprocess.run(
        [*command, "--planner", "metis", "--json"], capture_output=True, text=True, check=True
    )
    json.loads(done.stdout)
    assert PLANNERS["metis"].plan(problem_from_dict(document)).placement.tolist() == [1, 3]


@pytest.mark.skipif(not has_package("pymetis"), reason="needs pymetis")
def test_metis_gives_a_device_work_by_its_speed() -> None:
    names = [f"op{i}" for i in range(40)]
    ops = [{"name": n, "type": "T", "cost_ns": {"gpu": 5}, "output_bytes": [1]} for n in names]
    document = machine(2) | {"ops": ops, "edges": [[i, 0, i + 1] for i in range(39)]}
    for device, slots in zip(document["devices"], (3, 1), strict=True):
        device["slots"] = slots
    placement = PLANNERS["metis"].plan(problem_from_dict(document)).placement
    assert abs(np.bincount(placement)[0] - 30) <= 2


# ---- missing libraries ----


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("metis", r"pymetis is missing .*pip install 'hplacer-optimizer\[planners\]'"),
        ("mincut", "`amk_grf` was not found .*apt-get install scotch"),
        ("scotch", "`amk_grf` was not found .*apt-get install scotch"),
        ("sct", r"scipy is missing .*pip install 'hplacer-optimizer\[planners\]'"),
    ],
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    monkeypatch.setenv("PATH", "")
    for package in ("pymetis", "scipy", "scipy.optimize"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PlannerUnavailableError, match=f"{name}: .*{remedy}"):
        PLANNERS[name].plan(load_problem_file(GOLDEN_PROBLEM))


def fake_scotch(directory: Path, monkeypatch: pytest.MonkeyPatch, gmap: str) -> None:
    """Programs that call themselves Scotch; what `gmap` does is a line of shell."""
    for program, line in (("scotch_amk_grf", "true"), ("scotch_gmap", gmap)):
        path = directory / program
        version = 'if [ "$1" = -V ]; then echo "Universite de Bordeaux" >&2; exit; fi'
        path.write_text(f"#!/bin/sh\n{version}\n{line}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)


@pytest.mark.parametrize("name", ["mincut", "scotch"])
def test_a_time_limit_of_scotch_is_told(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_scotch(tmp_path, monkeypatch, "exec sleep 20")
    problem = load_problem_file(GOLDEN_PROBLEM)
    start = time.perf_counter()
    found = PLANNERS[name].plan(problem, budget=Budget(seconds=0.5))
    assert time.perf_counter() - start < 5
    first = "cpu_only" if name == "scotch" else "gpu_only"
    assert found.placement.tolist() == PLANNERS[first].plan(problem).placement.tolist()
    assert len(found.notes) == 1
    assert f"{name}: the time limit of 0.5 s was hit" in found.notes[0]


def test_a_failure_of_scotch_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_scotch(tmp_path, monkeypatch, "echo bad graph >&2; kill -8 $$")
    with pytest.raises(PlannerUnavailableError, match="gmap` failed with status -8: bad graph"):
        PLANNERS["scotch"].plan(load_problem_file(GOLDEN_PROBLEM))


def test_scotch_counts_the_work_at_both_ends_into_a_distance() -> None:
    document = machine(3)
    for link in document["links"]:
        link["bytes_per_s"] = 4 * 10**9
    by_ends = {(link["src"], link["dst"]): link for link in document["links"]}
    by_ends[0, 1] |= {"send_bytes_per_s": 2 * 10**9}  # 2 + 1 quarters of a nanosecond per byte
    by_ends[2, 0] |= {"send_bytes_per_s": 2 * 10**9, "receive_bytes_per_s": 10**9}  # 2 + 1 + 4
    problem = problem_from_dict(document | {"ops": [], "edges": []})
    distance = scotch._distances(problem, [0, 1, 2])
    pairs = {(0, 1): 3, (1, 0): 3, (0, 2): 7, (2, 0): 7, (1, 2): 1, (2, 1): 1}
    assert {ends: distance[ends] for ends in pairs} == pairs


def test_auto_plans_where_transfers_are_work() -> None:
    ops = [{"name": n, "type": "T", "cost_ns": {"gpu": 5}, "output_bytes": [1]} for n in "ab"]
    document = machine(2) | {"ops": ops, "edges": [[0, 0, 1]]}
    for link in document["links"]:
        link["receive_ns"] = 3
    plan = PLANNERS["auto"].plan(problem_from_dict(document), budget=Budget(steps=5))
    first, second = plan.placement.tolist()
    assert first == second


def test_auto_counts_launches_where_these_take_the_time() -> None:
    problem = large_problem(400, 4)
    launch_ns = np.where(np.array(problem.device_kind) == 1, 10_000, 0)
    bound = problem.replace(device_launch_ns=launch_ns, cost_ns=np.array(problem.cost_ns) // 20)
    found = [
        auto.plan(bound, budget=Budget(steps=2000), without=without).placement
        for without in ((), auto.PARTS)
    ]
    with_it, without_it = mean_steps_ns(bound, found, range(2001, 2009))
    assert with_it < 0.95 * without_it


# ---- the table ----


def test_get_planner() -> None:
    assert get_planner("etf") is PLANNERS["etf"]
    assert get_planner("etf").plan is etf.plan
    problem = load_problem_file(GOLDEN_PROBLEM)
    own = get_planner("hplacer_optimizer.planners.etf:plan").plan(problem)
    assert own.placement.tolist() == etf.plan(problem).placement.tolist()


def test_what_a_planner_can_do_stands_in_its_entry() -> None:
    def able(ability: str) -> set[str]:
        return {name for name, entry in PLANNERS.items() if getattr(entry, ability)}

    assert able("learns") == able("resumes") == able("logs") == set(LEARNED_PLANNERS)
    assert able("measures") == {*LEARNED_PLANNERS, "auto", "local_search"}
    assert get_planner("hierarchical:7").learns


def test_a_planner_of_ones_own_returns_a_placement_or_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plain(problem: Problem, *, budget: Any, seed: int, on_progress: Any) -> Any:
        on_progress(Progress(steps=3, best_ns=7, placements=5))
        return [seed] * problem.num_ops

    def full(problem: Problem, *, budget: Any, seed: int, on_progress: Any) -> Any:
        return PlannerResult(placement=np.zeros(problem.num_ops, np.int32), notes=["own: said"])

    monkeypatch.setitem(sys.modules, "own", types.ModuleType("own"))
    sys.modules["own"].plain, sys.modules["own"].full = plain, full  # type: ignore[attr-defined]
    problem = load_problem_file(GOLDEN_PROBLEM)
    told: list[Progress] = []
    found = get_planner("own:plain").plan(problem, seed=1, on_progress=told.append)
    assert set(found.placement) == {1}
    assert (found.steps, found.placements, list(found.curve)) == (3, 5, told)
    assert get_planner("own:full").plan(problem).notes == ["own: said"]


@pytest.mark.parametrize(
    "name",
    ["", "ETF", "etf:", "etf:-1", ":plan", "no_such_module:plan", "json:none", "json:__name__"],
)
def test_unknown_planners(name: str) -> None:
    with pytest.raises(OptionError, match=r"planner: "):
        get_planner(name)


def test_a_planner_that_learns_may_name_its_preset() -> None:
    entry = get_planner("hierarchical:paper")
    assert (entry.learns, entry.preset) == (True, "paper")
    search = Search(planner="hierarchical:paper", checkpoint="learned")
    assert (search.options["preset"], search.options["checkpoint"]) == ("paper", "learned")
    assert Search(planner="hierarchical").options["preset"] == "default"
    with pytest.raises(OptionError, match="cannot load 'etf:paper'"):
        get_planner("etf:paper")


def test_an_unknown_planner_lists_the_valid_ones() -> None:
    with pytest.raises(OptionError, match=r"unknown name 'magic'; valid are auto, colocrl, cpu"):
        get_planner("magic")


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": 0},
        {"seconds": float("nan")},
        {"seconds": "1"},
        {"steps": 0},
        {"steps": 1.5},
        {"patience": 0},
    ],
)
def test_refused_budgets(limits: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="budget"):
        Budget(**limits)
