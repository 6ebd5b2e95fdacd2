"""Searches are not offered the host's CPU for what can run on an accelerator."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.host_offload import accelerators_first
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.problem_file import load_problem_file
from testbed.documents import problem_from_dict
from testbed.planted_problems import machine

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"
CPU, GPUS = 0, [1, 2]


@pytest.fixture(scope="module")
def towers() -> Problem:
    """On a CPU and two GPUs, with the devices of each op given as a capture has them."""
    problem = load_problem_file(GOLDEN)
    op, device = np.nonzero(problem.cost_ns[:, problem.device_kind] >= 0)
    return problem.replace(
        allowed_ptr=np.searchsorted(op, np.arange(problem.num_ops + 1)),
        allowed_device=device.astype(np.int32),
        allowed_given=np.ones(problem.num_ops, np.bool_),
    )


def offered_to(problem: Problem) -> list[list[int]]:
    """The devices of each op."""
    return [
        problem.allowed_device[begin:end].tolist()
        for begin, end in itertools.pairwise(problem.allowed_ptr)
    ]


def runs_on_gpu(problem: Problem) -> list[bool]:
    """Of each op, whether all of its colocation group has a kernel there."""
    has_kernel = problem.cost_ns[:, problem.device_kind[GPUS[0]]] >= 0
    return [bool(has_kernel[problem.units == unit].all()) for unit in problem.units]


def test_the_cpu_is_left_to_what_needs_it(towers: Problem) -> None:
    offered = accelerators_first(towers)
    can_move = runs_on_gpu(towers)
    assert 0 < sum(can_move) < towers.num_ops
    for before, after, moves in zip(offered_to(towers), offered_to(offered), can_move, strict=True):
        assert after == ([device for device in before if device != CPU] if moves else before)
    placement = _engine.place_etf(offered)
    check_constraints(towers, placement)
    assert (placement == CPU).tolist() == [not moves for moves in can_move]


def measured(problem: Problem, *but: int) -> Any:
    """bool[n, K]: all costs but those of some ops on the GPU."""
    known = np.ones(problem.cost_ns.shape, np.bool_)
    known[list(but), problem.device_kind[GPUS[0]]] = False
    return known


def test_measured_costs_may_move_an_op_to_the_cpu(towers: Problem) -> None:
    assert accelerators_first(towers, measured(towers)) is towers
    estimated = towers.op_names.index("a0/weights")
    held_back = [CPU not in devices for devices in offered_to(
        accelerators_first(towers, measured(towers, estimated))
    )]  # fmt: skip
    assert held_back == (towers.units == towers.units[estimated]).tolist()


def test_a_cost_that_does_not_exist_need_not_be_measured(towers: Problem) -> None:
    known = measured(towers)
    known[towers.cost_ns < 0] = False
    assert accelerators_first(towers, known) is towers


def test_the_cpu_helps_out_where_memory_does_not_suffice(towers: Problem) -> None:
    memory = towers.device_memory_bytes.copy()
    memory[GPUS] = 1_000_000
    small = towers.replace(device_memory_bytes=memory)
    assert accelerators_first(small) is small


def test_what_fits_as_tensorflow_places_it_fits(towers: Problem) -> None:
    memory = towers.device_memory_bytes.copy()
    on_gpu = np.where(runs_on_gpu(towers), GPUS[0], CPU).astype(np.int32)
    memory[GPUS[0]] = _engine.simulate(towers, on_gpu).peak_bytes[GPUS[0]]
    memory[GPUS[1]] = 0
    placed = towers.replace(device_memory_bytes=memory, default_device=on_gpu)
    assert accelerators_first(placed) is not placed


def chain_on(*devices: str) -> Problem:
    """Two ops that run everywhere, each for itself."""
    document = machine(devices, 1000, 500)
    ops = [
        {"name": name, "type": "X", "cost_ns": dict.fromkeys(document["device_kinds"], 1000)}
        | {"allowed_devices": list(range(len(devices)))}
        for name in "ab"
    ]
    return problem_from_dict(document | {"ops": ops, "edges": []})


@pytest.mark.parametrize(
    ("devices", "offered"),
    [
        (("/device:CPU:0", "/device:CPU:1"), [0, 1]),
        (("/device:GPU:0", "/device:GPU:1"), [0, 1]),
        (("/device:CPU:0", "/device:GPU:0"), [1]),
        (
            ("/job:w/task:0/device:CPU:0", "/job:w/task:0/device:GPU:0",
             "/job:w/task:1/device:CPU:0"),
            [1, 2],
        ),
    ],
    ids=["CPUs only", "GPUs only", "a host with a GPU", "a host without a GPU"],
)  # fmt: skip
def test_only_cpus_beside_accelerators_are_held_back(
    devices: tuple[str, ...], offered: list[int]
) -> None:
    problem = chain_on(*devices)
    found = accelerators_first(problem)
    assert offered_to(found) == [offered, offered]
    assert (found is problem) == (len(offered) == len(devices))
