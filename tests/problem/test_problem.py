from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hplacer_optimizer as hp
from hplacer_optimizer import _engine
from hplacer_optimizer.errors import PlanError, ProblemError
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.problem_file import load_problem_file, save_problem
from testbed.documents import problem_from_dict, problem_to_dict
from testbed.large_problem import large_problem
from testbed.random_problems import problems

Document = dict[str, Any]
INT64_MAX = 2**63 - 1


def document() -> Document:
    """Ops a -> b, b also after c; two devices of two kinds, linked both ways."""
    return {
        "format": "hplacer-problem/2",
        "name": "small",
        "device_kinds": ["cpu", "k40"],
        "devices": [
            {"name": "/device:CPU:0", "kind": "cpu", "memory_bytes": 64, "slots": 4},
            {"name": "/device:GPU:0", "kind": "k40", "memory_bytes": 32},
        ],
        "links": [
            {"src": 0, "dst": 1, "channel": "down", "latency_ns": 1, "bytes_per_s": 10**9},
            {"src": 1, "dst": 0, "channel": "up", "latency_ns": 1, "bytes_per_s": 10**9},
        ],
        "ops": [
            {"name": "a", "type": "MatMul", "cost_ns": {"cpu": 5, "k40": 1}, "output_bytes": [4]},
            {
                "name": "b",
                "type": "Identity",
                "cost_ns": {"cpu": 4},
                "output_bytes": [4, 0],
                "output_alias": [[0, 0], None],
                "allowed_devices": [0, 1],
                "colocation_group": "g",
            },
            {
                "name": "c",
                "type": "ReadVariableOp",
                "cost_ns": {"cpu": 1},
                "output_bytes": [8],
                "output_alias": ["persistent"],
                "temp_bytes": 3,
                "persistent_bytes": 8,
                "colocation_group": "g",
            },
        ],
        "edges": [[0, 0, 1]],
        "control_edges": [[2, 1]],
    }


def changed(path: str, value: Any) -> Document:
    """The document with the field at `path`, such as "ops.1.cost_ns", set to `value`."""
    result = document()
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target: Any = result
    for part in parents:
        target = target[part]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return result


def link(**changes: Any) -> Document:
    return {"src": 0, "dst": 1, "channel": "x", "latency_ns": 0, "bytes_per_s": 1} | changes


