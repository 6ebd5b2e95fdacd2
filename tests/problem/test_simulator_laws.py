"""What must hold for any step, whatever the implementation: laws of the simulator's semantics."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hplacer_optimizer as hp
from testbed.documents import problem_from_dict
from testbed.planted_problems import machine
from testbed.random_problems import placed_problems

Document = dict[str, Any]
Case = tuple[Document, list[int]]


def trace_of(document: Document, placement: list[int]) -> hp.StepTrace:
    """The step's trace; rejects the example without one."""
    trace = hp.simulate(problem_from_dict(document), placement)
    assume(trace.has_trace)
    return trace


def costs_ns(document: Document, placement: list[int]) -> list[int]:
    kinds = [document["devices"][device]["kind"] for device in placement]
    return [op["cost_ns"][kind] for op, kind in zip(document["ops"], kinds, strict=True)]


def transfer_ns(document: Document, src: int, dst: int, size: int) -> int:
    if size == 0 and any(document["devices"][d].get("launch_ns") for d in (src, dst)):
        return 0  # no copy
    (link,) = (x for x in document["links"] if (x["src"], x["dst"]) == (src, dst))
    duration: int = link["latency_ns"] - -size * 10**9 // link["bytes_per_s"]
    return duration


def pool_of(document: Document, device: int) -> Any:
    """What the device's slots belong to."""
    return document["devices"][device].get("cores", device)


def share_cores(document: Document, slots: int) -> None:
    """All devices are alike and share their slots."""
    for device in document["devices"]:
        device |= {"kind": document["devices"][0]["kind"], "cores": "all", "slots": slots}
        for key in ("turn_ns", "cold_ns", "start_ns", "launch_ns"):
            device.pop(key, None)


def give_each_pair_a_channel(document: Document) -> None:
    for link in document["links"]:
        link["channel"] = f"{link['src']}-{link['dst']}"


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_every_op_waits_for_its_inputs(case: Case) -> None:
    document, placement = case
    trace = trace_of(document, placement)
    costs = costs_ns(document, placement)
    took_ns = trace.finish_ns - trace.start_ns
    assert (took_ns >= costs).all()
    if (trace.transfers["sent_ns"] == trace.transfers["issue_ns"]).all() and (
        trace.transfers["finish_ns"] == trace.transfers["carried_ns"]
    ).all():  # nothing interrupts an op
        assert took_ns.tolist() == costs
    assert trace.makespan_ns == max(trace.finish_ns, default=0)
    arcs = [
        (src, dst, document["ops"][src]["output_bytes"][k]) for src, k, dst in document["edges"]
    ]
    arcs += [(src, dst, 0) for src, dst in document["control_edges"]]
    for src, dst, size in arcs:
        arrival_ns = trace.finish_ns[src]
        if placement[src] != placement[dst]:
            arrival_ns += transfer_ns(document, placement[src], placement[dst], size)
        assert trace.start_ns[dst] >= arrival_ns
    for op, device in enumerate(placement):
        assert trace.start_ns[op] >= document["devices"][device].get("start_ns", 0)


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_makespan_is_at_least_the_critical_path_and_the_load(case: Case) -> None:
    document, placement = case
    trace = trace_of(document, placement)
    costs = costs_ns(document, placement)
    arcs = {(src, dst) for src, _, dst in document["edges"]}
    arcs |= {tuple(edge) for edge in document["control_edges"]}
    path = list(costs)
    for _ in costs:
        for src, dst in arcs:
            path[dst] = max(path[dst], path[src] + costs[dst])
    assert trace.makespan_ns >= max(path, default=0)
    load: dict[Any, int] = defaultdict(int)
    for cost, device in zip(costs, placement, strict=True):
        load[pool_of(document, device)] += cost
        slots = document["devices"][device]["slots"]
        assert trace.makespan_ns * slots >= load[pool_of(document, device)]


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_devices_and_channels_keep_to_their_capacity(case: Case) -> None:
    document, placement = case
    trace = trace_of(document, placement)
    # What lasts no time may share its instant with anything.
    steps: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    slots = {}
    for op, device in enumerate(placement):
        if trace.finish_ns[op] > trace.start_ns[op]:
            pool = pool_of(document, device)
            slots[pool] = document["devices"][device]["slots"]
            steps[pool] += [(trace.start_ns[op], 1), (trace.finish_ns[op], -1)]
    for transfer in trace.transfers:
        assert transfer["issue_ns"] == trace.finish_ns[transfer["src_op"]]
        times = [transfer[f"{part}_ns"] for part in ("issue", "sent", "start", "carried", "finish")]
        assert times == sorted(times)
        if transfer["carried_ns"] > transfer["start_ns"]:
            channel = ("channel", transfer["channel"])
            steps[channel] += [(transfer["start_ns"], 1), (transfer["carried_ns"], -1)]
    for place, changes in steps.items():
        running = np.cumsum([change for _, change in sorted(changes)])
        assert running.max() <= slots.get(place, 1)


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_one_device_with_one_slot_takes_the_sum_of_costs(case: Case) -> None:
    document, placement = case
    for device in document["devices"]:
        device["slots"] = 1
        device.pop("launch_ns", None)
    placement = [0] * len(placement)
    trace = trace_of(document, placement)
    begin_ns = document["devices"][0].get("start_ns", 0) if placement else 0
    assert trace.makespan_ns == begin_ns + sum(costs_ns(document, placement))
    assert len(trace.transfers) == 0


