"""The critical path of a step, and what changes of the machine would do to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import hplacer_optimizer as hp
from hplacer_optimizer.inspection.arrivals import tensor_name
from hplacer_optimizer.inspection.critical_path import (
    CHANNEL_WAIT,
    COMPUTE,
    SLOT_WAIT,
    STREAM_WAIT,
    TRANSFER,
    critical_path,
)
from hplacer_optimizer.inspection.what_if import UNCHANGED, WhatIf, changes, what_ifs
from hplacer_optimizer.planners import etf
from testbed.documents import problem_from_dict, problem_to_dict
from testbed.planted_problems import machine
from testbed.random_problems import placed_problems, problems
from tests.shared_cores import shared_cores

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"


def fork() -> dict[str, Any]:
    """`a` on the CPU feeds `b` and `c` on the GPU, one after the other, and these feed `d`.

    `a` has two outputs of 20 ns each on one channel.
    """
    sizes = {"a": [20, 20], "b": [10], "c": [10], "d": []}
    ops = [
        {"name": n, "type": "T", "cost_ns": {"cpu": 90, "gpu": 30}, "output_bytes": sizes[n]}
        for n in "abcd"
    ]
    edges = [[0, 0, 1], [0, 1, 2], [1, 0, 3], [2, 0, 3]]
    return machine(["/device:CPU:0", "/device:GPU:0"], 1000, 2) | {"ops": ops, "edges": edges}


def test_a_critical_path_by_hand() -> None:
    problem = problem_from_dict(fork())
    placement = np.array([0, 1, 1, 1], np.int32)
    trace = hp.simulate(problem, placement)
    found = [
        (stage.kind, stage.what, stage.where, stage.begin_ns, stage.end_ns, stage.behind)
        for stage in critical_path(problem, placement, trace)
    ]
    # a:0 arrives at 112 and a:1 at 134; b runs until 142, c until 172, d until 202.
    gpu = "/device:GPU:0"
    assert found == [
        (COMPUTE, "a", "/device:CPU:0", 0, 90, None),
        (CHANNEL_WAIT, "a:1", "0-1", 90, 112, "a:0"),
        (TRANSFER, "a:1", "0-1", 112, 134, None),
        (SLOT_WAIT, "c", gpu, 134, 142, "b"),
        (COMPUTE, "c", gpu, 142, 172, None),
        (COMPUTE, "d", gpu, 172, 202, None),
    ]


def test_a_wait_for_a_slot_that_another_device_had() -> None:
    problem, placement = problem_from_dict(shared_cores()), np.array([0, 1, 1, 0], np.int32)
    path = critical_path(problem, placement, hp.simulate(problem, placement))
    cpu1 = "/device:CPU:1"
    assert [(stage.kind, stage.what, stage.where, stage.behind) for stage in path] == [
        (COMPUTE, "a", "/device:CPU:0", None),
        (TRANSFER, "a:0", "0-1", None),
        (SLOT_WAIT, "c", cpu1, "d"),
        (COMPUTE, "c", cpu1, None),
    ]


@settings(max_examples=100, deadline=None)
@given(placed_problems())
def test_the_critical_path_covers_the_step(placed: tuple[dict[str, Any], list[int]]) -> None:
    problem, placement = problem_from_dict(placed[0]), np.array(placed[1], np.int32)
    trace = hp.simulate(problem, placement)
    if trace.start_ns is None or trace.finish_ns is None:
        return
    path = critical_path(problem, placement, trace)
    ends = [0, *(stage.end_ns for stage in path)]
    assert [stage.begin_ns for stage in path] == ends[:-1]
    assert ends[-1] == trace.makespan_ns
    names, sends = problem.op_names, trace.transfers
    tensors = [tensor_name(names, int(send["src_op"]), int(send["output"])) for send in sends]
    for stage in path:
        span = (stage.begin_ns, stage.end_ns)
        if stage.kind in (COMPUTE, SLOT_WAIT):
            assert stage.what == names[stage.item]
            assert stage.where == problem.device_names[placement[stage.item]]
            start_ns, end_ns = trace.start_ns[stage.item], trace.finish_ns[stage.item]
        else:
            send = sends[stage.item]
            assert stage.what == tensors[stage.item]
            assert stage.where == problem.channel_names[send["channel"]]
            start_ns, end_ns = send["start_ns"], send["finish_ns"]
        if stage.kind == COMPUTE:
            assert span == (start_ns, end_ns)
            assert stage.behind is None
        elif stage.kind == TRANSFER:  # until it waits for the channel, and from there on
            assert span in ((send["issue_ns"], send["sent_ns"]), (start_ns, end_ns))
            assert stage.behind is None
        elif stage.kind == SLOT_WAIT:
            assert stage.end_ns == start_ns
            device = placement[stage.item]
            pool = problem.device_pool == problem.device_pool[device]
            ended = [names[i] for i in np.flatnonzero(trace.finish_ns == start_ns)]
            sent = pool[sends["src_device"]] & (sends["sent_ns"] == start_ns)
            received = pool[sends["dst_device"]] & (sends["finish_ns"] == start_ns)
            ended += [tensors[i] for i in np.flatnonzero(sent | received)]
            # Where any device launches, the host's threads may all be busy elsewhere.
            late = start_ns == problem.device_start_ns[device] or problem.device_launch_ns.any()
            assert stage.behind in ended or (late and stage.behind is None)
        elif stage.kind == STREAM_WAIT:
            assert span == (send["issue_ns"], send["sent_ns"])
            ends = problem.device_launch_ns[[send["src_device"], send["dst_device"]]]
            assert ends.any()
            at_ends = np.isin(placement, [send["src_device"], send["dst_device"]])
            ended = [names[i] for i in np.flatnonzero(at_ends & (trace.finish_ns == span[1]))]
            before = np.flatnonzero(sends["carried_ns"] == span[1])
            ended += [tensors[i] for i in before if i != stage.item]
            assert stage.behind is None or stage.behind in ended
        else:
            assert span == (send["sent_ns"], start_ns)
            ended = (sends["channel"] == send["channel"]) & (sends["carried_ns"] == start_ns)
            assert stage.behind in [tensors[i] for i in np.flatnonzero(ended)]


# ---- changes of the machine ----


@settings(max_examples=20, deadline=None)
@given(problems(), st.data())
def test_changes_leave_everything_else_as_it_is(
    document: dict[str, Any], data: st.DataObject
) -> None:
    problem = problem_from_dict(document)
    devices = st.integers(0, problem.num_devices - 1)
    placement = np.array([data.draw(devices) for _ in range(problem.num_ops)], np.int32)
    before = hp.simulate(problem, placement)
    peaks = 0 if before.peak_bytes is None else before.peak_bytes
    fits = bool(np.all(peaks <= problem.device_memory_bytes))
    expected = problem_to_dict(problem)
    for change, changed in changes(problem):
        found = problem_to_dict(changed)
        different = {key for key in expected if expected[key] != found[key]}
        if "bandwidth" in change or "latency" in change:
            assert different <= {"links"}
        elif "twice as fast" in change:
            assert different <= {"ops"}
        elif "memory" in change:
            assert different <= {"devices"}
            after = hp.simulate(changed, placement)
            if fits:
                assert after.makespan_ns == before.makespan_ns
            else:  # an order of launches that overflows is shown before a longer one that fits
                assert after.makespan_ns >= before.makespan_ns
        else:
            assert found["devices"][:-1] == expected["devices"]
            assert "cores" not in found["devices"][-1]
            assert found["links"][: len(expected["links"])] == expected["links"]
            after = hp.simulate(changed, placement)
            assert (after.makespan_ns, after.feasible) == (before.makespan_ns, before.feasible)


def test_changes_by_hand() -> None:
    problem = problem_from_dict(fork())
    placement = np.array([0, 1, 1, 1], np.int32)
    tried = what_ifs(problem, placement, seconds=1)
    assert tried[0].change == UNCHANGED
    assert tried[0].same_placement_ns == 202
    found = {one.change: one.same_placement_ns for one in tried[1:]}
    between = "the links between cpu and gpu at 1 GB/s"
    assert found == {
        f"twice the bandwidth of {between}": 192,  # 90 + 12 for a:0, b, c, d; a:1 is there by then
        f"half the latency of {between}": 201,  # 90 + 21 + 30 + 30 + 30
        "cpu twice as fast": 157,
        "gpu twice as fast": 164,  # a:1 arrives at 134, then c and d
        "twice the memory of cpu": 202,
        "twice the memory of gpu": 202,
        "one more gpu": 202,
    }


def test_one_more_device_has_links_like_its_twin() -> None:
    problem = hp.load_problem(GOLDEN)
    more = dict(changes(problem))["one more gpu"]
    assert more.device_names[3:] == ["/device:GPU:2"]
    links = {
        (src, dst): channel
        for src, dst, channel in zip(
            more.link_src.tolist(), more.link_dst.tolist(), more.link_channel, strict=True
        )
    }
    own = "pcie2-up of /device:GPU:2"  # each device sends through a channel of its own
    assert {ends: channel for ends, channel in links.items() if 3 in ends} == {
        (0, 3): "pcie0-up", (1, 3): "pcie1-up", (2, 3): "pcie2-up",
        (3, 0): own, (3, 1): own, (3, 2): own,
    }  # fmt: skip
    document = fork()
    document["ops"][3]["allowed_devices"] = [1]
    document["ops"][2]["allowed_devices"] = [0]
    only = dict(changes(problem_from_dict(document)))["one more gpu"]
    assert problem_to_dict(only)["ops"][3]["allowed_devices"] == [1, 2]
    assert problem_to_dict(only)["ops"][2]["allowed_devices"] == [0]
    pairs = {tuple(sorted((link["src"], link["dst"]))) for link in problem_to_dict(only)["links"]}
    assert pairs == {(0, 1), (0, 2), (1, 2)}
    channels = {link["channel"] for link in problem_to_dict(only)["links"]}
    assert len(channels) == 6  # point to point, both ways


def test_changes_keep_the_work_of_transfers() -> None:
    document = fork()
    document["devices"][1] |= {"start_ns": 5, "turn_ns": 3}
    for number, link in enumerate(document["links"], 1):
        link |= {"send_ns": number, "receive_ns": 10 * number}
        link |= {"send_bytes_per_s": 100 * number, "receive_bytes_per_s": 1000 * number}
    found = dict(changes(problem_from_dict(document)))
    between = "the links between cpu and gpu at 1 GB/s"
    faster = problem_to_dict(found[f"twice the bandwidth of {between}"])
    assert faster["links"] == [link | {"bytes_per_s": 2 * 10**9} for link in document["links"]]
    sooner = problem_to_dict(found[f"half the latency of {between}"])
    assert sooner["links"] == [link | {"latency_ns": 1} for link in document["links"]]
    more = problem_to_dict(found["one more gpu"])
    assert more["devices"][:2] == document["devices"]
    assert more["devices"][2] == document["devices"][1] | {"name": "/device:GPU:1"}
    up, down = (
        {key: value for key, value in link.items() if key not in ("src", "dst", "channel")}
        for link in document["links"]
    )
    like = {(0, 1): up, (1, 0): down, (0, 2): up, (2, 0): down, (1, 2): down, (2, 1): up}
    assert {
        (link.pop("src"), link.pop("dst")): link for link in more["links"] if link.pop("channel")
    } == like


def tried(problem: hp.Problem, placement: np.ndarray) -> dict[str, WhatIf]:
    return {one.change: one for one in what_ifs(problem, placement, seconds=2)}


def test_what_a_search_gains_anyway_is_no_advice() -> None:
    problem = problem_from_dict(fork())
    slow = np.array([0, 1, 0, 1], np.int32)  # one device alone takes 120
    found = tried(problem, slow)
    assert found[UNCHANGED].placed_again_ns == 120
    assert found["cpu twice as fast"].placed_again_ns == 120
    assert found["gpu twice as fast"].placed_again_ns == 60


def test_a_further_device_and_memory_help_where_they_are_missing() -> None:
    document = fork()  # two chains that one GPU runs one after the other
    for op in document["ops"]:
        op["output_bytes"] = [0 for _ in op["output_bytes"]]
        op["cost_ns"] = {"cpu": 10_000, "gpu": 1_000}
        op["persistent_bytes"] = 300
    document["devices"][0]["memory_bytes"] = document["devices"][1]["memory_bytes"] = 2000
    problem = problem_from_dict(document)
    placement = etf.plan(problem).placement
    more = tried(problem, placement)["one more gpu"]
    assert (more.same_placement_ns, more.placed_again_ns) == (4_000, 3_002)
    document["devices"][1]["memory_bytes"] = 600
    tight = problem_from_dict(document)
    found = tried(tight, placement)
    memory = found["twice the memory of gpu"]
    assert (memory.same_placement_ns, memory.placed_again_ns) == (4_000, 4_000)
    same = found[UNCHANGED]
    assert same.same_placement_ns is None
    assert same.placed_again_ns is not None
    assert same.placed_again_ns > 10_000