REFUSED = [
    # (path, value or ... to delete, start of the message)
    ("format", ..., "format: is missing"),
    ("format", "hplacer-problem/3", "format: 'hplacer-problem/3' is not supported"),
    ("format", "hplacer-plan/1", "format: 'hplacer-plan/1' is not a problem file's format"),
    ("name", ..., "name: is missing"),
    ("name", None, "name: expected a string, got null"),
    ("name", "\ud800", "not JSON: parse error at line 1, column "),
    ("comment", "", "comment: unknown key"),
    ("device_kinds", ..., "device_kinds: is missing"),
    ("device_kinds.1", 1, "device_kinds[1]: expected a string, got int"),
    ("device_kinds", ["cpu", "k40", "cpu"], "device_kinds[2]: the name 'cpu' is given twice"),
    ("devices", {}, "devices: expected a list, got dict"),
    ("devices.0", [], "devices[0]: expected an object, got list"),
    ("devices.0.name", ..., "devices[0].name: is missing"),
    ("devices.1.name", "/device:CPU:0", "devices[1].name: the name '/device:CPU:0' is given"),
    ("devices.1.kind", "v100", "devices[1].kind: unknown device kind 'v100'"),
    ("devices.1.memory_bytes", ..., "devices[1].memory_bytes: is missing"),
    ("devices.1.memory_bytes", -1, "devices[1].memory_bytes: must be at least 0, got -1"),
    ("devices.1.memory_bytes", 2**63, "devices[1].memory_bytes: must be at most"),
    ("devices.1.memory_bytes", 10**400, "devices[1].memory_bytes: must be at most"),
    ("devices.1.memory_bytes", -(10**30), "devices[1].memory_bytes: must be at least 0, got a"),
    ("devices.1.memory_bytes", 1.0, "devices[1].memory_bytes: expected an integer, got float"),
    ("devices.1.slots", 0, "devices[1].slots: must be at least 1, got 0"),
    ("devices.1.slots", 2**31, "devices[1].slots: must be at most"),
    ("devices.1.speed", 1, "devices[1].speed: unknown key"),
    ("devices.1.cores", 1, "devices[1].cores: expected a string, got int"),
    ("devices.1.start_ns", -1, "devices[1].start_ns: must be at least 0, got -1"),
    ("devices.0.turn_ns", -2, "devices[0].turn_ns: must be at least 0, got -2"),
    ("links", ..., "links: is missing"),
    ("links.1.src", 2, "links[1].src: device 2 is out of range, there are 2"),
    ("links.1.src", -1, "links[1].src: must be at least 0, got -1"),
    ("links.1.dst", 7, "links[1].dst: device 7 is out of range"),
    ("links.1.channel", ..., "links[1].channel: is missing"),
    ("links.1.latency_ns", -5, "links[1].latency_ns: must be at least 0, got -5"),
    ("links.1.bytes_per_s", 0, "links[1].bytes_per_s: must be at least 1, got 0"),
    ("links.1.bytes_per_s", "1e9", "links[1].bytes_per_s: expected an integer, got str"),
    ("links.1.send_ns", -1, "links[1].send_ns: must be at least 0, got -1"),
    ("links.0.send_bytes_per_s", 0, "links[0].send_bytes_per_s: must be at least 1, got 0"),
    ("links.1.receive_ns", "5", "links[1].receive_ns: expected an integer, got str"),
    ("links.1.receive_bytes_per_s", 0, "links[1].receive_bytes_per_s: must be at least 1, got 0"),
    ("links.1.duplex", True, "links[1].duplex: unknown key"),
    ("links", [link(dst=0)], "links[0]: joins device '/device:CPU:0' to itself"),
    ("links", [link(), link()], "links[1]: a link from '/device:CPU:0' to '/device:GPU:0' is"),
    ("ops", ..., "ops: is missing"),
    ("ops.1", None, "ops[1]: expected an object, got null"),
    ("ops.1.name", "a", "ops[1].name: the name 'a' is given twice"),
    ("ops.1.type", ..., "ops[1].type: is missing"),
    ("ops.1.cost_ns", ..., "ops[1].cost_ns: is missing"),
    ("ops.1.cost_ns", 5, "ops[1].cost_ns: expected an object, got int"),
    ("ops.1.cost_ns", {"v100": 1}, "ops[1].cost_ns: unknown device kind 'v100'"),
    ("ops.1.cost_ns", {"cpu": -1}, "ops[1].cost_ns.cpu: must be at least 0, got -1"),
    ("ops.1.output_bytes", [4, -1], "ops[1].output_bytes[1]: must be at least 0, got -1"),
    ("ops.1.output_bytes", 4, "ops[1].output_bytes: expected a list, got int"),
    ("ops.1.output_alias", [None], "ops[1].output_alias: has 1 entries for 2 outputs"),
    ("ops.1.output_alias.0", "temp", "ops[1].output_alias[0]: expected null, [source op,"),
    ("ops.1.output_alias.0", [-2, 0], "ops[1].output_alias[0][0]: must be at least 0, got -2"),
    ("ops.1.output_alias.0", [2, 0], "ops[1].output_alias: output 0 aliases [2, 0], which op 'b'"),
    ("ops.1.output_alias.0", [0, 1], "ops[1].output_alias: output 0 aliases [0, 1], which op 'b'"),
    ("ops.1.temp_bytes", -1, "ops[1].temp_bytes: must be at least 0, got -1"),
    ("ops.1.persistent_bytes", 0.5, "ops[1].persistent_bytes: expected an integer, got float"),
    ("ops.1.allowed_devices", [0, 2], "ops[1].allowed_devices: device 2 is out of range"),
    ("ops.1.allowed_devices", [-1], "ops[1].allowed_devices[0]: must be at least 0, got -1"),
    ("ops.1.allowed_devices", 0, "ops[1].allowed_devices: expected a list, got int"),
    ("ops.1.colocation_group", 1, "ops[1].colocation_group: expected a string, got int"),
    ("ops.1.device", 0, "ops[1].device: unknown key"),
    ("ops.0.default_device", 0, "ops[1].default_device: is missing, other ops have one"),
    ("ops.2.default_device", 0, "ops[0].default_device: is missing, other ops have one"),
    ("ops.1.same_as", 1, "ops[1].same_as: is 1, expected an earlier op, which is no other's"),
    ("ops.1.same_as", -1, "ops[1].same_as: must be at least 0, got -1"),
    ("ops.0.default_device", -1, "ops[0].default_device: must be at least 0, got -1"),
    ("order", {}, "order.nodes: is missing"),
    ("order", {"nodes": [{"op": 3}]}, "order.nodes[0].op: op 3 is out of range, there are 3"),
    ("order", {"nodes": [{"op": 0, "inputs": [[1, 0]]}]}, "order.nodes[0].inputs: node 1 is out"),
    ("order", {"nodes": [{"op": 0, "inputs": [[]]}]}, "order.nodes[0].inputs[0]: expected"),
    ("order", {"nodes": [{"op": 0}], "targets": [1]}, "order.targets[0]: node 1 is out of range"),
    (
        "order",
        {"nodes": [{"op": 0, "inputs": [[1]]}, {"op": 1, "inputs": [[0]]}]},
        "order.nodes: op 'a' waits for a cycle of nodes, or is in it",
    ),
    (
        "order",
        {"nodes": [{"op": 0}, {"op": 1, "inputs": [[0], [0, 0]]}]},
        "order.nodes[1].inputs: what is read must come first",
    ),
    ("edges", ..., "edges: is missing"),
    ("edges.0", [0, 0], "edges[0]: expected 3 integers, got 2"),
    ("edges.0", "001", "edges[0]: expected a list, got str"),
    ("edges.0", [0, 0, 3], "edges[0]: destination op 3 is out of range, there are 3"),
    ("edges.0", [3, 0, 0], "edges[0]: source op 3 is out of range, there are 3"),
    ("edges.0", [0, 1, 1], "edges[0]: output 1 is out of range, there are 1"),
    ("edges.0", [0, -1, 1], "edges[0][1]: must be at least 0, got -1"),
    ("edges", [[0, 0, 1], [0, 0, 0]], "edges[1]: op 'a' reads itself"),
    ("edges", [[0, 0, 1], [1, 1, 0]], "edges: cycle 'a' -> 'b' -> 'a'"),
    ("control_edges.0", [2, 2], "control_edges[0]: op 'c' waits for itself"),
    ("control_edges.0", [3, 1], "control_edges[0]: source op 3 is out of range"),
    ("control_edges", [[1, 2], [2, 1]], "control_edges: cycle 'b' -> 'c' -> 'b'"),
    ("control_edges", [[1, 2], [2, 0]], "edges: cycle 'a' -> 'b' -> 'c' -> 'a'"),
    ("ops.1.cost_ns", {"cpu": INT64_MAX}, "ops: the sum of all times could exceed"),
    ("links.0.latency_ns", INT64_MAX, "ops: the sum of all times could exceed"),
    ("links.0.send_ns", INT64_MAX, "ops: the sum of all times could exceed"),
    ("links.1.receive_ns", INT64_MAX, "ops: the sum of all times could exceed"),
    ("devices.0.start_ns", INT64_MAX, "ops: the sum of all times could exceed"),
    ("ops.1.temp_bytes", INT64_MAX, "ops: the sum of all sizes could exceed"),
    ("ops.0.output_bytes", [INT64_MAX], "ops: the sum of all"),
]


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
def test_refused_fields(path: str, value: Any, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        problem_from_dict(changed(path, value))
    assert str(caught.value).startswith(message)


def test_shared_cores() -> None:
    given_document = document()
    for device in given_document["devices"]:
        device |= {"cores": "all", "slots": 4}
    problem = problem_from_dict(given_document)
    assert problem.device_cores == ["all", "all"]
    assert problem.device_pool.tolist() == [0, 0]
    assert problem_to_dict(problem) == given_document
    assert problem_to_dict(pickle.loads(pickle.dumps(problem))) == given_document
    assert problem.replace(device_cores=["all", "other"]).device_pool.tolist() == [0, 1]
    alone = problem.replace(device_cores=None)
    assert (alone.device_cores, alone.device_pool.tolist()) == (["", ""], [0, 1])
    with pytest.raises(ProblemError, match=r"^device_cores: has 1 values, expected 2"):
        problem.replace(device_cores=["all"])
    given_document["devices"][1]["slots"] = 3
    message = r"^devices\[1\]\.slots: is 3, but '/device:CPU:0', which has the same cores, has 4"
    with pytest.raises(ProblemError, match=message):
        problem_from_dict(given_document)


def with_work() -> Document:
    """Devices start at different times, and the transfers of the first link are work for them."""
    result = document()
    result["devices"][0] |= {"start_ns": 6, "turn_ns": 3, "cold_ns": 5}
    result["devices"][1] |= {"launch_ns": 4}
    work = {"send_ns": 2, "send_bytes_per_s": 5, "receive_ns": 4, "receive_bytes_per_s": 7}
    result["links"][0] |= work
    return result


OPTIONAL_TIMES = {
    "device_start_ns": [6, 0],
    "device_turn_ns": [3, 0],
    "device_cold_ns": [5, 0],
    "device_launch_ns": [0, 4],
    "link_send_ns": [2, 0],
    "link_send_bytes_per_s": [5, 0],
    "link_receive_ns": [4, 0],
    "link_receive_bytes_per_s": [7, 0],
}


def test_work_of_transfers_and_devices_that_start_late() -> None:
    problem = problem_from_dict(with_work())
    found = {name: getattr(problem, name) for name in OPTIONAL_TIMES}
    assert {name: column.tolist() for name, column in found.items()} == OPTIONAL_TIMES
    assert all(column.dtype == np.int64 for column in found.values())
    assert not any(column.flags.writeable for column in found.values())
    assert problem_to_dict(problem) == with_work()
    assert problem_to_dict(pickle.loads(pickle.dumps(problem))) == with_work()
    assert problem_to_dict(problem.replace(**dict.fromkeys(OPTIONAL_TIMES))) == document()
    plain = problem_from_dict(document())
    assert all(getattr(plain, name).tolist() == [0, 0] for name in OPTIONAL_TIMES)
    arrays = {name: np.array(column) for name, column in OPTIONAL_TIMES.items()}
    assert problem_to_dict(plain.replace(**arrays)) == with_work()


@pytest.mark.parametrize("name", OPTIONAL_TIMES)
def test_optional_times_of_a_wrong_size_or_sign(name: str) -> None:
    problem = problem_from_dict(document())
    with pytest.raises(ProblemError, match=rf"^{name}: has 1 values, expected 2"):
        problem.replace(**{name: np.zeros(1, np.int64)})
    items, _, field = name.partition("_")
    with pytest.raises(ProblemError, match=rf"^{items}s\[1\]\.{field}: must be at least 0, got -1"):
        problem.replace(**{name: np.array([0, -1])})


def test_ops_are_launched_one_after_the_other() -> None:
    problem = problem_from_dict(document())
    message = r"^devices\[0\]\.launch_ns: a device whose ops are launched has one slot"
    with pytest.raises(ProblemError, match=message):
        problem.replace(device_launch_ns=np.array([1, 0]))
    message = r"^devices\[1\]\.launch_ns: a device whose ops are launched has cores of its own"
    with pytest.raises(ProblemError, match=message):
        problem.replace(
            device_launch_ns=np.array([0, 1]),
            device_slots=np.array([1, 1], np.int32),
            device_cores=["all", "all"],
        )


@pytest.mark.parametrize("key", ["turn_ns", "cold_ns"])
def test_shared_cores_have_one_turn_and_one_cache(key: str) -> None:
    given_document = document()
    for device, ns in zip(given_document["devices"], (5, 6), strict=True):
        device |= {"cores": "all", "slots": 4, key: ns}
    message = rf"^devices\[1\]\.{key}: is 6, but '/device:CPU:0', which has the same cores, has 5"
    with pytest.raises(ProblemError, match=message):
        problem_from_dict(given_document)


def with_default_devices(*devices: int) -> Document:
    result = document()
    for op, device in zip(result["ops"], devices, strict=True):
        op["default_device"] = device
    return result


def test_default_devices() -> None:
    """Also one where the op is not allowed: op b has no kernel on the GPU."""
    given_document = with_default_devices(0, 1, 0)
    problem = problem_from_dict(given_document)
    assert problem.default_device is not None
    assert problem.default_device.dtype == np.int32
    assert problem.default_device.tolist() == [0, 1, 0]
    assert not problem.default_device.flags.writeable
    assert problem_to_dict(problem) == given_document
    assert problem_to_dict(pickle.loads(pickle.dumps(problem))) == given_document
    assert problem_to_dict(problem.replace(default_device=None)) == document()
    assert problem_from_dict(document()).default_device is None
    with pytest.raises(ProblemError, match=r"^ops\[1\]\.default_device: device 2 is out of range"):
        problem_from_dict(with_default_devices(0, 2, 0))
    with pytest.raises(ProblemError, match=r"^default_device: has 1 values, expected 3"):
        problem.replace(default_device=np.zeros(1, np.int32))


def test_same_constants() -> None:
    given_document = changed("ops.1.same_as", 0)
    problem = problem_from_dict(given_document)
    assert problem.same_as.tolist() == [-1, 0, -1]
    assert problem_to_dict(problem) == given_document
    assert problem_to_dict(pickle.loads(pickle.dumps(problem))) == given_document
    assert problem_to_dict(problem.replace(same_as=None)) == document()


def test_a_problem_that_was_pickled_without_optional_arrays() -> None:
    state = problem_from_dict(document()).__getstate__()
    orders = ("order_op", "order_input_ptr", "order_inputs", "order_targets")
    for name in ("default_device", "same_as", *orders, *OPTIONAL_TIMES):
        del state[name]
    again = hp.Problem.__new__(hp.Problem)
    again.__setstate__(state)
    assert again.default_device is None
    assert problem_to_dict(again) == document()


def test_files_of_version_1() -> None:
    cores = changed("devices.0.cores", "x") | {"format": "hplacer-problem/1"}
    with pytest.raises(ProblemError, match=r"^devices\[0\]\.cores: unknown key; .* slots$"):
        problem_from_dict(cores)
    with pytest.raises(ProblemError, match=r"^devices\[1\]\.turn_ns: unknown key; .* slots$"):
        problem_from_dict(changed("devices.1.turn_ns", 1) | {"format": "hplacer-problem/1"})
    for key in ("send_ns", "send_bytes_per_s", "receive_ns", "receive_bytes_per_s"):
        with pytest.raises(ProblemError, match=rf"^links\[0\]\.{key}: unknown .* bytes_per_s$"):
            problem_from_dict(changed(f"links.0.{key}", 1) | {"format": "hplacer-problem/1"})
    old = document() | {"format": "hplacer-problem/1"}
    assert problem_to_dict(problem_from_dict(old)) == document()
    old_with_default = with_default_devices(0, 0, 0) | {"format": "hplacer-problem/1"}
    version_first = json.dumps(old_with_default)
    version_last = json.dumps(dict(reversed(old_with_default.items())))
    for text in (version_first, version_last):
        with pytest.raises(ProblemError) as caught:
            _engine.read_problem(io.BytesIO(text.encode()))
        assert str(caught.value).startswith("ops[0].default_device: unknown key; the keys here are")
        assert str(caught.value).endswith("allowed_devices, colocation_group")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: parse error at line 1, column 1: "),
        ("{", "not JSON: parse error at line 1, column 2: "),
        ('{"name":\n "x",}', "not JSON: parse error at line 2, column 6: "),
        ("{}{}", "not JSON: parse error at line 1, column 3: "),
        ("[]", "expected an object, got list"),
        ("NaN", "not JSON: parse error at line 1, column 1: "),
        ('{"format": -Infinity}', "not JSON: parse error at line 1, column 13: "),
        ("1" * 5000, "expected an object, got int"),
        ("[" * 200_000, "expected an object, got list"),
        ('{"a":' * 200_000, "not a problem: nested too deeply"),
        ('{"name": "a' + "b" * 2**21 + '"}', "not JSON: a string, a number or white space of"),
        (" " * 2**21 + "{}", "not JSON: a string, a number or white space of"),
        ("{}" + " " * 2**21, "not JSON: a string, a number or white space of"),
        (json.dumps(document()) + "\0", "not JSON: a zero byte after the document"),
        ('{"format": "hplacer-problem/2", "name": "", "name": ""}', "name: the key is given twice"),
        ('{"format": "hplacer-problem/2", "name": 1e999}', "name: expected a string, got float"),
        ('{"name": 1e999}', "name: expected a string, got float"),
        (f'{{"format": "hplacer-problem/2", "name": {"9" * 400}}}', "name: expected a string, got"),
        # Another format is the reason for whatever else is wrong, wherever it stands.
        ('{"nodes": [{"a": 1}], "format": "hplacer-problem/3"}', "format: 'hplacer-problem/3' is"),
        ('{"name": {"format": "x"}, "format": 2}', "format: expected a string, got int"),
        ('{"nodes": 1, "format": "hplacer-problem/2"}', "nodes: unknown key"),
        ('{"nodes": 1}', "format: is missing"),
    ],
)
def test_refused_texts(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.hplacer.json"
    path.write_text(text)
    with pytest.raises(ProblemError) as caught:
        load_problem_file(path)
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith(f"(in file '{path}')")


def test_a_repeated_key_is_named_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "p.hplacer.json"
    path.write_text(json.dumps(document()).replace('"cpu": 5', '"cpu": 5, "cpu": 6'))
    with pytest.raises(ProblemError, match=r"^ops\[0\]\.cost_ns\.cpu: the key is given twice"):
        load_problem_file(path)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[:10], lambda data: data[:30] + b"\0" * 30]
)
def test_damaged_gzip(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "p.hplacer.json.gz"
    save_problem(problem_from_dict(document()), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ProblemError, match=r"^damaged gzip data: .*p\.hplacer\.json\.gz"):
        load_problem_file(path)


def test_arrays() -> None:
    problem = problem_from_dict(document())
    assert (problem.num_ops, problem.num_devices, problem.num_units) == (3, 2, 2)
    assert problem.units.tolist() == [0, 1, 1]
    assert problem.cost_ns.tolist() == [[5, 1], [4, -1], [1, -1]]
    assert problem.output_ptr.tolist() == [0, 1, 3, 4]
    assert problem.output_alias_src.tolist() == [-1, 0, -1, -2]
    assert problem.allowed_given.tolist() == [False, True, False]
    assert problem.device_slots.tolist() == [4, 1]
    assert problem.channel_names == ["down", "up"]
    assert problem.colocation_group_names == ["g"]
    for array in (problem.edges, problem.cost_ns, problem.allowed_given, problem.units):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_the_document_is_canonical() -> None:
    given_document = document()
    given_document["edges"] *= 2
    given_document["ops"][0]["temp_bytes"] = 0
    given_document["ops"][1]["allowed_devices"] = [1, 0, 1]
    given_document["devices"][1]["slots"] = 1
    assert problem_to_dict(problem_from_dict(given_document)) == document()


def test_the_empty_problem() -> None:
    empty = changed("ops", []) | {"devices": [], "links": [], "edges": [], "device_kinds": []}
    del empty["control_edges"]
    problem = problem_from_dict(empty)
    assert (problem.num_ops, problem.num_units) == (0, 0)
    assert problem_to_dict(problem) == empty


def test_an_op_that_can_run_nowhere_is_legal() -> None:
    problem_from_dict(changed("ops.1.cost_ns", {}))
    problem_from_dict(changed("ops.1.allowed_devices", []))
    problem_from_dict(changed("ops.1.allowed_devices", [1]))


def test_sums_up_to_the_limit_are_legal() -> None:
    # 5 + 4 + 1 ns, one tensor of 4 bytes (1 + 4 ns) and one signal (1 ns) to the other device.
    rest = 5 + 1 + (1 + 4) + 1
    problem_from_dict(changed("ops.1.cost_ns", {"cpu": INT64_MAX - rest}))
    with pytest.raises(ProblemError, match="sum of all times"):
        problem_from_dict(changed("ops.1.cost_ns", {"cpu": INT64_MAX - rest + 1}))
    rest = 4 + (4 + 0) + 8 + 3 + 8
    problem_from_dict(changed("ops.1.temp_bytes", INT64_MAX - rest))
    with pytest.raises(ProblemError, match="sum of all sizes"):
        problem_from_dict(changed("ops.1.temp_bytes", INT64_MAX - rest + 1))


NAMES = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["\x00\x1f", '"\\/\x7f']
)


