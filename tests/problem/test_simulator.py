from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from hplacer_optimizer._engine import LAUNCH_ORDERS
from hplacer_optimizer.errors import OptionError, ProblemError
from hplacer_optimizer.problem.problem_file import load_problem_file
from hplacer_optimizer.problem.simulator import SIMULATOR_VERSION, simulate, simulate_batch
from testbed.documents import problem_from_dict
from testbed.planted_problems import machine
from testbed.random_problems import placed_problems
from tests import reference_simulator
from tests.shared_cores import shared_cores

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"
# By the version of the simulator: the steps of the test below.
STEPS_NS = {6: [4_301_000, 6_942_700, 12_972_000]}


def test_who_changes_a_step_raises_the_version() -> None:
    """Plans of another version are not compared by what they state: add a line to STEPS_NS."""
    problem = load_problem_file(GOLDEN)
    links, devices = len(problem.link_src), problem.num_devices
    with_work = problem.replace(
        device_start_ns=1_000 * np.arange(devices),
        device_turn_ns=np.full(devices, 5_000),
        device_cold_ns=np.full(devices, 1_000),
        link_send_ns=np.full(links, 3_000),
        link_receive_ns=np.full(links, 2_000),
        link_send_bytes_per_s=np.full(links, 10**9),
        link_receive_bytes_per_s=np.full(links, 2 * 10**9),
    )
    ahead = np.where(np.arange(devices) > 0, 400_000, 0)
    launched = problem.replace(device_launch_ns=ahead, inter_op_threads=1)
    placement = np.arange(problem.num_ops) // 4 % devices
    problems = (problem, with_work, launched)
    steps_ns = [simulate(each, placement).makespan_ns for each in problems]
    assert steps_ns == STEPS_NS[SIMULATOR_VERSION]


def assert_equals_reference(document: dict[str, Any], placement: list[int]) -> None:
    expected = reference_simulator.simulate(document, placement)
    trace = simulate(problem_from_dict(document), placement)
    assert trace.feasible == expected.feasible
    assert trace.feasible == (not trace.infeasible_because)
    assert trace.has_trace == (expected.makespan_ns is not None)
    assert trace.makespan_ns == expected.makespan_ns
    if expected.makespan_ns is None:
        assert trace.start_ns is None
        assert trace.finish_ns is None
        return
    assert trace.start_ns.tolist() == expected.start_ns
    assert trace.finish_ns.tolist() == expected.finish_ns
    assert trace.peak_bytes.tolist() == expected.peak_bytes
    transfers = [
        (
            (x["src_op"], x["output"], x["dst_device"]),
            tuple(
                x[name].item()
                for name in (
                    "src_device",
                    "channel",
                    "issue_ns",
                    "sent_ns",
                    "start_ns",
                    "carried_ns",
                    "finish_ns",
                    "bytes",
                )
            ),
        )
        for x in trace.transfers
    ]
    assert transfers == sorted(expected.transfers.items())


@settings(max_examples=150, deadline=None)
@given(placed_problems())
def test_equals_the_reference(case: tuple[dict[str, Any], list[int]]) -> None:
    assert_equals_reference(*case)


@settings(max_examples=50, deadline=None)
@given(placed_problems())
def test_the_worst_order_of_launches_counts(case: tuple[dict[str, Any], list[int]]) -> None:
    document, placement = case
    problem = problem_from_dict(document)
    worst = simulate(problem, placement)
    orders = [
        simulate(problem.replace(launch_seed=order), placement, launch_orders=1)
        for order in range(LAUNCH_ORDERS)
    ]
    memory = problem.device_memory_bytes
    missing = [np.maximum(trace.peak_bytes - memory, 0).sum() for trace in orders]
    most = max(
        (bytes_, trace.makespan_ns or 0) for bytes_, trace in zip(missing, orders, strict=True)
    )
    assert most == (np.maximum(worst.peak_bytes - memory, 0).sum(), worst.makespan_ns or 0)
    held = dict.fromkeys(range(problem.num_devices), 0)
    for _, device, held_bytes in worst.memory_timeline():
        held[device] = max(held[device], held_bytes)
    if worst.has_trace:
        assert list(held.values()) == worst.peak_bytes.tolist()
    batch = simulate_batch(problem, np.array([placement], np.int32))
    assert batch[0][0] == (-1 if worst.makespan_ns is None else worst.makespan_ns)
    assert batch[2][0].tolist() == worst.peak_bytes.tolist()


