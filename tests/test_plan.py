"""Plans and their file format, damaged files included."""

from __future__ import annotations

import base64
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
from hypothesis import given
from hypothesis import strategies as st

import hplacer_optimizer.plan as plan_module
from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.plan import NodeNames, Plan, format_ns

PAGE = Path(__file__).resolve().parents[1] / "docs" / "plan-format.md"
FINGERPRINT = "3f9c2b1a" + "0" * 24


def make_plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "fingerprint": FINGERPRINT,
        "fingerprint_parts": {"graph": "a1", "targets": "b2", "machine": "c3", "constraints": "d4"},
        "label": "train_step",
        "planner": "etf",
        "planner_notes": ["sct: the time limit was hit"],
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
        "node_devices": np.array([0, 1, 1], dtype=np.int32),
    }
    return Plan(**{**fields, **changes})


def pack(document: object) -> bytes:
    """A plan file with valid header and checksum around any document."""
    return seal(zlib.compress(json.dumps(document).encode()))


def seal(body: bytes) -> bytes:
    header = f"hplacer-plan/1 {hashlib.sha256(body).hexdigest()} {len(body)}\n"
    return header.encode() + body


def document_of(plan: Plan) -> dict[str, Any]:
    """Read as docs/plan-format.md says, without the reader under test."""
    header, body = plan.to_bytes().split(b"\n", 1)
    magic, digest, length = header.decode("ascii").split(" ")
    assert magic == "hplacer-plan/1"
    assert digest == hashlib.sha256(body).hexdigest()
    assert int(length) == len(body)
    document: dict[str, Any] = json.loads(zlib.decompress(body))
    return document


def test_document_is_what_the_format_page_says() -> None:
    document = document_of(make_plan())
    assert list(document) == sorted(document)
    assert document["node_names"] == "a\nb/c\nd"
    assert base64.b64decode(document["node_hashes"]) == bytes(
        [1, 0, 0, 0, 0, 0, 0, 0] + [255] * 8 + [3, 0, 0, 0, 0, 0, 0, 0]
    )
    assert base64.b64decode(document["node_devices"]) == bytes([0, 0, 1, 0, 1, 0])
    assert document["fingerprint_parts"][0] == ["graph", "a1"]
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(document)


def test_the_reader_on_the_format_page_works(tmp_path: Path) -> None:
    plan = make_plan()
    path = tmp_path / "x.hplan"
    path.write_bytes(plan.to_bytes())
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    cpu, gpu = plan.device_names
    assert names["read"](path) == {"a": cpu, "b/c": gpu, "d": gpu}


def test_round_trip_keeps_everything() -> None:
    plan = make_plan()
    again = Plan.from_bytes(plan.to_bytes())
    assert again == plan
    assert again.to_bytes() == plan.to_bytes()
    assert again.node_devices.dtype == np.int32
    assert again.node_hashes.dtype == np.uint64
    assert again.node_hashes.tolist() == [1, 2**64 - 1, 3]
    assert list(again.node_names) == ["a", "b/c", "d"]
    assert again.node_names_blob == "a\nb/c\nd"
    assert list(again.fingerprint_parts) == ["graph", "targets", "machine", "constraints"]


def test_files_from_before_a_field_existed_are_read() -> None:
    document = json.loads(
        zlib.decompress(make_plan(planner_notes=[]).to_bytes().split(b"\n", 1)[1])
    )
    assert "planner_notes" not in document
    assert Plan.from_bytes(pack(document)).planner_notes == []


