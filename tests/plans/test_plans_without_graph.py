"""Plans of problems that were not captured from a graph: all works that needs no fingerprint."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplacer_optimizer import Problem
from hplacer_optimizer.cli import main
from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.plans.comparison import compare_nodes, on_one_problem
from hplacer_optimizer.plans.fields import NodeNames, as_node_name
from hplacer_optimizer.plans.graph_file import apply_plan
from hplacer_optimizer.plans.plan import Plan, load_plan
from hplacer_optimizer.plans.planned_problem import fields_without_graph
from hplacer_optimizer.plans.simulation import simulate_plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.problem.problem_file import load_problem_file
from hplacer_optimizer.problem.simulator import simulate
from testbed.documents import problem_from_dict
from tests.planned import plan_of
from tests.processes import ROOT

GOLDEN = ROOT / "tests" / "golden" / "two_towers.hplacer.json"


def plan_without_graph(problem: Problem, placement: Any, **changes: Any) -> Plan:
    return plan_of(problem, placement, **fields_without_graph(problem, placement), **changes)


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text())
    return found


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem_file(GOLDEN)


@pytest.fixture(scope="module")
def plan(problem: Problem) -> Plan:
    return plan_without_graph(
        problem, get_planner("etf").plan(problem).placement, label=problem.name
    )


def test_its_nodes_are_the_ops(plan: Plan, problem: Problem) -> None:
    assert (plan.fingerprint, plan.fingerprint_parts) == ("", {})
    assert list(plan.node_names) == problem.op_names
    assert plan.node_hashes.tolist() == [0] * problem.num_ops
    assert plan.placement is not None
    assert plan.node_devices.tolist() == plan.placement.tolist()
    assert plan.short_fingerprint == "without fingerprint"
    assert plan.summary_line().startswith("without fingerprint (etf): ")


def test_it_is_saved_loaded_and_simulated(plan: Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "x.hplan")
    again = load_plan(tmp_path / "x.hplan")
    assert again == plan
    again.verify()
    assert again.trace().makespan_ns == plan.step_time_ns
    again.report(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert f"<title>{plan.label}: plan without fingerprint</title>" in page
    assert "none: it was not made for a captured graph" in page


# ---- names ----

CHARACTERS = st.sampled_from('ab/\n"\\') | st.characters(exclude_categories=["Cs"])


@given(st.lists(st.text(CHARACTERS, max_size=6), unique=True, max_size=8))
def test_distinct_ops_are_distinct_nodes_whatever_their_names(names: list[str]) -> None:
    kept = NodeNames.join([as_node_name(name) for name in names])
    assert len(kept) == len(set(kept)) == len(names)
    assert list(NodeNames(kept.blob)) == list(kept)


def test_names_that_no_node_has(tmp_path: Path) -> None:
    changed = document()
    names = ["", "two\nlines", '"', '"two\\nlines"', "plain"]
    for op, name in zip(changed["ops"], names, strict=False):
        op["name"] = name
    problem = problem_from_dict(changed)
    plan_without_graph(problem, [0] * problem.num_ops).save(tmp_path / "x.hplan")
    again = load_plan(tmp_path / "x.hplan")
    expected = ['""', '"two\\nlines"', '"\\""', '"\\"two\\\\nlines\\""', "plain"]
    assert again.node_names[:5] == expected
    found = again.problem()
    assert found is not None
    assert found.op_names == problem.op_names
    for command in ("show", "explain"):
        assert main([command, str(tmp_path / "x.hplan")]) == 0


# ---- commands ----


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_is_shown_explained_and_exported(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, trace = str(tmp_path / "x.hplan"), str(tmp_path / "step.json")
    plan.save(path)
    shown = run(capsys, "show", path)
    assert (shown["fingerprint"], shown["simulated"]["step_time_ns"]) == ("", plan.step_time_ns)
    assert run(capsys, "explain", path)["step_time_ns"] == plan.step_time_ns
    assert run(capsys, "report", path, "--trace", trace)["step_time_ns"] == plan.step_time_ns
    assert json.loads(Path(trace).read_text())["traceEvents"]
    assert main(["show", path]) == 0
    assert f"{plan.label}: without fingerprint (etf" in capsys.readouterr().out


def test_two_are_compared(
    plan: Plan, problem: Problem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = plan_without_graph(problem, get_planner("round_robin").plan(problem).placement)
    plan.save(tmp_path / "a.hplan")
    other.save(tmp_path / "b.hplan")
    found = run(capsys, "diff", str(tmp_path / "a.hplan"), str(tmp_path / "b.hplan"))
    assert found["basis"] == "both simulated on A's costs and links"
    assert found["b"]["step_time_ns"] == other.step_time_ns
    moved = int((plan.node_devices != other.node_devices).sum())
    assert (found["moves"]["common"], found["moves"]["moved"]) == (problem.num_ops, moved)
    captured = plan_of(problem, get_planner("round_robin").plan(problem).placement)
    captured.save(tmp_path / "c.hplan")
    found = run(capsys, "diff", str(tmp_path / "a.hplan"), str(tmp_path / "c.hplan"))
    assert found["basis"] == "each simulated on its own graph and machine"
    assert found["fingerprint_differences"] == []
    assert (found["moves"]["common"], found["moves"]["moved"]) == (problem.num_ops, moved)


def test_other_costs_are_the_same_graph_and_other_edges_are_not(plan: Plan) -> None:
    dearer, cut, renamed = document(), document(), document()
    for op in dearer["ops"]:
        op["cost_ns"] = {kind: 2 * cost for kind, cost in op["cost_ns"].items()}
    cut["edges"] = cut["edges"][1:]
    renamed["ops"][0]["name"] = "renamed"
    others = [problem_from_dict(changed) for changed in (dearer, cut, renamed)]
    plans = [plan_without_graph(other, [0] * other.num_ops) for other in others]
    steps = [on_one_problem(plan, other) for other in plans]
    problem = plan.problem()
    assert problem is not None
    assert steps[0] is not None
    expected = simulate(problem, [0] * problem.num_ops)
    assert steps[0].trace.makespan_ns == expected.makespan_ns != plans[0].step_time_ns
    assert steps[1:] == [None, None]
    moves = compare_nodes(plan, plans[2], depth=1)
    assert (moves.only_in_a, moves.only_in_b) == (1, 1)  # not taken for each other


# ---- what needs a fingerprint ----

REFUSED = r"has no fingerprint, because .*: plan the graph itself with `hplacer pretrain GRAPH` or"


def test_no_store_takes_it(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, path = PlanStore(tmp_path / "plans"), tmp_path / "x.hplan"
    plan.save(path)
    with pytest.raises(PlanError, match=f"the plan of {plan.label} {REFUSED}"):
        store.put(plan)
    with pytest.raises(PlanError, match=f"{path}: the plan of {plan.label} {REFUSED}"):
        store.add(path.read_bytes(), path)
    assert main(["cache", "import", str(path), "--cache", store.directory]) == 1
    assert f"failed {path}: the plan of {plan.label} has no fingerprint" in capsys.readouterr().out
    assert not (tmp_path / "plans").exists()
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / f"{'a' * 32}.hplan").write_bytes(plan.to_bytes())
    with pytest.raises(PlanError, match=r"holds the plan of fingerprint \(none\)"):
        store.get("a" * 32)


def test_no_graph_takes_it(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=REFUSED):
        apply_plan(plan, tmp_path / "in.meta", tmp_path / "out.meta")
    assert simulate_plan(plan, "unused.meta").trace.makespan_ns == plan.step_time_ns
    with pytest.raises(PlanError, match=REFUSED):
        simulate_plan(dataclasses.replace(plan, packed_problem=None), "in.meta")
    with pytest.raises(PlanError, match="must be 32 lower-case hex digits, or empty"):
        dataclasses.replace(plan, fingerprint="0" * 31)
