"""The ops of a step as a directed acyclic graph of clusters, as small as is asked for.

Units cannot be the nodes: a variable's unit has ops at both ends of the step, so that units form
cycles. A cluster is made of ops, joined along edges such that no cycle arises: where an edge is the
only way out of its source and the only way into its end (a chain), and later where it is one of the
two, cheapest clusters first. (With all but one node of a cluster reachable only from within, a path
that comes back has to enter at that one, from which it started.) Where neither is left, clusters of
neighbouring levels are joined, see `_across_a_level`. Ops at the sources are left out as in
cc/engine/schedulers/list_scheduler.h: they are scheduled where they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.devices import candidate_mask

_MAX_DEMAND_DEPTH = 3  # as in list_scheduler.cc

_Int64 = NDArray[np.int64]
_Float64 = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ClusterDag:
    """N clusters and E edges (distinct pairs, no loops); times in ns."""

    cluster: _Int64  # [n] of each op; -1: left out
    cost_ns: _Float64  # [N] of all its ops
    edges: _Int64  # [E, 2]
    transfer_ns: _Float64  # [E] of all tensors on the edge; 0 where their units share a device


@dataclass(frozen=True, kw_only=True)
class OpEdges:
    """The distinct edges between ops that are not left out, heaviest transfer first."""

    edges: _Int64  # [E, 2]
    transfer_ns: _Float64  # [E] as above


def op_dag(problem: Problem) -> tuple[ClusterDag, OpEdges]:
    """Returns the graph with one cluster for each op, and the edges of the ops.

    Raises InfeasibleError if a unit has no candidate at all.
    """
    op_ns, tensor_ns, signal_ns = _engine.mean_costs(problem)
    src, output, _ = problem.edges.T
    edges = np.concatenate([problem.edges[:, [0, 2]], problem.control_edges]).astype(np.int64)
    signals = np.full(len(problem.control_edges), signal_ns)
    edge_ns = np.concatenate([tensor_ns[problem.output_ptr[src] + output], signals])
    mask = candidate_mask(problem)
    units = problem.units[edges]
    same_unit = units[:, 0] == units[:, 1]
    may_meet = np.logical_or.reduce(mask[units[:, 0]] & mask[units[:, 1]], axis=1)
    edge_ns = np.where(same_unit | ~may_meet, 0.0, edge_ns.astype(np.float64))

    kept = ~_on_demand(problem, edges, same_unit)
    inner = kept[edges[:, 0]] & kept[edges[:, 1]]
    cluster = np.where(kept, np.cumsum(kept) - 1, -1)
    op_edges, op_edge_ns = _merged_edges(edges[inner], edge_ns[inner], problem.num_ops)
    order = np.lexsort((op_edges[:, 1], op_edges[:, 0], -op_edge_ns))
    dag = ClusterDag(
        cluster=cluster,
        cost_ns=op_ns[kept].astype(np.float64),
        edges=cluster[op_edges],
        transfer_ns=op_edge_ns,
    )
    return dag, OpEdges(edges=op_edges[order], transfer_ns=op_edge_ns[order])


def coarsened(dag: ClusterDag, size: int) -> ClusterDag:
    """Returns the graph with chains joined, and then at most `size` clusters if that can be."""
    while True:
        out_degree = np.bincount(dag.edges[:, 0], minlength=len(dag.cost_ns))[dag.edges[:, 0]]
        in_degree = np.bincount(dag.edges[:, 1], minlength=len(dag.cost_ns))[dag.edges[:, 1]]
        excess = len(dag.cost_ns) - size
        join = (out_degree == 1) & (in_degree == 1)
        if not join.any() and excess > 0:
            # Never both kinds at once: a cluster then has two ways in.
            join = _cheapest(in_degree == 1, dag.cost_ns[dag.edges[:, 1]], excess)
            if not join.any():
                join = _cheapest(out_degree == 1, dag.cost_ns[dag.edges[:, 0]], excess)
            if not join.any():
                join = _across_a_level(dag, excess)
        if not join.any():
            return dag
        dag = _joined(dag, dag.edges[join])


def _across_a_level(dag: ClusterDag, count: int) -> NDArray[np.bool_]:
    """Edges from an even level to the next, or from an odd one, that are the only such way in.

    A level is the length of the longest path that leads there. A path that leaves a cluster of two
    levels and comes back stays on these two, where it would need a second way in.
    """
    level = _levels(dag)[dag.edges]
    src, dst = dag.edges.T
    for parity in (0, 1):
        across = (level[:, 0] % 2 == parity) & (level[:, 1] == level[:, 0] + 1)
        ways_in = np.bincount(dst[across], minlength=len(dag.cost_ns))[dst]
        join = _cheapest(across & (ways_in == 1), dag.cost_ns[src] + dag.cost_ns[dst], count)
        if join.any():
            break
    return join


def _levels(dag: ClusterDag) -> _Int64:
    successors: list[list[int]] = [[] for _ in dag.cost_ns]
    pending = [0] * len(dag.cost_ns)
    for src, dst in dag.edges.tolist():
        successors[src].append(dst)
        pending[dst] += 1
    level = [0] * len(dag.cost_ns)
    order = [cluster for cluster, inputs in enumerate(pending) if not inputs]
    for src in order:
        for dst in successors[src]:
            level[dst] = max(level[dst], level[src] + 1)
            pending[dst] -= 1
            if not pending[dst]:
                order.append(dst)
    return np.array(level, np.int64)


def _cheapest(eligible: NDArray[np.bool_], cost_ns: _Float64, count: int) -> NDArray[np.bool_]:
    found = np.flatnonzero(eligible)
    found = found[np.argsort(cost_ns[found], kind="stable")][:count]
    chosen = np.zeros(len(eligible), np.bool_)
    chosen[found] = True
    return chosen


def _joined(dag: ClusterDag, edges: _Int64) -> ClusterDag:
    """Joins the ends of each of the edges."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = len(dag.cost_ns)
    links = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(size, size))
    count, label = connected_components(links, directed=False)
    new_edges, transfer_ns = _merged_edges(
        label.astype(np.int64)[dag.edges], dag.transfer_ns, count
    )
    cost_ns = np.bincount(label, weights=dag.cost_ns, minlength=count)
    return ClusterDag(
        cluster=np.where(dag.cluster < 0, -1, label[dag.cluster]).astype(np.int64),
        cost_ns=cost_ns.astype(np.float64),
        edges=new_edges,
        transfer_ns=transfer_ns,
    )


def _merged_edges(edges: _Int64, edge_ns: _Float64, size: int) -> tuple[_Int64, _Float64]:
    """Returns the distinct edges in order, without loops, and the sums of their times."""
    apart = edges[:, 0] != edges[:, 1]
    key, index = np.unique(edges[apart, 0] * size + edges[apart, 1], return_inverse=True)
    total_ns = np.bincount(index, weights=edge_ns[apart], minlength=len(key)).astype(np.float64)
    return np.stack([key // max(size, 1), key % max(size, 1)], axis=1), total_ns


def _on_demand(problem: Problem, edges: _Int64, same_unit: NDArray[np.bool_]) -> NDArray[np.bool_]:
    has_choice = np.diff(problem.candidate_ptr)[problem.units] > 1
    on_demand = np.zeros(problem.num_ops, np.bool_)
    for _ in range(_MAX_DEMAND_DEPTH):
        waits = np.zeros(problem.num_ops, np.bool_)
        waits[edges[~(on_demand[edges[:, 0]] & same_unit), 1]] = True
        on_demand = has_choice & ~waits
    return on_demand