def test_every_field_is_checked() -> None:
    assert [field.name for field in dataclasses.fields(Plan)] == list(plan_module._CHECKS)


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
        "node_devices": [1, 1, 1],
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
        step_time_ns=draw(st.none() | st.integers(0, 2**63 - 1)),
        feasible=draw(st.booleans()),
        peak_bytes=[0] * devices,
        device_names=draw(st.lists(TEXT, min_size=devices, max_size=devices)),
        device_kinds=["CPU"] * devices,
        planning_s=draw(st.floats(0, 1e300)),
        assumptions=draw(st.lists(TEXT, max_size=2)),
        versions=draw(st.dictionaries(TEXT, TEXT, max_size=2)),
        node_names=names,
        node_hashes=np.array(column(st.integers(0, 2**64 - 1)), dtype=np.uint64),
        node_devices=np.array(column(st.integers(0, devices - 1)), dtype=np.int32),
    )


@given(plans())
def test_any_plan_survives_a_round_trip(plan: Plan) -> None:
    again = Plan.from_bytes(plan.to_bytes())
    assert again == plan
    assert list(again.node_names) == list(plan.node_names)
    assert again.fingerprint_parts == plan.fingerprint_parts
    assert again.planner_options == plan.planner_options
    np.testing.assert_array_equal(again.node_hashes, plan.node_hashes)
    np.testing.assert_array_equal(again.node_devices, plan.node_devices)


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
        ({"assumptions": ["x", 1]}, r"plan.assumptions \[1\] must be a string"),
        ({"versions": {"python": 3}}, "plan.versions must be a string, not int"),
        ({"node_names": ["a", "b\nc", "d"]}, "'b.nc' is not a node name"),
        ({"node_names": ["a", "", "d"]}, "'' is not a node name"),
        ({"node_names": "abc"}, "plan.node_names must be a list of names, not str"),
        ({"node_names": ["a"]}, "must have one entry for each of 1 node names"),
        ({"node_hashes": [1, -2, 3]}, "plan.node_hashes holds -2, out of range"),
        ({"node_devices": [0.0, 1.0, 1.0]}, "plan.node_devices must be a flat array of integers"),
        ({"node_devices": [0, -1, 1]}, "puts node 'b/c' on device -1, there are 2"),
        ({"node_devices": [0, 1, 2]}, "puts node 'd' on device 2, there are 2"),
        ({"node_devices": [0, 1, 2**40]}, "out of range"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(**changes)


def changed(**changes: Any) -> bytes:
    return pack(document_of(make_plan()) | changes)


def without(name: str) -> bytes:
    document = document_of(make_plan())
    del document[name]
    return pack(document)


def base64_of(values: list[int], dtype: str) -> str:
    return base64.b64encode(np.array(values, dtype=dtype).tobytes()).decode()


GOOD = make_plan().to_bytes()
DELETE = "delete the file"


@pytest.mark.parametrize(
    ("data", "reason", "remedy"),
    [
        (b"", "is empty", DELETE),
        (b"hplac", "is truncated", DELETE),
        (GOOD[:50], "is truncated", DELETE),
        (GOOD[:-1], "is damaged or truncated", DELETE),
        (GOOD + b"x", "is damaged or truncated", DELETE),
        (b"PK\3\4" + GOOD, "is not a plan file", DELETE),
        (GOOD.replace(b"plan/1 ", b"plan/0 "), "has a damaged header", DELETE),
        (GOOD.replace(b"plan/1 ", b"plan/2 "), "has format hplacer-plan/2", "upgrade hplacer-opt"),
        (b"hplacer-plan/12 anything", "has format hplacer-plan/12", "upgrade hplacer-optimizer"),
        (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "the checksum does not match", DELETE),
        (seal(b"not zlib"), "cannot be decompressed", DELETE),
        (seal(zlib.compress(b"{}")[:-1]), "is not exactly one zlib stream", DELETE),
        (seal(zlib.compress(b"{}") + b"x"), "is not exactly one zlib stream", DELETE),
        (seal(zlib.compress(b"{")), "does not hold JSON", DELETE),
        (seal(zlib.compress(b"\xff")), "does not hold JSON", DELETE),
        (seal(zlib.compress(b'{"a":NaN}')), "NaN is not JSON", DELETE),
        (seal(zlib.compress(b'{"a":1,"a":2}')), "a key appears twice", DELETE),
        (seal(zlib.compress(b"[" * 200_000)), "does not hold JSON", DELETE),
        (seal(zlib.compress(b"9" * 5_000)), "does not hold JSON", DELETE),
        (pack([]), "does not hold a JSON object", DELETE),
        (without("seed"), "has no field 'seed'", DELETE),
        (changed(extra=1), "has the unknown field 'extra'", DELETE),
        (changed(seed="7"), "plan.seed must be an integer, not str", DELETE),
        (changed(device_names=None), "plan.device_names must be a list", DELETE),
        (changed(versions=[]), "plan.versions must be an object", DELETE),
        (changed(planning_s=10**400), "plan.planning_s must be finite", DELETE),
        (changed(fingerprint_parts={}), "plan.fingerprint_parts must be a list", DELETE),
        (changed(fingerprint_parts=[["a"]]), "plan.fingerprint_parts must be a list of", DELETE),
        (changed(fingerprint_parts=[["a", "b"]] * 2), "with distinct names", DELETE),
        (changed(node_names=["a", "b/c", "d"]), "plan.node_names must be a string", DELETE),
        (changed(node_names="a\n\nd"), "plan.node_names holds an empty node name", DELETE),
        (changed(node_names="a\nb\nc\nd"), "for each of 4 node names", DELETE),
        (changed(node_names="a\nb\n\ud800"), "plan.node_names is not valid Unicode", DELETE),
        (changed(node_hashes="AAA"), "plan.node_hashes", DELETE),
        (changed(node_hashes="AAAA"), "plan.node_hashes", DELETE),
        (changed(node_hashes="ä"), "plan.node_hashes", DELETE),
        (changed(node_hashes=None), "plan.node_hashes must be a string", DELETE),
        (changed(node_devices=base64_of([0, 1], "<u2")), "for each of 3 node names", DELETE),
        (changed(node_devices=base64_of([0, 1, 2], "<u2")), "on device 2, there are 2", DELETE),
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
    for candidate in (data, b"hplacer-plan/1 " + data, seal(data), seal(zlib.compress(data))):
        with pytest.raises(PlanError):
            Plan.from_bytes(candidate)


@given(st.sampled_from(sorted(document_of(make_plan()))), JSON)
def test_any_json_in_any_field_is_a_plan_or_a_plan_error(name: str, value: object) -> None:
    try:
        plan = Plan.from_bytes(changed(**{name: value}))
    except PlanError:
        return
    assert Plan.from_bytes(plan.to_bytes()) == plan


def test_a_decompression_bomb_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "MAX_BODY_BYTES", 1_000_000)
    data = seal(zlib.compress(b" " * 50_000_000))
    with pytest.raises(PlanError, match="is larger than 1000000 bytes when decompressed"):
        Plan.from_bytes(data)


def test_names_are_split_only_when_asked_for() -> None:
    names = NodeNames("a\nb/c")
    assert len(names) == 2
    assert "_names" not in vars(names)
    assert names[1] == "b/c"
    assert names[:1] == ["a"]
    assert list(NodeNames("")) == []


def test_summary_line() -> None:
    assert make_plan().summary_line() == "3f9c2b1a (etf, predicted 41.2 ms/step)"
    assert make_plan(feasible=False).summary_line() == "3f9c2b1a (etf, does not fit into memory)"
    unknown = make_plan(step_time_ns=None).summary_line()
    assert unknown == "3f9c2b1a (etf, step time not simulated)"


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


def test_better_than_is_a_strict_order() -> None:
    fast, slow = make_plan(step_time_ns=1), make_plan(step_time_ns=2)
    unknown, infeasible = make_plan(step_time_ns=None), make_plan(step_time_ns=0, feasible=False)
    ranking = [fast, slow, unknown, infeasible]
    for i, plan in enumerate(ranking):
        for j, other in enumerate(ranking):
            assert plan.better_than(other) == (i < j)


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
