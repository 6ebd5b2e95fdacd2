"""What keeps each device from computing."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, settings

import hplacer_optimizer as hp
from hplacer_optimizer.inspection.waits import DeviceWaits, device_waits
from testbed.documents import problem_from_dict
from testbed.planted_problems import machine
from testbed.random_problems import placed_problems
from tests.shared_cores import shared_cores


def chain() -> dict[str, Any]:
    """`a` on the CPU feeds `b` on the GPU by 20 bytes, which take 22 ns; `b` feeds `c` there."""
    ops = [
        {"name": name, "type": "T", "cost_ns": {"cpu": 90, "gpu": 30}, "output_bytes": [20]}
        for name in "abc"
    ]
    devices = ["/device:CPU:0", "/device:GPU:0", "/device:GPU:1"]
    return machine(devices, 1000, 2) | {"ops": ops, "edges": [[0, 0, 1], [1, 0, 2]]}


def waits(name: str, **parts_ns: int) -> DeviceWaits:
    none = dict.fromkeys(("computes_ns", "others_ns", "transfers_ns", "blocked_ns", "done_ns"), 0)
    return DeviceWaits(name=name, **{**none, **parts_ns})


def test_waits_by_hand() -> None:
    problem, placement = problem_from_dict(chain()), np.array([0, 1, 1], np.int32)
    trace = hp.simulate(problem, placement)
    assert trace.makespan_ns == 90 + 22 + 30 + 30
    assert device_waits(problem, placement, trace) == [
        waits("/device:CPU:0", computes_ns=90, done_ns=82),
        waits("/device:GPU:0", computes_ns=60, others_ns=90, transfers_ns=22),
        waits("/device:GPU:1", done_ns=172),
    ]


def test_a_device_whose_cores_another_one_has_is_blocked() -> None:
    problem, placement = problem_from_dict(shared_cores()), np.array([0, 1, 1, 0], np.int32)
    trace = hp.simulate(problem, placement)
    # a runs from 0 to 10, b to 14, d to 19, c to 25; a's tensor is there at 17.
    assert device_waits(problem, placement, trace) == [
        waits("/device:CPU:0", computes_ns=15, blocked_ns=4, done_ns=6),
        waits("/device:CPU:1", computes_ns=10, transfers_ns=3, blocked_ns=10 + 2),
    ]


@settings(max_examples=100, deadline=None)
@given(placed_problems())
def test_the_parts_are_the_step(placed: tuple[dict[str, Any], list[int]]) -> None:
    problem, placement = problem_from_dict(placed[0]), np.array(placed[1], np.int32)
    trace = hp.simulate(problem, placement)
    assume(trace.has_trace and trace.makespan_ns < 10_000)
    for device, found in enumerate(device_waits(problem, placement, trace)):
        parts = [value for name, value in vars(found).items() if name != "name"]
        assert min(parts) >= 0
        assert sum(parts) == trace.makespan_ns
        runs = np.zeros(trace.makespan_ns, bool)
        for op in np.flatnonzero(placement == device):
            runs[trace.start_ns[op] : trace.finish_ns[op]] = True
        assert runs.sum() == found.computes_ns