@settings(max_examples=60, deadline=None)
@given(placed_problems(), st.integers(1, 3))
def test_devices_that_share_their_cores_are_no_faster_than_one(case: Case, slots: int) -> None:
    """With one slot never. With k, one device is slower by a factor of 2 - 1/k at most.

    It runs the ops in some order on k slots and never leaves one idle (Graham, 1969).
    """
    document, placement = case
    share_cores(document, slots)
    spread, alone = (trace_of(document, where) for where in (placement, [0] * len(placement)))
    assert alone.makespan_ns * slots <= spread.makespan_ns * (2 * slots - 1)


@settings(max_examples=60, deadline=None)
@given(placed_problems(), st.integers(1, 3))
def test_devices_that_share_their_cores_are_one_without_transfers(case: Case, slots: int) -> None:
    document, placement = case
    share_cores(document, slots)
    for edges in (document["edges"], document["control_edges"]):
        edges[:] = [edge for edge in edges if placement[edge[0]] == placement[edge[-1]]]
    for op in document["ops"]:
        op["output_alias"] = [None] * len(op["output_bytes"])
    spread, alone = (trace_of(document, where) for where in (placement, [0] * len(placement)))
    assert spread.start_ns.tolist() == alone.start_ns.tolist()


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_peaks_hold_persistent_bytes_and_every_running_op(case: Case) -> None:
    document, placement = case
    trace = trace_of(document, placement)
    persistent = [0] * len(document["devices"])
    for op, device in zip(document["ops"], placement, strict=True):
        persistent[device] += op["persistent_bytes"]
    for op, device in zip(document["ops"], placement, strict=True):
        outputs = zip(op["output_bytes"], op["output_alias"], strict=True)
        own = sum(size for size, alias in outputs if alias is None)
        assert trace.peak_bytes[device] >= persistent[device] + op["temp_bytes"] + own
    assert (trace.peak_bytes >= persistent).all()


@settings(max_examples=40, deadline=None)
@given(placed_problems(), st.integers(0, 50))
def test_memory_decides_on_feasibility_alone(case: Case, memory_bytes: int) -> None:
    document, placement = case
    trace = trace_of(document, placement)
    for device in document["devices"]:
        device["memory_bytes"] += memory_bytes
    roomier = trace_of(document, placement)
    assert roomier.start_ns.tolist() == trace.start_ns.tolist()
    assert roomier.peak_bytes.tolist() == trace.peak_bytes.tolist()
    assert roomier.feasible >= trace.feasible


@settings(max_examples=60, deadline=None)
@given(placed_problems(version1=True), st.integers(2, 10), st.integers(0, 3))
def test_faster_links_never_hurt_without_queues(case: Case, factor: int, less_ns: int) -> None:
    document, placement = case
    give_each_pair_a_channel(document)
    for device in document["devices"]:
        device["slots"] = max(1, len(placement))
    slow = trace_of(document, placement)
    assume((slow.transfers["start_ns"] == slow.transfers["issue_ns"]).all())
    for link in document["links"]:
        link["bytes_per_s"] = min(link["bytes_per_s"] * factor, 10**18)
        link["latency_ns"] = max(0, link["latency_ns"] - less_ns)
    fast = trace_of(document, placement)
    assume((fast.transfers["start_ns"] == fast.transfers["issue_ns"]).all())
    assert (fast.finish_ns <= slow.finish_ns).all()


@settings(max_examples=60, deadline=None)
@given(placed_problems(), st.data())
def test_relabelling_identical_devices_changes_nothing(case: Case, data: st.DataObject) -> None:
    document, placement = case
    m = len(document["devices"])
    for device in document["devices"]:
        device.update({k: document["devices"][0][k] for k in ("kind", "memory_bytes", "slots")})
        for key in ("cores", "start_ns", "turn_ns", "cold_ns", "launch_ns"):
            device.pop(key, None)
    # A channel that served two receivers would prefer the one of the lower index.
    channel = data.draw(st.sampled_from(["{src}-{dst}", "to {dst}"]))
    latency_ns, bytes_per_s = data.draw(st.integers(0, 5)), data.draw(st.integers(10**8, 10**10))
    document["links"] = [
        {"src": src, "dst": dst, "channel": channel.format(src=src, dst=dst)}
        | {"latency_ns": latency_ns, "bytes_per_s": bytes_per_s}
        for src in range(m)
        for dst in range(m)
        if src != dst
    ]
    for op in document["ops"]:
        op.pop("allowed_devices", None)
    label = data.draw(st.permutations(range(m)))
    trace = trace_of(document, placement)
    other = trace_of(document, [label[device] for device in placement])
    assert other.makespan_ns == trace.makespan_ns
    assert other.start_ns.tolist() == trace.start_ns.tolist()
    assert other.peak_bytes[label].tolist() == trace.peak_bytes.tolist()
    assert other.feasible == trace.feasible


