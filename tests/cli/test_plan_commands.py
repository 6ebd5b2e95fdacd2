"""The commands that look at a plan: `hplacer show`, `report`, `diff` and `explain`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import hplacer_optimizer as hp
from hplacer_optimizer.inspection.critical_path import TRANSFER
from hplacer_optimizer.machines import load_machine, machine_to_yaml, nvidia
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.problem.problem_file import load_problem_file
from testbed.documents import problem_from_dict
from tests.commands import document_of, error_of, hplacer
from tests.planned import plan_of
from tests.plans.test_plan import make_plan

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"


@pytest.fixture(scope="module")
def problem() -> hp.Problem:
    return load_problem_file(GOLDEN)


def stored(plan: Plan, path: Path) -> str:
    path.write_bytes(plan.to_bytes())
    return str(path)


def by_etf(problem: hp.Problem) -> NDArray[np.int32]:
    return get_planner("etf").plan(problem).placement


# ---- show ----


def test_show_tells_loads_of_devices_and_scopes(problem: hp.Problem, tmp_path: Path) -> None:
    placement = by_etf(problem)
    path = stored(plan_of(problem, placement), tmp_path / "x.hplan")
    document = document_of("show", path)
    trace, simulated = hp.simulate(problem, placement), document["simulated"]
    assert simulated["step_time_ns"] == trace.makespan_ns == document["step_time_ns"]
    lasts_ns = trace.finish_ns - trace.start_ns
    for device, load in enumerate(simulated["devices"]):
        mine = placement == device
        busy = lasts_ns[mine].sum() / problem.device_slots[device] / trace.makespan_ns
        assert load["ops"] == mine.sum()
        assert load["busy"] == pytest.approx(float(busy))
        assert load["peak_bytes"] == trace.peak_bytes[device]
    scopes = {load["scope"]: load for load in simulated["scopes"]}
    for scope, load in scopes.items():
        inside = np.array(
            [name.rpartition("/")[0].split("/")[0] == scope for name in problem.op_names]
        )
        assert load["ops"] == sum(load["ops_per_device"]) == inside.sum()
        assert load["busy_ns"] == lasts_ns[inside].sum()
        assert load["persistent_bytes"] == problem.persistent_bytes[inside].sum()
    assert sum(load["ops"] for load in scopes.values()) == problem.num_ops
    shown = hplacer("show", path, "--all").stdout
    assert "busy time" in shown
    assert all(scope in shown for scope in scopes)


def test_show_of_a_plan_without_its_problem(tmp_path: Path) -> None:
    path = stored(make_plan(), tmp_path / "x.hplan")
    document = document_of("show", path, "--depth", "2")
    assert document["simulated"] is None
    assert document["node_scopes"] == [
        {"scope": "", "nodes_per_device": [1, 1]},
        {"scope": "b", "nodes_per_device": [0, 1]},
    ]
    assert "name its --graph" in hplacer("show", path, "--all").stdout


def test_show_tells_how_the_step_varies(tmp_path: Path) -> None:
    path = stored(make_plan(step_spread_ns=[38_000_000, 46_500_000]), tmp_path / "x.hplan")
    assert document_of("show", path)["step_spread_ns"] == [38_000_000, 46_500_000]
    said = "with typical errors of the costs: 38 ms to 46.5 ms in 90% of the cases"
    assert said in hplacer("show", path, "--all").stdout
    other = stored(make_plan(), tmp_path / "y.hplan")
    assert "typical errors" not in hplacer("show", other, "--all").stdout


def test_show_tells_for_which_machine_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = "Tesla K40m, 11441 MiB, 11000 MiB\n" * 2
    monkeypatch.setattr(nvidia, "_nvidia_smi", lambda *_: here)
    machine = load_machine("2xa100")
    plan = make_plan(machine=machine_to_yaml(machine))
    said = hplacer("show", stored(plan, tmp_path / "x.hplan")).stdout.splitlines()
    (line,) = [line for line in said if line.startswith("made for ")]
    assert ", 2 x a100 with 40 GiB; training here makes it anew: it was made for 2 x a100" in line


def test_report_of_a_plan_without_its_problem(tmp_path: Path) -> None:
    path = stored(make_plan(), tmp_path / "x.hplan")
    error = error_of("report", path, "-o", tmp_path / "x.html")
    assert "name the graph to a command such as `hplacer report` with --graph" in error
    assert [file.name for file in tmp_path.iterdir()] == ["x.hplan"]


def test_report_writes_a_trace(problem: hp.Problem, tmp_path: Path) -> None:
    path = stored(plan_of(problem, by_etf(problem)), tmp_path / "x.hplan")
    trace = str(tmp_path / "step.json")
    document = document_of("report", path, "--trace", trace)
    assert document["trace"] == trace
    events = json.loads(Path(trace).read_text())["traceEvents"]
    ops = [event for event in events if event["ph"] == "X" and event["cat"] != "transfer"]
    assert len(ops) == problem.num_ops
    assert max(e["ts"] + e["dur"] for e in ops) * 1000 == pytest.approx(document["step_time_ns"])


# ---- diff ----


def test_diff_of_two_placements(problem: hp.Problem, tmp_path: Path) -> None:
    a, b = (
        by_etf(problem),
        get_planner("round_robin").plan(problem).placement,
    )
    paths = [
        stored(plan_of(problem, a), tmp_path / "a.hplan"),
        stored(plan_of(problem, b, planner="round_robin"), tmp_path / "b.hplan"),
    ]
    document = document_of("diff", *paths)
    for side, placement in (("a", a), ("b", b)):
        trace = hp.simulate(problem, placement)
        assert document[side]["step_time_ns"] == trace.makespan_ns
        assert document[side]["transfers"] == len(trace.transfers)
        assert document[side]["transfer_bytes"] == trace.transfers["bytes"].sum()
        assert document[side]["peak_bytes"] == trace.peak_bytes.tolist()
    moves = document["moves"]
    assert (moves["common"], moves["moved"]) == (problem.num_ops, int((a != b).sum()))
    assert sum(scope["moved"] for scope in moves["scopes"]) == moves["moved"]
    for scope in moves["scopes"]:
        assert sum(count for _, _, count in scope["routes"]) == scope["moved"] <= scope["nodes"]
        assert all(src != dst for src, dst, _ in scope["routes"])
    assert document["fingerprint_differences"] == []
    assert document_of("diff", paths[0], paths[0])["moves"]["moved"] == 0
    assert "both simulated on A's costs and links" in hplacer("diff", *paths).stdout


def test_diff_beside_tensorflows_placement(problem: hp.Problem, tmp_path: Path) -> None:
    on_cpu = np.zeros(problem.num_ops, np.int32)
    placed = problem.replace(default_device=on_cpu)
    fast = by_etf(problem)
    paths = [
        stored(plan_of(placed, placement), tmp_path / name)
        for name, placement in (("a.hplan", fast), ("b.hplan", on_cpu))
    ]
    times = [hp.simulate(problem, placement).makespan_ns for placement in (fast, on_cpu)]
    document = document_of("diff", *paths)
    assert document["a"]["speedup"] == pytest.approx(times[1] / times[0])  # type: ignore[operator]
    assert document["b"]["speedup"] == 1.0
    shown = hplacer("diff", *paths).stdout
    assert re.search(r"times as fast as TensorFlow's placement +8.5 +1.00", shown)
    same = stored(plan_of(problem, fast), tmp_path / "c.hplan")
    assert "times as fast as" not in hplacer("diff", same, same).stdout


def test_diff_of_different_graphs_and_machines(problem: hp.Problem, tmp_path: Path) -> None:
    whole = plan_of(problem, by_etf(problem))
    names = ["elsewhere", *problem.op_names[1:]]
    parts = whole.fingerprint_parts | {"graph": "9" * 16}
    other = replace(
        whole, node_names=names, node_hashes=whole.node_hashes + np.uint64(1),
        fingerprint_parts=parts, packed_problem=None,
    )  # fmt: skip
    paths = [stored(whole, tmp_path / "a.hplan"), stored(other, tmp_path / "b.hplan")]
    document = document_of("diff", *paths)
    assert document["basis"].startswith("as the plans state it")
    assert document["b"]["transfers"] is None
    assert [part["part"] for part in document["fingerprint_differences"]] == ["graph"]
    assert document["moves"]["only_in_b"] == 1
    assert "fingerprints differ in graph" in hplacer("diff", *paths).stdout


def test_diff_of_what_different_models_predicted(problem: hp.Problem, tmp_path: Path) -> None:
    with_problem = plan_of(problem, np.zeros(problem.num_ops, np.int32), step_time_ns=1)
    plans = {
        "a": make_plan(simulator_version=2),
        "faster": make_plan(simulator_version=2, step_time_ns=20_600_000),
        "older": make_plan(simulator_version=1, step_time_ns=20_600_000),
        "elsewhere": make_plan(simulator_version=2, machine=None),
        "held": with_problem,
    }
    path = {name: stored(plan, tmp_path / f"{name}.hplan") for name, plan in plans.items()}
    for other, comparable in (("faster", True), ("older", False), ("elsewhere", False)):
        document = document_of("diff", path["a"], path[other])
        assert document["comparable"] is comparable
        assert ("not comparable" in document["basis"]) is not comparable
        shown = hplacer("diff", path["a"], path[other]).stdout
        assert ("-50.0%" in shown) is (other == "faster")
    # Only one of the two can be simulated now: what both state is told.
    document = document_of("diff", path["held"], path["a"])
    assert (document["a"]["step_time_ns"], document["a"]["transfers"]) == (1, None)
    assert document["comparable"] is False
    document = document_of("diff", path["held"], path["held"])
    assert document["basis"] == "both simulated on A's costs and links"
    assert document["comparable"] is True


# ---- explain ----


def test_explain_as_json(problem: hp.Problem, tmp_path: Path) -> None:
    placement = by_etf(problem)
    path = stored(plan_of(problem, placement), tmp_path / "x.hplan")
    found = document_of("explain", path, "--budget", "5s")
    trace, bound = hp.simulate(problem, placement), hp.lower_bound(problem)
    assert trace.makespan_ns is not None
    assert bound.ns is not None
    assert found["step_time_ns"] == trace.makespan_ns
    assert (found["lower_bound_ns"], found["lower_bound_term"]) == (bound.ns, bound.term)
    assert found["gap"] == pytest.approx(trace.makespan_ns / bound.ns - 1)
    assert sum(share["ns"] for share in found["path_shares"]) == trace.makespan_ns
    sends = trace.transfers
    assert sum(link["bytes"] for link in found["links"]) == sends["bytes"].sum()
    assert sum(link["transfers"] for link in found["links"]) == len(sends)
    durations = [transfer["duration_ns"] for transfer in found["transfers"]]
    assert durations == sorted((sends["finish_ns"] - sends["start_ns"]).tolist())[::-1][:10]
    on_path = {stage["what"] for stage in found["path"] if stage["kind"] == TRANSFER}
    assert {t["tensor"] for t in found["transfers"] if t["critical"]} == on_path
    assert found["unchanged"]["same_placement_ns"] == trace.makespan_ns
    assert found["unchanged"]["placed_again_ns"] <= trace.makespan_ns
    best = [min(c["same_placement_ns"], c["placed_again_ns"]) for c in found["changes"]]
    assert best == sorted(best)
    assert found["changes"][0]["change"] == "gpu twice as fast"


def test_explain_beside_tensorflows_placement(problem: hp.Problem, tmp_path: Path) -> None:
    placed = problem.replace(default_device=np.zeros(problem.num_ops, np.int32))
    placement = by_etf(problem)
    plan = plan_of(placed, placement, baseline=Baseline.of(placed), prediction_error=9.0)
    path = stored(plan, tmp_path / "x.hplan")
    found = document_of("explain", path, "--budget", "1s")
    assert found["speedup"] == plan.speedup
    shown = hplacer("explain", path, "--budget", "1s").stdout
    summary, alone, because, helps, not_helps, bound, more = shown.splitlines()
    compared = "8.5 times as fast as TensorFlow's placement (9.42 ms), both predicted"
    assert f"1.11 ms/step, {compared}" in summary
    assert alone.startswith(
        "without a trial, training keeps TensorFlow's placement (option min_gain): 1.11 ms instead"
    )
    assert because.startswith("the step is as long as: compute on ")
    assert helps.startswith("helps most (times as fast): gpu twice as fast (")
    assert not_helps.startswith("helps less than 1%: ")
    assert "twice the memory of gpu" in not_helps
    assert bound.startswith("lower bound 1.11 ms")
    assert more == "--all prints more"


def test_explain_as_tables(problem: hp.Problem, tmp_path: Path) -> None:
    path = stored(plan_of(problem, by_etf(problem)), tmp_path / "x.hplan")
    shown = hplacer("explain", path, "--all", "--budget", "1s").stdout
    assert "gap 0.0%" in shown
    for text in ("a1/matmul", "pcie2-up", "a2/relu:0", "one more gpu"):
        assert text in shown
    term = "lower bound 1.11 ms (cost of cutting the graph, or load of the unit of op"
    assert term in shown
    assert term in hplacer("show", path).stdout


def test_explain_of_what_cannot_be_simulated(tmp_path: Path) -> None:
    path = stored(make_plan(), tmp_path / "x.hplan")
    assert "with --graph" in error_of("explain", path)
    problem = problem_from_dict(json.loads(GOLDEN.read_text()) | {"links": []})
    path = stored(plan_of(problem, np.arange(problem.num_ops) % 3), tmp_path / "x.hplan")
    assert "there is no step to explain" in error_of("explain", path)
