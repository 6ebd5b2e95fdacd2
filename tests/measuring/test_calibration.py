"""Calibration: fits, times of traced ops by hand, and the command on two real workers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hplacer_optimizer as hp
from hplacer_optimizer.measuring.calibration.fitting import MOST_BYTES_PER_S, BytesFit, Timing
from hplacer_optimizer.measuring.calibration.op_costs import as_long_as
from hplacer_optimizer.measuring.calibration.traces import op_times_ns, times_on_gpu
from testbed.documents import problem_from_dict
from testbed.planted_problems import machine
from tests.commands import hplacer_process

SIZES = (64, 4096, 1 << 16, 1 << 20, 1 << 22)
MS = 1_000_000
CPU = "/device:CPU:0"


# ---- fits ----


@given(
    latency_us=st.floats(1, 10_000),
    gigabytes_per_s=st.floats(0.01, 100),
    disturbed=st.integers(0, len(SIZES) - 1),
    factor=st.floats(1, 5),
)
def test_a_link_is_found_again_though_one_size_was_disturbed(
    latency_us: float, gigabytes_per_s: float, disturbed: int, factor: float
) -> None:
    seconds = latency_us * 1e-6 + np.array(SIZES) / (gigabytes_per_s * 1e9)
    fit = BytesFit.of(SIZES, seconds)
    assert fit.fixed_s == pytest.approx(latency_us * 1e-6, rel=1e-3)
    assert fit.error < 1e-6
    assert fit.seconds(SIZES) == pytest.approx(seconds, rel=1e-3)
    seconds[disturbed] *= factor
    fit = BytesFit.of(SIZES, seconds)
    assert fit.fixed_s >= 0
    assert fit.bytes_per_s > 0
    assert fit.error <= factor - 1 + 1e-9


def test_an_outlier_does_not_move_a_fit() -> None:
    seconds = 200e-6 + np.array(SIZES) / 1e9
    seconds[2] *= 3
    fit = BytesFit.of(SIZES, seconds)
    assert fit.fixed_ns == pytest.approx(200_000, rel=0.02)
    assert fit.bytes_per_s == pytest.approx(1e9, rel=0.02)


@pytest.mark.parametrize("short", range(len(SIZES)))
def test_a_difference_of_no_time_does_not_move_a_fit(short: int) -> None:
    sizes = 2 * SIZES  # as calibration has them
    seconds = 20e-6 + 0.3e-9 * np.array(sizes)
    seconds[short] = -1e-6
    fit = BytesFit.of(sizes, seconds)
    assert fit.fixed_ns == pytest.approx(20_000, rel=0.1)
    assert fit.s_per_byte == pytest.approx(0.3e-9, rel=0.1)


def test_what_is_known_is_not_fitted_again() -> None:
    known = 50e-6 + np.array(SIZES) / 2e9
    fit = BytesFit.of(SIZES, known + 30e-6 + np.array(SIZES) / 4e9, known)
    assert fit.fixed_ns == pytest.approx(30_000, rel=0.01)
    assert fit.bytes_per_s == pytest.approx(4e9, rel=0.01)
    nothing = BytesFit.of(SIZES, known, 1.5 * known)
    assert (nothing.fixed_ns, nothing.s_per_byte) == (0, 0.0)
    assert nothing.bytes_per_s == MOST_BYTES_PER_S


def test_a_timing_is_its_median() -> None:
    timing = Timing(seconds=(1.0, 1.0, 2.0, 3.0, 9.0))
    assert timing.median_s == 2.0
    assert timing.spread == 1.0


# ---- traces ----


def step_stats(*rows: tuple[str, float, float], device: str = CPU) -> Any:
    """Rows of node, start and end in milliseconds."""
    nodes = [
        SimpleNamespace(
            node_name=name,
            all_start_nanos=round(start * MS),
            all_start_micros=0,
            op_start_rel_nanos=0,
            op_end_rel_nanos=round((end - start) * MS),
        )
        for name, start, end in rows
    ]
    return SimpleNamespace(dev_stats=[SimpleNamespace(device=device, node_stats=nodes)])


@pytest.mark.parametrize(
    ("rows", "slots", "expected"),
    [
        ([("a", 0, 2), ("b", 2, 5)], 1, {"a": 2, "b": 3}),
        # b runs at once when it begins, and a goes on after it.
        ([("a", 1, 5), ("b", 2, 3)], 1, {"a": 3, "b": 1}),
        # After 3 ms both take turns: a has 1 + 2 ms of it, b 3 + 2.
        ([("a", 1, 9), ("b", 2, 9)], 1, {"a": 3, "b": 5}),
        ([("a", 1, 9), ("b", 2, 9)], 2, {"a": 8, "b": 7}),
        ([("a", 1, 2), ("a", 3, 4), ("b", 4, 4)], 1, {"a": 2, "b": 0}),
        ([("RecvTensor", 0, 5)], 1, {}),
    ],
)
def test_ops_that_take_turns(
    rows: list[tuple[str, float, float]], slots: int, expected: dict[str, float]
) -> None:
    times = op_times_ns(step_stats(*rows), CPU, slots)
    assert times == pytest.approx({name: spent * MS for name, spent in expected.items()})
    assert op_times_ns(step_stats(*rows), "/device:CPU:1", slots) == {}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=12))
def test_no_time_is_lost_or_made(intervals: list[tuple[int, int]]) -> None:
    rows = [(f"op{i}", start, start + length) for i, (start, length) in enumerate(intervals)]
    times = op_times_ns(step_stats(*rows), CPU, 1)
    busy = {tick for _, start, end in rows for tick in range(int(start), int(end))}
    assert sum(times.values()) == pytest.approx(len(busy) * MS)


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("step_ns", [20_000, 90_000])
def test_costs_make_a_step_as_long_as_the_measured_one(slots: int, step_ns: int) -> None:
    """A chain of three ops and one beside it, which is as much as four slots can do at once."""
    document = machine([CPU])
    document["devices"][0]["slots"] = slots
    document["ops"] = [
        {"name": name, "type": "T", "cost_ns": {"cpu": 1}, "output_bytes": [8]} for name in "abcd"
    ]
    document["edges"] = [[0, 0, 1], [1, 0, 2]]
    problem, placement = problem_from_dict(document), np.zeros(4, np.int32)
    traced_ns = np.array([10_000.0, 10_000, 10_000, 10_000])
    times_ns = as_long_as(problem, placement, 0, traced_ns, step_ns)
    cost_ns = np.rint(times_ns).astype(np.int64)[:, None]
    simulated = hp.simulate(problem.replace(cost_ns=cost_ns), placement)
    assert simulated.makespan_ns == pytest.approx(step_ns, abs=len(traced_ns))
    assert len(set(times_ns)) == 1


def test_kernels_of_a_real_gpu() -> None:
    """The update of an embedding in NMT, traced on an H200 by TensorFlow 2.21.

    `Unique` runs four kernels of 0, 11, 0 and 6 us in whole ones, and copies its count to the host.
    """
    pytest.importorskip("tensorflow")
    from tensorflow.core.framework.step_stats_pb2 import StepStats

    step_stats = StepStats.FromString(Path(__file__).with_name("traced_on_h200.pb").read_bytes())
    gpu = "/job:localhost/replica:0/task:0/device:GPU:0"
    found = times_on_gpu(step_stats, gpu)
    table = "train_op/update_embedding/target/table"
    assert found.kernels_ns[f"{table}/Unique"] == 19_000
    assert found.kernels_ns[f"{table}/ReadVariableOp_2"] == 56_500  # copies the table
    assert found.kernels_ns[f"{table}/AssignSubVariableOp"] == 91_500 + 58_500
    assert f"{table}/Shape" not in found.kernels_ns
    assert found.launches_ns is not None
    assert found.launches_ns[f"{table}/Unique"] == 265_005 - 2_136
    assert found.launches_ns.keys() <= found.kernels_ns.keys()
    assert times_on_gpu(step_stats, gpu.replace("GPU:0", "GPU:1")).kernels_ns == {}


# ---- the command ----


@pytest.mark.slow
def test_a_calibrated_cluster_predicts_its_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    from hplacer_optimizer.costs.table import CostTable
    from hplacer_optimizer.workloads.graphs import write_graph

    graph, machine, costs = (tmp_path / name for name in ("g.meta", "m.yaml", "c.json"))
    sizes = {"batch_size": 128, "features": 2, "rows": 1000, "width": 32, "hidden": 512}
    write_graph("two_tower", graph, layers=2, pin_tables=False, **sizes)
    done = hplacer_process(
        *("calibrate", graph, "--local-cluster", 2, "-o", machine, "--cost-table", costs),
        *("--steps", 4, "--json"),
    )
    assert done.returncode == 0, done.stderr
    notes = json.loads(done.stdout)["notes"]
    described = hp.load_machine(str(machine))
    assert [kind.slots for kind in described.kinds] == [1]
    assert len(described.links) == 2
    # Each is a small difference of two long times, and other tests run at the same time.
    assert sum(link.send_ns + link.receive_ns for link in described.links) > 4_000
    assert all(device.start_ns > 10_000 for device in described.devices)
    assert all(kind.turn_ns < 20_000_000 for kind in described.kinds)
    assert all(kind.cold_ns < 20_000_000 for kind in described.kinds)
    assert any("longer after ops" in note for note in notes)
    assert len(CostTable.load(costs)) > 50
    problem = hp.load_problem(graph, machine=described, cost_table=costs)
    predicted_ms = hp.simulate(problem, np.zeros(problem.num_ops, np.int32)).makespan_ns / 1e6
    (step,) = [note for note in notes if "ops ran on" in note]
    measured_ms = float(step.partition("in a step of ")[2].split()[0])
    assert predicted_ms == pytest.approx(measured_ms, rel=0.1)
