"""What planners make of devices that share their cores."""

from __future__ import annotations

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.planners import PLANNERS
from hplacer_optimizer.planners.unit_graph import build_unit_graph
from testbed.documents import problem_from_dict
from tests.shared_cores import shared_cores


@pytest.mark.parametrize("name", ["etf", "heft", "sct", "local_search"])
def test_the_step_is_as_short_as_on_one_device(name: str) -> None:
    problem = problem_from_dict(shared_cores())
    assert hp.simulate(problem, PLANNERS[name].plan(problem).placement).makespan_ns == 25
    apart = problem.replace(device_cores=None)
    assert hp.simulate(apart, PLANNERS[name].plan(apart).placement).makespan_ns == 16


def test_parts_of_a_partition_are_sized_by_the_shared_slots() -> None:
    document = shared_cores()
    document["devices"].append({"name": "/device:CPU:2", "kind": "cpu", "memory_bytes": 100})
    problem = problem_from_dict(document)
    units = np.ones(problem.num_units, np.bool_)
    for devices, speed in (([0, 1, 2], [0.25, 0.25, 0.5]), ([1, 2], [0.5, 0.5])):
        graph = build_unit_graph(
            problem, devices, units, vertex_weight_sum=1000, edge_weight_sum=1000
        )
        assert graph.speed.tolist() == speed