@settings(max_examples=100, deadline=None)
@given(problems(), NAMES, st.randoms(use_true_random=False))
def test_round_trip(given_document: Document, name: str, random: Random) -> None:
    """Any order of keys gives the same problem, whose bytes are what Python's json would write."""
    given_document["name"] = name
    problem = problem_from_dict(given_document)
    data = written(problem)
    text = json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":"))
    assert data.decode() == text + "\n"
    shuffled = _shuffled(given_document, random)
    assert written(problem_from_dict(shuffled)) == data
    assert arrays(_engine.read_problem(io.BytesIO(data))) == arrays(problem)


def written(problem: _engine.Problem) -> bytes:
    file = io.BytesIO()
    _engine.write_problem(problem, file)
    return file.getvalue()


def arrays(problem: _engine.Problem) -> dict[str, Any]:
    names = [name for name, value in vars(_engine.Problem).items() if isinstance(value, property)]
    return {name: np.asarray(getattr(problem, name)).tolist() for name in names}


def _shuffled(value: Any, random: Random) -> Any:
    """A copy with the keys of all objects in random order."""
    if isinstance(value, dict):
        keys = random.sample(list(value), len(value))
        return {key: _shuffled(value[key], random) for key in keys}
    if isinstance(value, list):
        return [_shuffled(item, random) for item in value]
    return value


