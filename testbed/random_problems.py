"""Random small problem documents, as hypothesis strategies, that reach every rule of the simulator.

Numbers are tiny on purpose: equal times and empty tensors are where implementations differ.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem

KINDS = ["cpu", "gpu", "tpu"]
SMALL = st.integers(0, 4)


def mostly(value: Any, rarely: Any) -> st.SearchStrategy[Any]:
    """Draws `value` in 9 of 10 cases."""
    return st.integers(0, 9).map(lambda die: rarely if die == 9 else value)


@st.composite
def machines(draw: st.DrawFn, complete: bool, *, version1: bool = False) -> dict[str, Any]:
    """Devices and links; `complete`: a link for every pair.

    `version1`: transfers are no work for devices, and all devices start at once.
    """
    kinds = KINDS[: draw(st.integers(1, len(KINDS)))]
    devices = [
        {
            "name": f"d{d}",
            "kind": draw(st.sampled_from(kinds)),
            "memory_bytes": draw(st.integers(0, 40)),
            "slots": draw(st.integers(1, 3)),
        }
        for d in range(draw(st.sampled_from([2, 3, 4, 1])))
    ]
    if draw(st.integers(0, 2)) == 0:
        for device in draw(st.lists(st.sampled_from(devices), min_size=2, max_size=4)):
            device |= {"cores": "c", "slots": devices[0]["slots"]}
    pairs = [(a, b) for a in range(len(devices)) for b in range(len(devices)) if a != b]
    pairs = draw(st.permutations(pairs))
    links = [
        {
            "src": a,
            "dst": b,
            "channel": draw(st.sampled_from(["x", "y", "z"])),
            "latency_ns": draw(SMALL),
            "bytes_per_s": draw(st.sampled_from([10**9, 3 * 10**8, 2 * 10**9, 10**18])),
        }
        for a, b in pairs
        if complete or draw(mostly(True, False))
    ]
    if not version1 and draw(st.integers(0, 2)) == 2:
        _add_work(draw, devices, links)
    threads = {}
    if not version1 and draw(st.booleans()):
        for device in devices:
            if "cores" not in device and draw(mostly(True, False)):
                device |= {"slots": 1, "launch_ns": draw(SMALL)}
                if draw(mostly(False, True)):
                    device["name"] = f"/task:1/device:{device['name']}"
        threads = {"inter_op_threads": draw(st.sampled_from([2, 16, 1, 3]))}
    return {"device_kinds": kinds, "devices": devices, "links": links, **threads}


def _add_work(draw: st.DrawFn, devices: list[dict[str, Any]], links: list[dict[str, Any]]) -> None:
    """Lets devices start late, and makes transfers work for them."""
    of_cores: dict[Any, dict[str, int]] = {}
    for d, device in enumerate(devices):
        shared = {"turn_ns": draw(SMALL), "cold_ns": draw(SMALL)}
        device |= {"start_ns": draw(SMALL), **of_cores.setdefault(device.get("cores", d), shared)}
    rates = st.sampled_from([None, 10**9, 3 * 10**8, 2 * 10**9, 10**18])
    for link in links:
        for end in ("send", "receive"):
            link[f"{end}_ns"] = draw(SMALL)
            if (rate := draw(rates)) is not None:
                link[f"{end}_bytes_per_s"] = rate


@st.composite
def problems(
    draw: st.DrawFn, *, placeable: bool = False, max_ops: int = 10, version1: bool = False
) -> dict[str, Any]:
    """A problem document; `placeable`: every op has a kernel and every pair of devices a link."""
    complete = placeable or draw(st.integers(0, 3)) > 0
    machine = draw(machines(complete, version1=version1))
    ops: list[dict[str, Any]] = []
    edges: list[list[int]] = []
    control_edges: list[list[int]] = []
    # Of a hub that more ops follow than TensorFlow keeps in order.
    followers = draw(st.integers(9, 12)) if max_ops >= 10 and draw(mostly(False, True)) else 0
    number = draw(st.sampled_from([*range(3, max_ops + 1), 0, 1, 2]))
    for i in range(followers + 1 if followers else number):
        reads = [
            [j, k]
            for j in range(i)
            for k in range(len(ops[j]["output_bytes"]))
            if draw(st.integers(0, 3)) == 0
        ]
        edges += [[j, k, i] for j, k in reads]
        control_edges += [
            [j, i] for j in range(i) if (followers and j == 0) or draw(st.integers(0, 5)) == 0
        ]
        sizes = draw(st.lists(SMALL, max_size=3))
        sources: list[Any] = [None, None, None, "persistent", *reads, *reads]
        op: dict[str, Any] = {
            "name": f"op{i}",
            "type": "T",
            "cost_ns": {
                kind: draw(SMALL)
                for kind in machine["device_kinds"]
                if complete or draw(mostly(True, False))
            },
            "output_bytes": sizes,
            "output_alias": [draw(st.sampled_from(sources)) for _ in sizes],
            "temp_bytes": draw(SMALL),
            "persistent_bytes": draw(SMALL),
        }
        if draw(st.integers(0, 5)) == 0:
            op["colocation_group"] = draw(st.sampled_from(["g", "h"]))
        elif draw(st.integers(0, 5)) == 0:
            devices = st.integers(0, len(machine["devices"]) - 1)
            op["allowed_devices"] = draw(st.lists(devices, min_size=placeable, max_size=3))
        ops.append(op)
    if draw(st.integers(0, 3)) == 0:
        for op in ops:
            op["default_device"] = draw(st.integers(0, len(machine["devices"]) - 1))
    # Ids in another order than the topological one, and edges given twice.
    order = draw(st.permutations(range(len(ops))))
    numbered = _renumbered(ops, order)
    if not version1 and draw(st.integers(0, 3)) == 0:
        _name_same_constants(draw, numbered)
    ordered = {}
    if not version1 and number and draw(st.booleans()):
        ordered = {"order": _draw_order(draw, edges, control_edges, order)}
    return {
        "format": "hplacer-problem/2",
        "name": "random",
        **machine,
        "ops": numbered,
        "edges": [[order[j], k, order[i]] for j, k, i in edges + edges[:1]],
        "control_edges": [[order[j], order[i]] for j, i in control_edges + control_edges[:1]],
        **ordered,
    }


def _draw_order(
    draw: st.DrawFn, edges: list[list[int]], control_edges: list[list[int]], order: list[int]
) -> dict[str, Any]:
    """The nodes that ops follow from: none of some ops, two of others."""
    times = [draw(st.sampled_from([1, 1, 1, 2, 0])) for _ in order]
    parts = draw(st.permutations([i for i, count in enumerate(times) for _ in range(count)]))
    nodes: list[dict[str, Any]] = []
    for i in parts:
        sources = [(j, [k]) for j, k, dst in edges if dst == i]
        waits = [(j, []) for j, dst in control_edges if dst == i]
        waits += [(j, []) for j in range(i + 1) if draw(st.integers(0, 2)) == 0]
        inputs = [*draw(st.permutations(sources)), *draw(st.permutations(waits))]
        picked = [(node, output) for j, output in inputs for node in _some(draw, parts, j)]
        nodes.append({"op": order[i], "inputs": [[node, *output] for node, output in picked]})
    targets = st.lists(st.integers(0, len(parts) - 1), unique=True) if parts else st.just([])
    return {"nodes": nodes, "targets": draw(targets)}


def _some(draw: st.DrawFn, parts: list[int], i: int) -> list[int]:
    """One of the nodes that are parts of an op, if there are any."""
    nodes = [node for node, op in enumerate(parts) if op == i]
    return [draw(st.sampled_from(nodes))] if nodes else []


def _name_same_constants(draw: st.DrawFn, ops: list[dict[str, Any]]) -> None:
    """Up to two classes, of ops that may take time and wait for different ones."""
    for i, its_class in enumerate(draw(st.lists(st.integers(0, 2), max_size=len(ops)))):
        first = next((j for j in range(i) if ops[j].get("class") == its_class), None)
        if its_class:
            ops[i] |= {"class": its_class} if first is None else {"class": 0, "same_as": first}
    for op in ops:
        op.pop("class", None)


def _renumbered(ops: list[dict[str, Any]], order: list[int]) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = [{}] * len(ops)
    for i, op in enumerate(ops):
        aliases = [
            [order[alias[0]], alias[1]] if isinstance(alias, list) else alias
            for alias in op["output_alias"]
        ]
        result[order[i]] = {**op, "output_alias": aliases}
    return result


@st.composite
def placed_problems(draw: st.DrawFn, *, version1: bool = False) -> tuple[dict[str, Any], list[int]]:
    """A problem document and a placement, often within few devices."""
    document = draw(problems(version1=version1))
    last = draw(st.integers(0, len(document["devices"]) - 1))
    devices = st.integers(0, last)
    return document, [draw(devices) for _ in document["ops"]]


def make_uneven(document: dict[str, Any], data: st.DataObject, memory_bytes: list[int]) -> None:
    """Draws durations and sizes of several magnitudes anew, and memories from those given."""
    sizes = st.sampled_from([0, 1, 7, 60, 1000])
    for op in document["ops"]:
        op["cost_ns"] = {kind: data.draw(sizes) for kind in op["cost_ns"]}
        op["output_bytes"] = [data.draw(sizes) for _ in op["output_bytes"]]
        op["persistent_bytes"] = data.draw(sizes)
    for device in document["devices"]:
        device["memory_bytes"] = data.draw(st.sampled_from(memory_bytes))


def every_placement(problem: Problem) -> NDArray[np.int32]:
    """int32[count, n]: all placements with every unit on a candidate."""
    ptr = problem.candidate_ptr
    choices = [problem.candidates[ptr[u] : ptr[u + 1]] for u in range(problem.num_units)]
    units = np.array(list(itertools.product(*choices)), np.int32)
    return np.ascontiguousarray(units[:, problem.units])