@settings(max_examples=60, deadline=None)
@given(placed_problems(), st.integers(2, 1000))
def test_time_has_no_scale(case: Case, factor: int) -> None:
    document, placement = case
    for link in document["links"]:
        link.update({key: 10**9 for key in link if key.endswith("bytes_per_s")})
    for op in document["ops"]:  # a quarter of each counts, for transfers right after it
        op["cost_ns"] = {kind: 4 * cost for kind, cost in op["cost_ns"].items()}
    trace = trace_of(document, placement)
    for part in (*document["links"], *document["devices"]):
        part.update({key: value * factor for key, value in part.items() if key.endswith("_ns")})
    for op in document["ops"]:
        op["cost_ns"] = {kind: cost * factor for kind, cost in op["cost_ns"].items()}
        op["output_bytes"] = [size * factor for size in op["output_bytes"]]
        op["temp_bytes"] *= factor
        op["persistent_bytes"] *= factor
    scaled = trace_of(document, placement)
    assert scaled.start_ns.tolist() == (trace.start_ns * factor).tolist()
    assert scaled.peak_bytes.tolist() == (trace.peak_bytes * factor).tolist()


@settings(max_examples=40, deadline=None)
@given(placed_problems(), st.integers(1, 5), st.data())
def test_a_batch_equals_single_steps(case: Case, threads: int, data: st.DataObject) -> None:
    document, placement = case
    problem = problem_from_dict(document)
    device = st.integers(0, problem.num_devices - 1)
    rows = [placement, [data.draw(device) for _ in placement], [0] * len(placement), placement]
    placements = np.array(rows, np.int64).reshape(len(rows), len(placement))
    makespans, feasible, peaks = hp.simulate_batch(problem, placements, threads=threads)
    for row in range(len(rows)):
        trace = hp.simulate(problem, placements[row])
        assert makespans[row] == (-1 if trace.makespan_ns is None else trace.makespan_ns)
        assert feasible[row] == trace.feasible
        assert peaks[row].tolist() == trace.peak_bytes.tolist()


def weight_and_matmul(weight_bytes: int) -> Document:
    """A variable, read by an op of its group, feeds a MatMul that may be on any device."""
    ops = [
        {"name": "weight", "type": "VarHandleOp", "cost_ns": {"gpu": 0}}
        | {"persistent_bytes": weight_bytes, "colocation_group": "weight"},
        {"name": "read", "type": "ReadVariableOp", "cost_ns": {"gpu": 3}}
        | {"output_bytes": [weight_bytes], "output_alias": ["persistent"]}
        | {"colocation_group": "weight"},
        {"name": "matmul", "type": "MatMul", "cost_ns": {"gpu": 100}},
    ]
    document = machine(2, latency_ns=7)
    return document | {"ops": ops, "edges": [[1, 0, 2]], "control_edges": [[0, 1]]}


@given(st.integers(0, 10**11))
def test_moving_a_weight_to_another_device_costs_its_bytes(weight_bytes: int) -> None:
    problem = problem_from_dict(weight_and_matmul(weight_bytes))
    together, apart = (hp.simulate(problem, [device, device, 0]) for device in (0, 1))
    assert together.makespan_ns == 3 + 100
    assert apart.makespan_ns == 3 + (7 + weight_bytes) + 100
    # The reader needs a copy; the variable stays where it lives, without one.
    assert together.peak_bytes.tolist() == [weight_bytes, 0]
    assert apart.peak_bytes.tolist() == [weight_bytes, weight_bytes]


def test_a_variable_is_read_where_it_lives() -> None:
    problem = problem_from_dict(weight_and_matmul(1000))
    assert problem.units[0] == problem.units[1] != problem.units[2]
    trace = hp.simulate(problem, [0, 1, 1])
    assert not trace.feasible
    assert "colocation group 'weight'" in trace.infeasible_because[0]


@pytest.mark.parametrize("consumers", [1, 3])
def test_a_tensor_is_sent_to_a_device_once(consumers: int) -> None:
    document = weight_and_matmul(1000)
    for i in range(1, consumers):
        document["ops"].append(copy.deepcopy(document["ops"][2]) | {"name": f"matmul{i}"})
        document["edges"].append([1, 0, 2 + i])
    trace = hp.simulate(problem_from_dict(document), [0, 0, *[1] * consumers])
    assert len(trace.transfers) == 1
    assert trace.makespan_ns == 3 + 1007 + 100 * consumers
