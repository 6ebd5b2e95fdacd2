from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from hplacer_optimizer.errors import ProblemError
from hplacer_optimizer.problem.simulator import simulate
from testbed.documents import problem_from_dict
from testbed.random_problems import placed_problems
from tests.problem.test_simulator import chain


def test_chain_by_hand() -> None:
    trace = simulate(problem_from_dict(chain()), [0, 1])
    timeline = trace.memory_timeline()
    assert timeline.dtype.names == ("time_ns", "device", "bytes")
    assert [timeline.dtype[name] for name in timeline.dtype.names] == [np.int64, np.int32, np.int64]
    assert timeline.tolist() == [
        (0, 0, 5),  # a's output
        (100, 1, 5),  # its copy, sent for 10 + 5 ns
        (115, 0, 0),
        (115, 1, 5 + 2),  # b's temp
        (165, 1, 5),
        (165, 1, 0),
    ]
    assert trace.peak_holders(0) == [(0, "output 0", 5)]
    assert trace.peak_holders(1) == [(0, "copy of output 0", 5), (1, "temp", 2)]


def test_persistent_memory_is_held_by_its_op() -> None:
    document = chain()
    document["ops"][1]["persistent_bytes"] = 9
    trace = simulate(problem_from_dict(document), [0, 0])
    assert trace.memory_timeline().tolist()[0] == (0, 0, 9)
    assert trace.peak_holders(0) == [(1, "persistent", 9), (0, "output 0", 5), (1, "temp", 2)]
    assert trace.peak_holders(1) == []


def test_of_equal_peaks_the_first_one_counts() -> None:
    document = chain()
    document["ops"][0]["temp_bytes"] = document["ops"][1]["temp_bytes"]
    trace = simulate(problem_from_dict(document), [0, 0])
    assert trace.peak_holders(0) == [(0, "output 0", 5), (0, "temp", 2)]


def test_without_a_trace_there_is_no_detail() -> None:
    trace = simulate(problem_from_dict(chain()), [1, 0])
    assert len(trace.memory_timeline()) == 0
    assert trace.peak_holders(0) == []


@pytest.mark.parametrize("device", [-1, 2])
def test_refused_devices(device: int) -> None:
    trace = simulate(problem_from_dict(chain()), [0, 1])
    with pytest.raises(ProblemError, match=f"^device: {device} is out of range, there are 2"):
        trace.peak_holders(device)


@settings(max_examples=80, deadline=None)
@given(placed_problems())
def test_detail_agrees_with_the_peaks(case: tuple[dict[str, Any], list[int]]) -> None:
    document, placement = case
    trace = simulate(problem_from_dict(document), placement)
    if not trace.has_trace:
        return
    timeline = trace.memory_timeline()
    assert (np.diff(timeline["time_ns"]) >= 0).all()
    persistent: defaultdict[int, int] = defaultdict(int)
    for op, device in zip(document["ops"], placement, strict=True):
        persistent[device] += op["persistent_bytes"]
    for device, peak in enumerate(trace.peak_bytes.tolist()):
        held = timeline["bytes"][timeline["device"] == device]
        assert max(held, default=0) == peak
        assert (np.diff(held) != 0).all()
        # At the end everything but the variables is free again.
        assert (held[-1] if len(held) else 0) == persistent[device]
        holders = trace.peak_holders(device)
        assert sum(size for _, _, size in holders) == peak
        assert [size for _, _, size in holders] == sorted(
            (size for _, _, size in holders), reverse=True
        )
        assert len({(op, what) for op, what, _ in holders}) == len(holders)
