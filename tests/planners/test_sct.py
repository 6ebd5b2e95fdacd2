"""The `sct` planner: its clusters, its linear program, its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplacer_optimizer import _engine
from hplacer_optimizer.planners import Budget, Progress, sct
from hplacer_optimizer.planners.cluster_dag import ClusterDag, coarsened, op_dag
from hplacer_optimizer.problem.simulator import simulate
from testbed.documents import problem_from_dict
from testbed.large_problem import large_problem

pytest.importorskip("scipy")


def dag(cost_ns: list[int], edges: dict[tuple[int, int], int]) -> ClusterDag:
    return ClusterDag(
        cluster=np.arange(len(cost_ns)),
        cost_ns=np.array(cost_ns, np.float64),
        edges=np.array(sorted(edges), np.int64).reshape(-1, 2),
        transfer_ns=np.array([edges[edge] for edge in sorted(edges)], np.float64),
    )


def favourites(graph: ClusterDag) -> list[tuple[int, int]]:
    follows = sct._solve(graph, None)
    assert not isinstance(follows, str)
    return [tuple(edge) for edge in graph.edges[follows].tolist()]


def test_a_fork_favours_the_longer_way() -> None:
    fork = {(0, 1): 10, (0, 2): 10}
    assert favourites(dag([5, 100, 200], fork)) == [(0, 2)]
    assert favourites(dag([5, 200, 100], fork)) == [(0, 1)]


def test_a_join_favours_the_later_parent() -> None:
    join = {(0, 2): 10, (1, 2): 10}
    assert favourites(dag([100, 5, 50], join)) == [(0, 2)]
    assert favourites(dag([5, 100, 50], join)) == [(1, 2)]


def test_along_the_critical_path_every_op_follows() -> None:
    # 0 -> 1 -> 3 is critical; the others take part in no schedule of the shortest length.
    edges = {(0, 1): 10, (0, 2): 10, (1, 3): 10, (2, 3): 10}
    found = favourites(dag([5, 100, 20, 5], edges))
    assert (0, 1) in found
    assert (1, 3) in found
    assert len({src for src, _ in found}) == len(found) == len({dst for _, dst in found})


def test_chains_become_one_cluster() -> None:
    chains = dag([1, 2, 3, 4, 5], {(0, 1): 1, (1, 2): 1, (2, 3): 7, (2, 4): 9})
    joined = coarsened(chains, 100)
    assert joined.cluster.tolist() == [0, 0, 0, 1, 2]
    assert joined.cost_ns.tolist() == [6, 4, 5]
    assert joined.edges.tolist() == [[0, 1], [0, 2]]
    assert joined.transfer_ns.tolist() == [7, 9]


def test_the_cheapest_are_joined_first_and_no_more_than_asked_for() -> None:
    fork = dag([10, 3, 2, 4], {(0, 1): 1, (0, 2): 1, (0, 3): 1})
    assert coarsened(fork, 3).cluster.tolist() == [0, 1, 0, 2]
    assert coarsened(fork, 1).cluster.tolist() == [0, 0, 0, 0]


def test_a_ladder_is_joined_across_levels() -> None:
    # 1 -> 3 and 2 -> 4 -> 5 with rungs: most have two ways in and two ways out.
    edges = dict.fromkeys([(0, 1), (0, 2), (1, 3), (1, 4), (2, 4), (2, 5), (3, 5), (4, 5)], 1)
    assert len(coarsened(dag([1] * 6, edges), 2).cost_ns) <= 2
    large, _ = op_dag(large_problem(3_000))
    assert len(coarsened(large, 500).cost_ns) == 500


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_coarsened_graphs_stay_acyclic(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    cost_ns = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    joined = coarsened(dag(cost_ns, dict.fromkeys(chosen, 1)), data.draw(st.integers(1, size)))
    count = len(joined.cost_ns)
    assert set(joined.cluster.tolist()) == set(range(count))
    assert joined.cost_ns.sum() == sum(cost_ns)
    reach = np.zeros((count, count), np.int64)
    reach[joined.edges[:, 0], joined.edges[:, 1]] = 1
    assert (
        not np.trace(np.linalg.matrix_power(np.eye(count, dtype=np.int64) + reach, count)) > count
    )


def test_on_demand_ops_are_left_out_and_what_cannot_part_saves_nothing() -> None:
    document: dict[str, Any] = {
        "format": "hplacer-problem/2",
        "name": "small",
        "device_kinds": ["cpu", "gpu"],
        "devices": [
            {"name": "c", "kind": "cpu", "memory_bytes": 100},
            {"name": "g", "kind": "gpu", "memory_bytes": 100},
        ],
        "links": [
            {"src": 0, "dst": 1, "channel": "a", "latency_ns": 3, "bytes_per_s": 10**9},
            {"src": 1, "dst": 0, "channel": "b", "latency_ns": 5, "bytes_per_s": 10**9},
        ],
        "ops": [
            {"name": "feed", "cost_ns": {"cpu": 7}, "output_bytes": [10]},
            {"name": "weights", "cost_ns": {"cpu": 1, "gpu": 1}, "colocation_group": "w"},
            {"name": "matmul", "cost_ns": {"cpu": 30, "gpu": 10}, "output_bytes": [20]},
            {"name": "relu", "cost_ns": {"gpu": 10}, "output_bytes": [20]},
            {"name": "apply", "cost_ns": {"cpu": 4, "gpu": 2}, "colocation_group": "w"},
        ],
        "edges": [[0, 0, 2], [0, 0, 3], [2, 0, 3], [2, 0, 4]],
        "control_edges": [[1, 2], [1, 4]],
    }
    for op in document["ops"]:
        op["type"] = "T"
    graph, op_edges = op_dag(problem_from_dict(document))
    assert graph.cluster.tolist() == [0, -1, 1, 2, 3]
    assert graph.cost_ns.tolist() == [7, 20, 10, 3]
    # feed and relu cannot meet. Mean latency 4, one nanosecond per byte.
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3]]
    assert graph.transfer_ns.tolist() == [14, 0, 24, 24]
    assert op_edges.edges.tolist() == [[2, 3], [2, 4], [0, 2], [0, 3]]


def test_a_time_limit_is_told() -> None:
    problem = large_problem(3_000)
    found = sct.plan(problem, budget=Budget(seconds=1e-3))
    assert found.placement.tolist() == _engine.place_etf(problem).tolist()
    assert len(found.notes) == 1
    assert "the time limit was hit; no favourite children are known" in found.notes[0]


def test_steps_count_linear_programs() -> None:
    problem = large_problem(1_500)
    calls: list[Progress] = []
    found = sct.plan(problem, budget=Budget(steps=1), on_progress=calls.append)
    assert not found.notes
    one = found.placement
    best_ns = simulate(problem, one).makespan_ns
    assert calls == [Progress(steps=1, best_ns=best_ns, placements=1)]
    assert one.tobytes() == sct.plan(problem, budget=Budget(steps=1)).placement.tobytes()
    assert one.tobytes() != _engine.place_etf(problem).tobytes()
