"""Transfers on a real training graph: tensors that change device are charged for, weights too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hplacer_optimizer import load_problem, simulate
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.planners.devices import candidate_mask
from hplacer_optimizer.problem.problem_file import Problem
from tests.processes import run

SIZES: dict[str, dict[str, int]] = {
    "small": {"batch_size": 4, "hidden": 32, "steps": 4, "vocabulary": 100},
    "papers": {},
}


@pytest.fixture(scope="module", params=["small", pytest.param("papers", marks=pytest.mark.slow)])
def problem(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Problem:
    """NMT with two layers on two K40 and a CPU."""
    directory = tmp_path_factory.mktemp("nmt")
    write = "from hplacer_optimizer.workloads.graphs import write_graph\n"
    run(write + f"write_graph('nmt', 'nmt.meta', **{SIZES[request.param]!r})", directory)
    return load_problem(directory / "nmt.meta", machine="1cpu-2xk40", targets=["train_op"])


def on_gpus(problem: Problem, seed: int) -> np.ndarray[Any, Any]:
    """Uniformly random over the GPUs; what needs the CPU is there."""
    mask = np.array(candidate_mask(problem))
    has_gpu = mask[:, 1:].any(axis=1)
    mask[has_gpu, 0] = False
    random = np.random.default_rng(seed).random(mask.shape)
    return np.where(mask, random, -1).argmax(axis=1)[problem.units]


def test_random_placement_is_slower_than_one_gpu(problem: Problem) -> None:
    # Two GPUs are launched on at once, which a small step may gain more by than it loses.
    problem = problem.replace(device_launch_ns=np.zeros(problem.num_devices, np.int64))
    single = simulate(problem, get_planner("gpu_only").plan(problem).placement)
    for seed in range(3):
        trace = simulate(problem, on_gpus(problem, seed))
        assert trace.makespan_ns > single.makespan_ns
        assert len(trace.transfers) > problem.num_ops / 10


def test_moving_a_weight_costs_its_bytes(problem: Problem) -> None:
    weight = problem.op_names.index("encoder/layer_0/kernel")
    size = int(problem.persistent_bytes[weight])
    placement = np.array(get_planner("gpu_only").plan(problem).placement)
    before = simulate(problem, placement)
    assert before.transfers["bytes"].sum() == 0
    placement[problem.units == problem.units[weight]] = 2
    transfers = simulate(problem, placement).transfers
    out = transfers[transfers["src_device"] == 2]
    reads = {dst for src, _, dst in problem.edges if src == weight}
    senders = set(out["src_op"][out["bytes"] == size])
    assert senders
    assert senders <= reads
    large = out["bytes"] >= 100  # there are constants that its update reads
    assert out["bytes"][large].sum() == len(senders) * size  # each read is a tensor of its own