@pytest.mark.parametrize("name", ["p.hplacer.json", "p.hplacer.json.gz"])
def test_files_round_trip_with_equal_bytes(tmp_path: Path, name: str) -> None:
    problem = problem_from_dict(document())
    save_problem(problem, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    save_problem(load_problem_file(tmp_path / name), tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert first.startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert os.listdir(tmp_path) == [name]
    assert problem_to_dict(load_problem_file(tmp_path / name)) == document()


def test_a_file_that_is_named_like_the_example_is_read_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "example").write_text(json.dumps(document()))
    monkeypatch.chdir(tmp_path)
    assert hp.load_problem("example").name == "example"
    assert hp.load_problem("./example").name == "small"


def test_gzip_is_recognised_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "p.hplacer.json"
    path.write_bytes(gzip.compress(json.dumps(document()).encode()))
    assert problem_to_dict(load_problem_file(path)) == document()


@pytest.mark.parametrize(
    "content", [b" ", b"[", b"0", b'{"a":', b'"a', b"\0"], ids=["space", "[", "0", "{", "a", "NUL"]
)
def test_a_gzip_bomb_is_refused_early(tmp_path: Path, content: bytes) -> None:
    """A gibibyte of one token: it would take ten seconds and its size in memory to read it all."""
    path = tmp_path / "p.hplacer.json.gz"
    start = gzip.compress(b'{"format":"hplacer-problem/2","name":')
    path.write_bytes(start + gzip.compress(content * (2**24 // len(content))) * 64)
    started = time.process_time()
    with pytest.raises(ProblemError):
        load_problem_file(path)
    assert time.process_time() - started < 1


def test_a_problem_that_would_multiply_in_memory_is_refused(tmp_path: Path) -> None:
    kinds = ["cpu", "k40", *map(str, range(4094))]
    ops = [{"name": str(i), "type": "", "cost_ns": {}} for i in range(2**16 + 1)]
    with pytest.raises(ProblemError, match=r"^ops: 268439552 pairs of an op and a device kind, "):
        problem_from_dict(document() | {"device_kinds": kinds, "ops": ops})
    with pytest.raises(ProblemError, match=r"^device_kinds: 4097 device kinds, the limit is 4096"):
        problem_from_dict(document() | {"device_kinds": [*kinds, "v100"]})
    devices = [{"name": str(i), "kind": "cpu", "memory_bytes": 0} for i in range(4097)]
    with pytest.raises(ProblemError, match=r"^devices: 4097 devices, the limit is 4096"):
        problem_from_dict(changed("devices", devices))


def test_a_long_read_can_be_interrupted() -> None:
    """Control-C in a process that reads an endless file."""
    endless = 'printf \'{"format":"hplacer-problem/2","edges":[\'; exec yes \'[0,0,1],\''
    script = """
from hplacer_optimizer.problem.problem_file import load_problem_file
print("reading", flush=True)
load_problem_file("/dev/stdin")
"""
    with (
        subprocess.Popen(["sh", "-c", endless], stdout=subprocess.PIPE) as writer,
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=writer.stdout,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as reader,
    ):
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        time.sleep(0.5)
        assert reader.poll() is None
        reader.send_signal(signal.SIGINT)
        _, errors = reader.communicate(timeout=30)
        writer.kill()
    assert reader.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors


class FullDisk(io.BytesIO):
    def write(self, data: object) -> int:
        raise OSError("disk full")


def test_an_error_while_writing_passes_through() -> None:
    with pytest.raises(OSError, match="disk full"):
        _engine.write_problem(problem_from_dict(document()), FullDisk())


@pytest.mark.slow
def test_a_million_ops_take_less_than_a_gigabyte(tmp_path: Path) -> None:
    path = tmp_path / "large.hplacer.json"
    problem = large_problem(1_000_000, width=5_000, reads_per_op=4)
    assert len(problem.edges) > 3_990_000
    save_problem(problem, path)
    script = f"""
import re, sys
import numpy as np
import hplacer_optimizer as hp

problem = hp.load_problem({str(path)!r})
placement = np.random.default_rng(0).integers(0, problem.num_devices, problem.num_ops)
trace = hp.simulate(problem, placement)
assert trace.has_trace
assert "tensorflow" not in sys.modules
# Not getrusage: that would count the process it was forked from, which holds the problem too.
print(int(re.search("VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) * 1024)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 10**9


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.hplacer.json"
    path.write_text("old")

    def broken_replace(source: object, target: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken_replace)
    with pytest.raises(OSError, match="disk full"):
        save_problem(problem_from_dict(document()), path)
    assert os.listdir(tmp_path) == ["p.hplacer.json"]
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("path", "value", "placement", "message"),
    [
        ("name", "as it is", [1, 0, 0], None),
        ("name", "as it is", [1, 1, 0], "op 'b' is on /device:GPU:0, where it may not run"),
        ("ops.0.allowed_devices", [1], [0, 0, 0], "op 'a' is on /device:CPU:0, where it may not"),
        ("ops.1.cost_ns", {"cpu": 1, "k40": 1}, [0, 1, 0], "'c' is separated from its colocation"),
    ],
)
def test_the_constraints_of_a_placement(
    path: str, value: Any, placement: list[int], message: str | None
) -> None:
    problem = problem_from_dict(changed(path, value))
    refused = pytest.raises(PlanError, match=message) if message else contextlib.nullcontext()
    with refused:
        check_constraints(problem, np.array(placement, np.int32))


def keywords() -> dict[str, Any]:
    problem = problem_from_dict(document())
    names = [name for name, value in vars(_engine.Problem).items() if isinstance(value, property)]
    derived = {"num_ops", "num_devices", "num_units", "units", "channel_names"}
    derived |= {"candidate_ptr", "candidates", "device_pool"}
    return {name: getattr(problem, name) for name in names if name not in derived}


def test_the_constructor_takes_what_the_properties_show() -> None:
    assert problem_to_dict(_engine.Problem(**keywords())) == document()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"extra": 1}, TypeError, "unexpected keyword argument 'extra'"),
        ({"cost_ns": np.zeros((3, 2))}, TypeError, "'cost_ns' has the wrong type"),
        ({"cost_ns": np.zeros(6, np.int64)}, ValueError, "'cost_ns' has the wrong shape"),
        ({"edges": np.zeros((1, 2), np.int32)}, ValueError, "'edges' has the wrong shape"),
        ({"temp_bytes": np.zeros(2, np.int64)}, ProblemError, "temp_bytes: has 2 values"),
        ({"output_ptr": np.array([0, 3, 1, 4])}, ProblemError, "output_ptr: offsets must rise"),
        ({"colocation_group": np.full(3, 1, np.int32)}, ProblemError, r"ops\[0\].colocation_group"),
        ({"cost_ns": np.full((3, 2), -2)}, ProblemError, r"ops\[0\].cost_ns: must be at least 0"),
        ({"colocation_group_names": ["g", "g"]}, ProblemError, r"colocation_group_names\[1\]: the"),
        ({"allowed_given": np.zeros(3, np.bool_)}, ProblemError, r"ops\[1\].allowed_devices"),
    ],
)
def test_refused_keywords(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _engine.Problem(**keywords() | change)


def test_a_missing_keyword() -> None:
    arguments = keywords()
    del arguments["edges"]
    with pytest.raises(TypeError, match="needs the keyword argument 'edges'"):
        _engine.Problem(**arguments)
