"""Plans and their file format, damaged files included."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlanError, ProblemError, StoreError
from hplacer_optimizer.planners import Progress
from hplacer_optimizer.plans import plan_file, plan_format
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.plan import Plan, load_plan
from hplacer_optimizer.plans.plan_format import CURVE_POINT
from hplacer_optimizer.plans.planned_problem import PackedProblem
from hplacer_optimizer.plans.verdict import Verdict
from hplacer_optimizer.support.formats import format_ns
from testbed.documents import problem_from_dict, problem_to_dict
from tests.processes import ROOT

PAGE = ROOT / "docs" / "reference" / "plan-format.md"
FINGERPRINT = "3f9c2b1a" + "0" * 24
VERDICT = Verdict.now(
    speedup=1.5, low=1.4, high=1.6, plan_ns=20, baseline_ns=30, turns=3, by="hplacer try train.py"
)
BASELINE = Baseline(step_time_ns=82_400_000, feasible=True, peak_bytes=[30, 40])


def make_plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "fingerprint": FINGERPRINT,
        "fingerprint_parts": {"graph": "a1", "targets": "b2", "machine": "c3", "constraints": "d4"},
        "label": "train_step",
        "planner": "etf",
        "planner_notes": ["sct: the time limit was hit"],
        "lower_bound_ns": 30_000_000,
        "lower_bound_term": "critical path",
        "machine": "format: hplacer-machine/1\n",
        "learning_curve": [
            {"steps": 5, "best_ns": None, "placements": 40, "mean_ns": None, "infeasible": 1.0},
            {"steps": 9, "best_ns": 50, "placements": 72, "mean_ns": 61.5, "infeasible": 0.25},
        ],
        "planner_options": {"threads": 2},
        "seed": 7,
        "budget": {"seconds": 1.5},
        "step_time_ns": 41_200_000,
        "feasible": True,
        "peak_bytes": [10, 1 << 40],
        "device_names": [f"/job:localhost/replica:0/task:0/device:{d}:0" for d in ("CPU", "GPU")],
        "device_kinds": ["CPU", "GPU"],
        "num_ops": 3,
        "num_units": 2,
        "planning_s": 0.25,
        "cost_source": "analytic",
        "assumptions": ["loop_trip_count=10"],
        "versions": {"hplacer": "0.1.0", "tensorflow": "2.21.0", "python": "3.11.7"},
        "created": "2024-05-01T12:00:00Z",
        "host": "worker-0",
        "node_names": ["a", "b/c", "d"],
        "node_hashes": np.array([1, 2**64 - 1, 3], dtype=np.uint64),
        "node_ranks": [] if "node_names" in changes else [0, 2, 0],
        "structure": 0x0102,
        "node_devices": np.array([0, 1, 1], dtype=np.int32),
    }
    return Plan(**{**fields, **changes})


def small_problem(**changes: Any) -> Problem:
    """A chain of three ops on the devices of `make_plan`."""
    link = {"channel": "c", "latency_ns": 500, "bytes_per_s": 10**9}
    document = {
        "format": "hplacer-problem/2",
        "name": "chain",
        "device_kinds": ["cpu"],
        "devices": [
            {"name": name, "kind": "cpu", "memory_bytes": 1000} for name in make_plan().device_names
        ],
        "links": [{"src": 0, "dst": 1, **link}, {"src": 1, "dst": 0, **link}],
        "ops": [
            {"name": name, "type": "X", "cost_ns": {"cpu": 1000}, "output_bytes": [8]}
            for name in "abc"
        ],
        "edges": [[0, 0, 1], [1, 0, 2]],
    }
    return problem_from_dict(document | changes)


PLACEMENT, NODE_OP = [0, 1, 0], np.array([0, 1, 1])


def with_problem(plan: Plan, problem: Problem | None = None) -> Plan:
    packed = PackedProblem.of(problem or small_problem(), PLACEMENT, NODE_OP)
    assert packed is not None
    return dataclasses.replace(plan, packed_problem=packed)


def frame(header: bytes, rest: bytes = b"") -> bytes:
    """A plan file with a valid first line around any header."""
    line = f"hplacer-plan/1 {hashlib.sha256(header).hexdigest()} {len(header)}\n"
    return line.encode() + header + rest


def pack(sections: dict[str, bytes]) -> bytes:
    """A plan file with valid checksums around any content of sections."""
    rows = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in sections.items()]
    return frame(json.dumps({"sections": rows}).encode(), b"".join(sections.values()))


def sections_of(data: bytes) -> dict[str, bytes]:
    """Decompressed, read as docs/reference/plan-format.md says, without the reader under test."""
    line, rest = data.split(b"\n", 1)
    magic, digest, length = line.decode("ascii").split(" ")
    assert magic == "hplacer-plan/1"
    header, position = rest[: int(length)], int(length)
    assert hashlib.sha256(header).hexdigest() == digest
    sections = {}
    for name, size, digest in json.loads(header)["sections"]:
        section = rest[position : position + size]
        assert hashlib.sha256(section).hexdigest() == digest
        sections[name], position = zlib.decompress(section), position + size
    assert position == len(rest)
    return sections


def changed(**changes: Any) -> bytes:
    """A file with other fields in its summary, or with other sections where bytes are given."""
    sections = sections_of(make_plan().to_bytes())
    sections |= {name: value for name, value in changes.items() if isinstance(value, bytes)}
    fields = {name: value for name, value in changes.items() if not isinstance(value, bytes)}
    sections["summary"] = json.dumps(json.loads(sections["summary"]) | fields).encode()
    return pack({name: zlib.compress(data) for name, data in sections.items()})


def without(*names: str) -> bytes:
    """A file that lacks fields in its summary."""
    sections = sections_of(make_plan().to_bytes())
    summary = json.loads(sections["summary"])
    for name in names:
        del summary[name]
    sections["summary"] = json.dumps(summary).encode()
    return pack({name: zlib.compress(data) for name, data in sections.items()})


def test_a_file_is_what_the_format_page_says() -> None:
    sections = sections_of(with_problem(make_plan(verdict=VERDICT)).to_bytes())
    summary = json.loads(sections["summary"])
    assert list(summary) == sorted(summary)
    assert sections["node_names"] == b"a\nb/c\nd"
    assert sections["node_hashes"] == bytes([1, *[0] * 7, *[255] * 8, 3, *[0] * 7])
    assert sections["node_ranks"] == bytes([2, 1, *[0] * 6, *[0] * 4, 2, *[0] * 3, *[0] * 4])
    assert sections["node_devices"] == bytes([0, 0, 1, 0, 1, 0])
    assert sections["op_devices"] == bytes([0, 0, 1, 0, 0, 0])
    assert sections["node_ops"] == bytes([0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0])
    assert json.loads(sections["problem"])["format"] == "hplacer-problem/2"
    assert summary["fingerprint_parts"][0] == ["graph", "a1"]
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    for name in ("emulated", "failure"):  # of verdicts of emulated devices, or of failed steps
        rows.remove(name)
    assert rows == [*sections, *summary, *json.loads(sections["verdict"])]


def test_the_reader_on_the_format_page_works(tmp_path: Path) -> None:
    plan = make_plan()
    path = tmp_path / "x.hplan"
    path.write_bytes(plan.to_bytes())
    source, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    cpu, gpu = plan.device_names
    assert names["read"](path) == {"a": cpu, "b/c": gpu, "d": gpu}


# ---- the planned problem ----


def test_a_plan_carries_its_problem() -> None:
    plan = with_problem(make_plan())
    again = Plan.from_bytes(plan.to_bytes())
    assert again == plan != make_plan()
    assert again.to_bytes() == plan.to_bytes()
    problem, placement, node_op = again.problem(), again.placement, again.node_op
    assert problem is not None
    assert problem_to_dict(problem) == problem_to_dict(small_problem())
    assert placement is not None
    assert placement.tolist() == PLACEMENT
    assert node_op is not None
    assert node_op.tolist() == NODE_OP.tolist()
    assert again.trace().makespan_ns == 3000 + 2 * 508
    for array in (placement, node_op):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_plan_that_holds_a_problem_file_of_version_1() -> None:
    sections = sections_of(with_problem(make_plan()).to_bytes())
    sections["problem"] = sections["problem"].replace(b"hplacer-problem/2", b"hplacer-problem/1")
    old = Plan.from_bytes(pack({name: zlib.compress(data) for name, data in sections.items()}))
    old.verify()
    assert old.trace().makespan_ns == 3000 + 2 * 508


def test_a_plan_without_its_problem_says_what_to_do(tmp_path: Path) -> None:
    plan = make_plan()
    assert plan.problem() is plan.placement is plan.node_op is None
    plan.verify()
    for work in (plan.trace, lambda: plan.report(tmp_path / "x.html")):
        with pytest.raises(PlanError, match=r"3f9c2b1a of train_step holds no problem .*--graph"):
            work()
    assert list(tmp_path.iterdir()) == []


def test_the_report_of_a_plan(tmp_path: Path) -> None:
    plan = with_problem(make_plan())
    plan.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<title>train_step: plan 3f9c2b1a</title>" in page
    assert "in 90% of the cases" not in page
    told = dataclasses.replace(plan, step_spread_ns=(38_000_000, 46_500_000), simulator_version=2)
    told.report(tmp_path / "told.html")
    page = (tmp_path / "told.html").read_text(encoding="utf-8")
    assert "38 ms to 46.5 ms in 90% of the cases" in page
    with pytest.raises(OSError, match="missing"):
        plan.report(tmp_path / "missing" / "report.html")


def test_a_problem_beyond_the_limit_is_left_out() -> None:
    size = len(with_problem(make_plan()).packed_problem.load(["problem"])["problem"].data)  # type: ignore[union-attr]
    packed = [
        PackedProblem.of(small_problem(), PLACEMENT, NODE_OP, max_bytes=limit)
        for limit in (size, size - 1, 0)
    ]
    assert [item is not None for item in packed] == [True, False, False]
    with pytest.raises(ProblemError, match="has 2 devices for 3 ops"):
        PackedProblem.of(small_problem(), [0, 1], NODE_OP)


# ---- files ----


def test_a_saved_plan_is_loaded(tmp_path: Path) -> None:
    path, plan = tmp_path / "x.hplan", with_problem(make_plan())
    path.write_bytes(b"an older file")
    plan.save(path)
    assert path.read_bytes() == plan.to_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["x.hplan"]
    again = load_plan(str(path))
    assert again == plan
    assert again.trace().makespan_ns == plan.trace().makespan_ns
    again.save(path)  # what it has not read yet is read before the file is replaced
    assert load_plan(path).problem() is not None


def test_a_file_that_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "x.hplan"
    with pytest.raises(OSError, match=f"{missing}: cannot write the plan: No such file"):
        make_plan().save(missing)
    with pytest.raises(StoreError, match=f"{missing}: there is no such file"):
        load_plan(missing)
    with pytest.raises(StoreError, match=f"{tmp_path}: is a directory; name a plan file in it"):
        load_plan(tmp_path)
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(PlanError, match=f"{tmp_path / 'x'}: is empty"):
        load_plan(tmp_path / "x")


def test_a_plan_at_an_address(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    address, plan = f"file://{tmp_path}/x.hplan", with_problem(make_plan())
    plan.save(address)
    again = load_plan(address)
    assert again == plan
    assert again.placement is not None
    assert again.problem() is not None
    with pytest.raises(StoreError, match=r"missing/x.hplan: cannot write the plan"):
        plan.save(f"file://{tmp_path}/missing/x.hplan")


def test_reading_a_plan_leaves_its_problem_in_the_file(tmp_path: Path) -> None:
    data = with_problem(make_plan()).to_bytes()
    packed = zlib.compress(json.dumps(problem_to_dict(small_problem())).encode())
    path = tmp_path / "x.hplan"
    damaged = data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]
    assert len(packed) > 5
    path.write_bytes(damaged)
    plan = load_plan(path)
    assert plan.node_devices.tolist() == [0, 1, 1]
    assert plan.placement is not None
    assert plan.placement.tolist() == PLACEMENT
    with pytest.raises(PlanError, match=r"x.hplan: .*the checksum of the section 'problem'"):
        plan.problem()
    with pytest.raises(PlanError, match="the checksum of the section 'problem'"):
        Plan.from_bytes(damaged)
    path.write_bytes(data)
    problem = plan.problem()
    assert problem is not None
    assert problem.num_ops == 3


def test_a_problem_of_a_file_that_was_replaced_is_not_mixed_up(tmp_path: Path) -> None:
    path = tmp_path / "x.hplan"
    path.write_bytes(with_problem(make_plan()).to_bytes())
    plan = load_plan(path)
    path.write_bytes(with_problem(make_plan(seed=8)).to_bytes())
    with pytest.raises(StoreError, match=r"x.hplan: was replaced or removed; read the plan again"):
        plan.problem()


def i32(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"problem": b"{}"}, "holds a problem that cannot be used: "),
        ({"op_devices": b"\0\0"}, "the section 'op_devices' has 1 entries instead of 3"),
        ({"op_devices": b"\0" * 5}, "the section 'op_devices' is damaged"),
        ({"op_devices": bytes([0, 0, 1, 0, 9, 0])}, "'op_devices' holds 9, but there are only 2"),
        ({"op_devices": bytes(6)}, "a problem with another placement than its own"),
        ({"node_ops": i32(0, 1)}, "the section 'node_ops' has 2 entries instead of 3"),
        ({"node_ops": i32(0, 1, 3)}, "'node_ops' holds 3, but there are only 3"),
        ({"node_ops": i32(0, 1, -1)}, "'node_ops' holds -1, but there are only 3"),
    ],
)
def test_a_problem_that_does_not_fit_its_plan(changes: dict[str, bytes], reason: str) -> None:
    sections = sections_of(with_problem(make_plan()).to_bytes()) | changes
    plan = Plan.from_bytes(pack({name: zlib.compress(data) for name, data in sections.items()}))
    with pytest.raises(PlanError, match=f"plan: .*{reason}"):
        plan.verify()


def test_a_problem_of_other_devices_or_another_number_of_ops() -> None:
    devices = [{"name": f"d{i}", "kind": "cpu", "memory_bytes": 9} for i in range(2)]
    foreign = with_problem(make_plan(), small_problem(devices=devices))
    with pytest.raises(PlanError, match="with other devices than its own"):
        foreign.problem()
    with pytest.raises(PlanError, match="with another number of ops than its own"):
        with_problem(make_plan(num_ops=4)).problem()


# ---- fields ----


def test_every_field_counts_for_equality() -> None:
    plan = make_plan()
    changes: dict[str, Any] = {
        "fingerprint": "0" * 32,
        "fingerprint_parts": {"graph": "x"},
        "planner_notes": [],
        "planner_options": {},
        "budget": {"evaluations": 3},
        "step_time_ns": None,
        "feasible": False,
        "peak_bytes": [1, 2],
        "device_names": ["x", "y"],
        "device_kinds": ["x", "y"],
        "assumptions": [],
        "versions": {},
        "created": "2024-05-01T12:00:00.5+00:00",
        "node_names": ["a", "b", "d"],
        "node_hashes": [1, 2, 3],
        "node_ranks": [0, 1, 0],
        "structure": 5,
        "node_devices": [1, 1, 1],
        "lower_bound_ns": None,
        "lower_bound_term": None,
        "machine": None,
        "learning_curve": [],
        "baseline": BASELINE,
        "prediction_error": 0.25,
        "step_spread_ns": (40, 50),
        "simulator_version": 2,
        "verdict": VERDICT,
        "packed_problem": with_problem(plan).packed_problem,
    }
    numbers = dict.fromkeys(("seed", "num_ops", "num_units", "planning_s"), 99)
    texts = dict.fromkeys(("label", "planner", "cost_source", "host"), "other")
    changes |= numbers | texts
    assert changes.keys() == {field.name for field in dataclasses.fields(Plan)}
    for name, value in changes.items():
        assert dataclasses.replace(plan, **{name: value}) != plan, name


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAME = TEXT.filter(lambda name: bool(name) and "\n" not in name)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIME = st.integers(0, 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    devices = draw(st.integers(1, 4))
    names = draw(st.lists(NAME, max_size=6))

    def column(items: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(items, min_size=len(names), max_size=len(names)))

    return make_plan(
        fingerprint=draw(st.text("0123456789abcdef", min_size=32, max_size=32)),
        fingerprint_parts=draw(st.dictionaries(TEXT, TEXT, max_size=3)),
        label=draw(TEXT),
        planner_notes=draw(st.lists(TEXT, max_size=2)),
        planner_options=draw(st.dictionaries(TEXT, JSON, max_size=3)),
        seed=draw(INT64),
        step_time_ns=draw(st.none() | TIME),
        step_spread_ns=draw(st.none() | st.tuples(TIME, TIME).map(sorted)),
        simulator_version=draw(st.none() | TIME),
        feasible=draw(st.booleans()),
        baseline=draw(st.none() | st.just(BASELINE)),
        verdict=draw(st.none() | st.just(VERDICT)),
        prediction_error=draw(st.none() | st.floats(0, 100)),
        peak_bytes=[0] * devices,
        device_names=draw(st.lists(TEXT, min_size=devices, max_size=devices)),
        device_kinds=["CPU"] * devices,
        planning_s=draw(st.floats(0, 1e300)),
        assumptions=draw(st.lists(TEXT, max_size=2)),
        versions=draw(st.dictionaries(TEXT, TEXT, max_size=2)),
        node_names=names,
        node_hashes=np.array(column(st.integers(0, 2**64 - 1)), dtype=np.uint64),
        node_ranks=column(st.integers(0, 2**32 - 1)) if draw(st.booleans()) else [],
        structure=draw(st.integers(0, 2**64 - 1)),
        node_devices=np.array(column(st.integers(0, devices - 1)), dtype=np.int32),
    )


@settings(deadline=None)
@given(plans())
def test_any_plan_survives_a_round_trip(plan: Plan) -> None:
    again = Plan.from_bytes(plan.to_bytes())
    assert again == plan
    assert again.to_bytes() == plan.to_bytes()
    for name, value in vars(plan).items():
        if name == "structure" and len(plan.node_ranks) == 0:
            continue  # it is of the ranks
        np.testing.assert_equal(getattr(again, name), value, err_msg=name)


POINT = {"steps": 5, "best_ns": None, "placements": 40, "mean_ns": 1, "infeasible": 0}


def test_the_learning_curve_is_made_of_what_searches_tell() -> None:
    progress = Progress(steps=3, best_ns=7, placements=9, mean_ns=8.5, infeasible=0.5)
    told = {name: getattr(progress, name) for name in CURVE_POINT}
    (point,) = make_plan(learning_curve=[told]).learning_curve
    assert Progress(**point) == progress


def test_a_plan_is_frozen_and_keeps_no_reference_to_its_arguments() -> None:
    devices, options = np.array([0, 1, 1], dtype=np.int32), {"threads": [2]}
    plan = make_plan(node_devices=devices, planner_options=options)
    devices[0] = 1
    options["threads"].append(3)
    assert plan.node_devices.tolist() == [0, 1, 1]
    assert plan.planner_options == {"threads": [2]}
    for array in (plan.node_devices, Plan.from_bytes(plan.to_bytes()).node_hashes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": "3F" * 16}, "plan.fingerprint must be 32 lower-case hex digits"),
        ({"fingerprint": FINGERPRINT + "\n"}, "plan.fingerprint must be"),
        ({"seed": True}, "plan.seed must be an integer, not bool"),
        ({"seed": 2**63}, "plan.seed does not fit into 64 bits"),
        ({"step_time_ns": -1}, "plan.step_time_ns must not be negative"),
        ({"step_time_ns": 1.5}, "plan.step_time_ns must be an integer"),
        ({"feasible": 1}, "plan.feasible must be true or false"),
        ({"label": None}, "plan.label must be a string, not NoneType"),
        ({"label": "\ud800"}, "plan.label is not valid Unicode"),
        ({"budget": {"s": float("nan")}}, "plan.budget holds something JSON cannot"),
        ({"budget": {1: 2}}, "plan.budget must be an object with string keys"),
        ({"planner_options": {"f": print}}, "plan.planner_options holds something JSON cannot"),
        ({"planning_s": float("inf")}, "plan.planning_s must be finite"),
        ({"created": "yesterday"}, "plan.created must be a UTC time"),
        ({"created": "2024-05-01T12:00:00+02:00"}, "plan.created must be a UTC time"),
        ({"peak_bytes": [1]}, "plan.peak_bytes must have one entry for each of 2 devices"),
        ({"device_names": "ab"}, "plan.device_names must be a list, not str"),
        ({"lower_bound_ns": -1}, "plan.lower_bound_ns must not be negative"),
        ({"machine": b"x"}, "plan.machine must be a string, not bytes"),
        ({"learning_curve": [{}]}, r"plan.learning_curve \[0\] must be an object of steps, best"),
        ({"learning_curve": [POINT | {"steps": -1}]}, r"\[0\] steps must not be negative"),
        ({"learning_curve": [POINT | {"mean_ns": "1"}]}, r"\[0\] mean_ns must be a number"),
        ({"learning_curve": [POINT | {"infeasible": 1.1}]}, r"infeasible must be at most 1"),
        ({"assumptions": ["x", 1]}, r"plan.assumptions \[1\] must be a string"),
        ({"versions": {"python": 3}}, "plan.versions must be a string, not int"),
        ({"node_names": ["a", "b\nc", "d"]}, "'b.nc' is not a node name"),
        ({"node_names": ["a", "", "d"]}, "'' is not a node name"),
        ({"node_names": "abc"}, "plan.node_names must be a list of names, not str"),
        ({"node_names": ["a"]}, "must have one entry for each of 1 node names"),
        ({"node_hashes": [1, -2, 3]}, "plan.node_hashes holds -2, out of range"),
        ({"node_ranks": [0, 0]}, "plan.node_ranks must have one entry for each of 3 node names"),
        ({"node_ranks": [0, 2**32, 0]}, "plan.node_ranks holds 4294967296, out of range"),
        ({"structure": 2**64}, "plan.structure does not fit into 64 bits without a sign"),
        ({"structure": -1}, "plan.structure does not fit into 64 bits without a sign"),
        ({"structure": "7"}, "plan.structure must be an integer, not str"),
        ({"node_devices": [0.0, 1.0, 1.0]}, "plan.node_devices must be a flat array of integers"),
        ({"node_devices": [0, -1, 1]}, "puts node 'b/c' on device -1, there are 2"),
        ({"node_devices": [0, 1, 2]}, "puts node 'd' on device 2, there are 2"),
        ({"node_devices": [0, 1, 2**40]}, "out of range"),
        ({"step_spread_ns": 7}, "plan.step_spread_ns must be a list"),
        ({"step_spread_ns": [7, 8, 9]}, "plan.step_spread_ns must be two ascending integers"),
        ({"step_spread_ns": [8, 7]}, "plan.step_spread_ns must be two ascending integers"),
        ({"step_spread_ns": [-1, 7]}, r"plan.step_spread_ns \[0\] must not be negative"),
        ({"baseline": 7}, "plan.baseline must be an object"),
        ({"baseline": {"feasible": True, "peak_bytes": []}}, "plan.baseline"),
        ({"baseline": {**vars(BASELINE), "step_time_ns": -1}}, "plan.baseline"),
        ({"baseline": {**vars(BASELINE), "feasible": 1}}, "plan.baseline"),
        ({"baseline": {**vars(BASELINE), "more": 0}}, "plan.baseline"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(**changes)


GOOD = make_plan().to_bytes()
SUMMARY = zlib.compress(sections_of(GOOD)["summary"])
DELETE = "delete the file"


@pytest.mark.parametrize(
    ("data", "reason", "remedy"),
    [
        (b"", "is empty", DELETE),
        (b"hplac", "is truncated", DELETE),
        (GOOD[:50], "is truncated", DELETE),
        (GOOD[:100], "is truncated: 100 bytes of at least", DELETE),
        (GOOD[:-1], "is damaged or truncated", DELETE),
        (GOOD + b"x", "is damaged or truncated", DELETE),
        (b"PK\3\4" + GOOD, "is not a plan file", DELETE),
        (GOOD.replace(b"plan/1 ", b"plan/0 "), "has a damaged header", DELETE),
        (GOOD.replace(b"plan/1 ", b"plan/5 "), "has format hplacer-plan/5", "upgrade hplacer-opt"),
        (b"hplacer-plan/12 anything", "has format hplacer-plan/12", "upgrade hplacer-optimizer"),
        (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "checksum of the section 'node_devices'", DELETE),
        (GOOD.replace(b"sections", b"sectionz"), "the checksum of the header", DELETE),
        (frame(b"{"), "does not hold JSON", DELETE),
        (frame(b" " * 70_000), "has a damaged header", DELETE),
        (frame(b"{}"), "without a list of sections", DELETE),
        (frame(b'{"sections":[]}'), "without a list of sections", DELETE),
        (frame(b'{"sections":[1]}'), "whose sections are not [name, length, SHA-256]", DELETE),
        (frame(b'{"sections":[["a",-1,"' + b"0" * 64 + b'"]]}'), "sections are not", DELETE),
        (frame(b'{"sections":[["a",true,"' + b"0" * 64 + b'"]]}'), "sections are not", DELETE),
        (frame(b'{"sections":[["summary",%d,"' % 2**59 + b"0" * 64 + b'"]]}'), "truncated", DELETE),
        (pack({"summary": b"x", "node_names": b""}), "cannot be decompressed", DELETE),
        (pack({"summary": zlib.compress(b"{}")[:-1]}), "is not exactly one zlib stream", DELETE),
        (pack({"summary": zlib.compress(b"{}") + b"x"}), "is not exactly one zlib", DELETE),
        (pack({"summary": zlib.compress(b"{")}), "does not hold JSON", DELETE),
        (pack({"summary": zlib.compress(b"\xff")}), "does not hold JSON", DELETE),
        (pack({"summary": zlib.compress(b'{"a":NaN}')}), "NaN is not JSON", DELETE),
        (pack({"summary": zlib.compress(b'{"a":1,"a":2}')}), "a key appears twice", DELETE),
        (pack({"summary": zlib.compress(b"[" * 200_000)}), "does not hold JSON", DELETE),
        (pack({"summary": zlib.compress(b"9" * 5_000)}), "does not hold JSON", DELETE),
        (pack({"summary": zlib.compress(b"[]")}), "does not hold a JSON object", DELETE),
        (without("seed"), "has no field 'seed'", DELETE),
        (changed(extra=1), "has the unknown field 'extra'", DELETE),
        (changed(seed="7"), "plan.seed must be an integer, not str", DELETE),
        (changed(planning_s=10**400), "plan.planning_s must be finite", DELETE),
        (changed(fingerprint_parts={}), "plan.fingerprint_parts must be a list", DELETE),
        (changed(fingerprint_parts=[["a"]]), "plan.fingerprint_parts must be a list of", DELETE),
        (changed(fingerprint_parts=[["a", "b"]] * 2), "with distinct names", DELETE),
        (changed(node_names=b"a\n\nd"), "holds an empty node name", DELETE),
        (changed(node_names=b"a\nb\nc\nd"), "for each of 4 node names", DELETE),
        (changed(node_names=b"a\nb\n\xff"), "holds columns that cannot be read", DELETE),
        (pack({"summary": SUMMARY}), "has no section 'node_names'", DELETE),
        (changed(node_hashes=b"123"), "holds columns that cannot be read", DELETE),
        (changed(node_ranks=b"\1" * 8), "the section 'node_ranks' has 8 bytes", DELETE),
        (changed(node_ranks=b"\1" * 9), "holds columns that cannot be read", DELETE),
        (changed(node_ranks=b"\1" * 16), "for each of 3 node names", DELETE),
        (changed(node_devices=b"\0\0\0\0"), "for each of 3 node names", DELETE),
        (changed(node_devices=b"\0\0\1\0\2\0"), "on device 2, there are 2", DELETE),
        (changed(problem=b"{}"), "has the section 'problem' without all of", DELETE),
    ],
)
def test_a_bad_file_names_itself_the_reason_and_the_remedy(
    data: bytes, reason: str, remedy: str
) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.from_bytes(data, "/plans/x.hplan")
    message = str(caught.value)
    assert message.startswith("/plans/x.hplan: ")
    assert reason in message
    assert remedy in message


def test_a_file_may_have_no_ranks() -> None:
    sections = sections_of(GOOD)
    del sections["node_ranks"]
    old = Plan.from_bytes(pack({name: zlib.compress(data) for name, data in sections.items()}))
    assert len(old.node_ranks) == 0
    assert old == make_plan(node_ranks=[], structure=0)
    assert "node_ranks" not in sections_of(old.to_bytes())


def test_every_prefix_is_refused() -> None:
    for length in range(len(GOOD)):
        with pytest.raises(PlanError):
            Plan.from_bytes(GOOD[:length])


def test_any_flipped_byte_is_noticed() -> None:
    plan = make_plan()
    for position in range(len(GOOD)):
        for mask in (*(1 << bit for bit in range(8)), 0xFF):
            damaged = bytearray(GOOD)
            damaged[position] ^= mask
            try:
                assert Plan.from_bytes(bytes(damaged)) == plan
            except PlanError:
                continue


@given(st.binary(max_size=300))
def test_random_bytes_are_a_plan_error(data: bytes) -> None:
    packed = zlib.compress(data)
    for candidate in (
        data,
        b"hplacer-plan/1 " + data,
        frame(data),
        frame(packed),
        pack({"summary": data}),
        pack({"summary": packed}),
    ):
        with pytest.raises(PlanError):
            Plan.from_bytes(candidate)


@given(st.sampled_from(sorted(plan_format.SUMMARY)), JSON)
def test_any_json_in_any_field_is_a_plan_or_a_plan_error(name: str, value: object) -> None:
    try:
        plan = Plan.from_bytes(changed(**{name: value}))
    except PlanError:
        return
    assert Plan.from_bytes(plan.to_bytes()) == plan


@given(st.sampled_from(sorted(sections_of(with_problem(make_plan()).to_bytes()))), st.data())
def test_any_bytes_in_a_section_are_a_plan_or_a_plan_error(name: str, data: st.DataObject) -> None:
    """The checksums are right, so that the checks behind them are what is tested."""
    sections = sections_of(with_problem(make_plan()).to_bytes())
    start, end = sorted(data.draw(st.integers(0, len(sections[name]))) for _ in range(2))
    inserted = data.draw(st.binary(max_size=8))
    sections[name] = sections[name][:start] + inserted + sections[name][end:]
    try:
        plan = Plan.from_bytes(pack({key: zlib.compress(part) for key, part in sections.items()}))
        plan.verify()
    except PlanError:
        return
    assert Plan.from_bytes(plan.to_bytes()) == plan


def test_a_decompression_bomb_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_file, "MAX_SECTION_BYTES", 1_000_000)
    data = pack({"summary": zlib.compress(b" " * 50_000_000)})
    with pytest.raises(PlanError, match="is larger than 1000000 bytes when decompressed"):
        Plan.from_bytes(data)


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "41.2 ms/step predicted"),
        (
            {"baseline": BASELINE},
            "41.2 ms/step, 2.0 times as fast as TensorFlow's placement (82.4 ms), both predicted",
        ),
        (
            {"baseline": dataclasses.replace(BASELINE, feasible=False)},
            "41.2 ms/step predicted, TensorFlow's placement does not fit into memory",
        ),
        (
            {"planner_options": {"measured": {"step_ns": 2_000_000, "baseline_ns": 2_500_000}}},
            "2 ms/step, 1.25 times as fast as TensorFlow's placement (2.5 ms), both measured",
        ),
        (
            {"planner_options": {"measured": {"step_ns": 2_000_000, "baseline_ns": None}}},
            "2 ms/step measured",
        ),
        ({"feasible": False, "baseline": BASELINE}, "does not fit into memory"),
        ({"step_time_ns": None, "baseline": BASELINE}, "step time not simulated"),
    ],
)
def test_summary_line(changes: dict[str, Any], outcome: str) -> None:
    assert make_plan(**changes).summary_line() == f"3f9c2b1a (etf): {outcome}"


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.5 us"),
        (999_900_000, "1000 ms"),
        (1_234_000_000, "1.23 s"),
        (4_321_000_000_000, "4321 s"),
    ],
)
def test_format_ns(duration_ns: int, text: str) -> None:
    assert format_ns(duration_ns) == text


def test_a_large_plan_loads_fast() -> None:
    count = 50_000
    random = np.random.default_rng(0)
    plan = make_plan(
        node_names=[f"gradients/tower_{i % 4}/block_{i // 100}/MatMul_{i}" for i in range(count)],
        node_hashes=random.integers(0, 2**64, count, dtype=np.uint64),
        node_devices=random.integers(0, 2, count, dtype=np.int32),
    )
    data = plan.to_bytes()
    seconds = []
    for _ in range(5):
        start_s = time.perf_counter()
        Plan.from_bytes(data)
        seconds.append(time.perf_counter() - start_s)
    assert min(seconds) < 0.15
