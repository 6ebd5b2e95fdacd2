"""Plans looked at: how nodes are found again, `hplacer show` and `hplacer diff`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hplacer_optimizer as hp
from hplacer_optimizer.cli import main
from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.inspection.inspection import inspect_plan, map_nodes
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.plans.fingerprint import Miss, differences, miss_line, read_misses
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.problem.files import load_problem_file
from tests.planned import plan_of
from tests.plans.test_plan import make_plan

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"


@pytest.fixture(scope="module")
def problem() -> hp.Problem:
    return load_problem_file(GOLDEN)


def stored(plan: Plan, path: Path) -> str:
    path.write_bytes(plan.to_bytes())
    return str(path)


def document_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ---- nodes ----


@settings(max_examples=200)
@given(st.data())
def test_nodes_are_found_again_whatever_their_order_and_names(data: st.DataObject) -> None:
    """Alike are nodes of one hash; a renamed graph keeps hashes, and maybe some of the names."""
    hashes = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=12))
    devices = [value % 3 for value in hashes]  # alike, hence on the same device
    names = [f"n{i}" for i in range(len(hashes))]
    plan = make_plan(
        node_names=names,
        node_hashes=np.array(hashes, np.uint64),
        node_devices=np.array(devices, np.int32) % 2,
    )
    order = data.draw(st.permutations(range(len(hashes))))
    renamed = data.draw(st.lists(st.booleans(), min_size=len(hashes), max_size=len(hashes)))
    others = data.draw(st.integers(0, 3))  # nodes that the plan does not tell of
    new_names = [f"m{i}" if renamed[i] else names[i] for i in order]
    new_names += [f"other{i}" for i in range(others)]
    new_hashes = [hashes[i] for i in order] + [100 + i for i in range(others)]
    found = map_nodes(plan, new_names, np.array(new_hashes, np.uint64))
    assert found.tolist() == [devices[i] % 2 for i in order] + [-1] * others


def test_ties_and_strangers_are_errors() -> None:
    twins = make_plan(
        node_names=["a", "b"], node_hashes=np.array([7, 7]), node_devices=np.array([0, 1])
    )
    assert map_nodes(twins, ["b", "a"], np.array([7, 7], np.uint64)).tolist() == [1, 0]
    with pytest.raises(PlanError, match=r"like 'b' are alike but have different devices"):
        map_nodes(twins, ["x", "y"], np.array([7, 7], np.uint64))
    single = make_plan(node_names=["a"], node_hashes=np.array([7]), node_devices=np.array([0]))
    with pytest.raises(PlanError, match=r"1 of its 1 nodes are not in this graph, such as 'a'"):
        map_nodes(single, ["a"], np.array([8], np.uint64))
    with pytest.raises(PlanError, match="not in this graph"):  # which of the two?
        map_nodes(single, ["x", "y"], np.array([7, 7], np.uint64))


def test_an_inspection_is_the_plan_simulated(problem: hp.Problem) -> None:
    placement = get_planner("etf")(problem)
    found = inspect_plan(plan_of(problem, placement))
    assert found.placement.tolist() == placement.tolist()
    assert found.trace.makespan_ns == hp.simulate(problem, placement).makespan_ns


# ---- fingerprints ----


def test_what_differs_is_named_with_a_remedy() -> None:
    wanted = {"graph": "a", "targets": "b", "machine": "c", "new": "n"}
    found = differences(wanted, {"graph": "a", "targets": "x", "machine": "c", "old": "o"})
    assert [(d.part, d.wanted, d.found) for d in found] == [
        ("targets", "b", "x"),
        ("new", "n", None),
        ("old", None, "o"),
    ]
    assert all(d.meaning and d.remedy for d in found)


@given(
    label=st.text("abz /:=,().", min_size=1).filter(lambda text: text == text.strip()),
    parts=st.dictionaries(
        st.text("abz_", min_size=1), st.text("abz019-/. ").map(str.strip), min_size=1
    ),
)
def test_a_miss_in_a_log_is_read_as_it_was_written(label: str, parts: dict[str, str]) -> None:
    line = miss_line(label, parts)
    if ": " in label or label.endswith(":"):
        return  # ambiguous; TensorFlow's names of graphs and functions have none
    lines = ["epoch 1", f"INFO:hplacer: {line}\r\n", "no stored plan for anything"]
    assert list(read_misses(lines)) == [Miss(label=label, parts=parts)]


# ---- show ----


def test_show_tells_loads_of_devices_and_scopes(
    problem: hp.Problem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placement = get_planner("etf")(problem)
    path = stored(plan_of(problem, placement), tmp_path / "x.hplan")
    document = document_of(capsys, "show", path)
    trace, simulated = hp.simulate(problem, placement), document["simulated"]
    assert simulated["makespan_ns"] == trace.makespan_ns == document["step_time_ns"]
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
    assert main(["show", path]) == 0
    shown = capsys.readouterr().out
    assert "busy time" in shown
    assert all(scope in shown for scope in scopes)


def test_show_of_a_plan_without_its_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(make_plan(), tmp_path / "x.hplan")
    document = document_of(capsys, "show", path, "--depth", "2")
    assert document["simulated"] is None
    assert document["node_scopes"] == [
        {"scope": "", "nodes_per_device": [1, 1]},
        {"scope": "b", "nodes_per_device": [0, 1]},
    ]
    assert main(["show", path]) == 0
    assert "name its --graph" in capsys.readouterr().out
    assert main(["show", path, "--depth", "0"]) == 2


def test_report_of_a_plan_without_its_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(make_plan(), tmp_path / "x.hplan")
    assert main(["report", path, "-o", str(tmp_path / "x.html")]) == 1
    assert "name the graph that it is for with --graph" in capsys.readouterr().err
    assert main(["report", path]) == 2
    assert "name -o, --trace or --tensorboard" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["x.hplan"]


def test_report_writes_a_trace(
    problem: hp.Problem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(plan_of(problem, get_planner("etf")(problem)), tmp_path / "x.hplan")
    trace = str(tmp_path / "step.json")
    document = document_of(capsys, "report", path, "--trace", trace)
    assert document["trace"] == trace
    events = json.loads(Path(trace).read_text())["traceEvents"]
    ops = [event for event in events if event["ph"] == "X" and event["cat"] != "transfer"]
    assert len(ops) == problem.num_ops
    assert max(e["ts"] + e["dur"] for e in ops) * 1000 == pytest.approx(document["makespan_ns"])


# ---- diff ----


def test_diff_of_two_placements(
    problem: hp.Problem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = get_planner("etf")(problem), get_planner("round_robin")(problem)
    paths = [
        stored(plan_of(problem, a), tmp_path / "a.hplan"),
        stored(plan_of(problem, b, planner="round_robin"), tmp_path / "b.hplan"),
    ]
    document = document_of(capsys, "diff", *paths)
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
    assert document_of(capsys, "diff", paths[0], paths[0])["moves"]["moved"] == 0
    assert main(["diff", *paths]) == 0
    assert "both simulated on A's costs and links" in capsys.readouterr().out


def test_diff_of_different_graphs_and_machines(
    problem: hp.Problem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = plan_of(problem, get_planner("etf")(problem))
    names = ["elsewhere", *problem.op_names[1:]]
    parts = whole.fingerprint_parts | {"graph": "9" * 16}
    other = replace(
        whole, node_names=names, node_hashes=whole.node_hashes + np.uint64(1),
        fingerprint_parts=parts, packed_problem=None,
    )  # fmt: skip
    paths = [stored(whole, tmp_path / "a.hplan"), stored(other, tmp_path / "b.hplan")]
    document = document_of(capsys, "diff", *paths)
    assert document["basis"].startswith("as the plans state it")
    assert document["b"]["transfers"] is None
    assert [part["part"] for part in document["fingerprint_differences"]] == ["graph"]
    assert document["moves"]["only_in_b"] == 1
    assert main(["diff", *paths]) == 0
    assert "fingerprints differ in graph" in capsys.readouterr().out