def chain() -> dict[str, Any]:
    """Ops a -> b across two devices; 100 + (10 + 5) + 50 ns."""
    ops = [
        {"name": "a", "type": "A", "cost_ns": {"gpu": 100}, "output_bytes": [5]},
        {"name": "b", "type": "B", "cost_ns": {"gpu": 50}, "temp_bytes": 2},
    ]
    document = machine(["left", "right"], 8) | {"ops": ops, "edges": [[0, 0, 1]]}
    return document | {"links": document["links"][:1]}


def test_chain_by_hand() -> None:
    problem = problem_from_dict(chain())
    trace = simulate(problem, [0, 1])
    assert trace.makespan_ns == 100 + (10 + 5) + 50
    assert trace.peak_bytes.tolist() == [5, 5 + 2]
    assert trace.feasible
    assert not trace.start_ns.flags.writeable
    assert problem.channel_names[trace.transfers[0]["channel"]] == "0-1"


def test_shared_cores_by_hand() -> None:
    problem = problem_from_dict(shared_cores())
    trace = simulate(problem, [0, 1, 1, 0])
    # One slot for both: a from 0, then b and d, which are ready from the start, in the order of
    # their numbers. a's tensor arrives at 10 + (2 + 5), while d runs; c starts when d ends.
    assert trace.start_ns.tolist() == [0, 10, 19, 14]
    assert trace.finish_ns.tolist() == [10, 14, 25, 19]
    assert trace.transfers["finish_ns"].tolist() == [17]
    apart = simulate(problem.replace(device_cores=None), [0, 1, 1, 0])
    assert apart.start_ns.tolist() == [0, 0, 17, 10]


def test_infeasible_steps_say_why() -> None:
    document = chain()
    document["devices"][1]["memory_bytes"] = 6
    trace = simulate(problem_from_dict(document), [0, 1])
    assert trace.makespan_ns == 165
    assert trace.infeasible_because == [
        "device 'right' needs 7 bytes at its peak but has 6: 1 bytes are missing"
    ]
    trace = simulate(problem_from_dict(chain()), [1, 0])
    assert trace.makespan_ns is None
    assert trace.infeasible_because == [
        "op 'a' is on device 'right' and its successor op 'b' is on device 'left', but no link "
        "leads there"
    ]


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ([0], r"^placement: has 1 devices for 2 ops"),
        ([0, 2], r"^placement\[1\]: device 2 is out of range"),
        ([-1, 0], r"^placement\[0\]: device -1 is out of range"),
        ([0, 2**40], r"^placement\[1\]: device 1099511627776 is out of range"),
        ([0, 2**70], r"^placement\[1\]: device 1180591620717411303424 is out of range"),
        ([0, True], r"^placement\[1\]: expected an integer, got bool"),
        ([0, 1.0], r"^placement\[1\]: expected an integer, got float"),
        ("01", r"^placement: expected a list of device indices, got str"),
        (None, r"^placement: expected a list of device indices, got null"),
        (np.zeros(2), r"^placement: expected integers, got an array of float64"),
        (np.zeros((2, 1), np.int32), r"^placement: expected one dimension"),
    ],
)
def test_refused_placements(placement: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        simulate(problem_from_dict(chain()), placement)


@pytest.mark.parametrize(
    ("placements", "message"),
    [
        (np.zeros((1, 3), np.int32), r"expected shape \[batch, 2\], got \(1, 3\)"),
        (np.zeros(2, np.int32), r"expected shape \[batch, 2\], got \(2,\)"),
        (np.zeros((1, 2)), r"expected integers"),
        (np.array([[0, 0], [0, 5]]), r"^placements\[1\]\[1\]: device 5 is out of range"),
    ],
)
def test_refused_batches(placements: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        simulate_batch(problem_from_dict(chain()), placements)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, 2**40])
def test_refused_threads(threads: Any) -> None:
    with pytest.raises(OptionError, match="threads"):
        simulate_batch(problem_from_dict(chain()), np.zeros((1, 2), np.int32), threads=threads)
