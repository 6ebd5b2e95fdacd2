"""Units as an undirected weighted graph: what a graph partitioner sees of a problem.

A vertex is a unit; its weight is what its ops take on the devices' reference kind. An edge joins
two units that exchange tensors; its weight is the bytes that a step moves between them if they are
apart, where a tensor goes to a unit once, however many ops read it there. Precedence, links and
memory are not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem


@dataclass(frozen=True, kw_only=True)
class UnitGraph:
    """V vertices, E edges; weights are positive integers of bounded sums."""

    units: NDArray[np.int64]  # [V] the unit of each vertex
    vertex_weight: NDArray[np.int64]  # [V]
    ptr: NDArray[np.int64]  # [V + 1] CSR offsets into neighbour
    neighbour: NDArray[np.int64]  # [2 E] each edge from both ends
    edge_weight: NDArray[np.int64]  # [2 E]
    speed: NDArray[np.float64]  # [D] of the devices asked for, relative; sums to 1.
    # Devices that share their slots have equal parts of them.


def build_unit_graph(
    problem: Problem,
    devices: Sequence[int],
    units: NDArray[np.bool_],
    *,
    vertex_weight_sum: int,
    edge_weight_sum: int,
) -> UnitGraph:
    """Builds the graph of some units (bool[U]) for mapping onto some devices.

    Weights are scaled to at most about the given sums (a weight is at least 1).
    """
    speed_of_kind, op_cost = _speeds(problem, devices)
    kind = problem.device_kind[list(devices)]
    pool = problem.device_pool[list(devices)]
    speed = speed_of_kind[kind] * problem.device_slots[list(devices)] / np.bincount(pool)[pool]
    cost = np.zeros(problem.num_units)
    np.add.at(cost, problem.units, op_cost)
    u, v, size_bytes = exchanges(problem)
    vertex = np.cumsum(units) - 1
    inside = units[u] & units[v]
    u, v = vertex[u[inside]], vertex[v[inside]]
    weight = _scaled(size_bytes[inside], edge_weight_sum)
    order = np.lexsort((np.concatenate([v, u]), np.concatenate([u, v])))
    count = np.bincount(np.concatenate([u, v]), minlength=int(units.sum()))
    return UnitGraph(
        units=np.flatnonzero(units),
        vertex_weight=_scaled(cost[units], vertex_weight_sum),
        ptr=np.concatenate([[0], np.cumsum(count)]),
        neighbour=np.concatenate([v, u])[order],
        edge_weight=np.concatenate([weight, weight])[order],
        speed=speed / speed.sum(),
    )


def _scaled(weight: NDArray[np.float64], largest_sum: int) -> NDArray[np.int64]:
    scale = min(1.0, largest_sum / max(float(weight.sum()), 1.0))
    scaled: NDArray[np.int64] = np.maximum(np.floor(weight * scale), 1).astype(np.int64)
    return scaled


def _speeds(
    problem: Problem, devices: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the speed of each kind, and each op's cost at speed 1.

    Speed 1 is the kind, of the devices, with the most kernels. The speed of another one is the
    ratio of the costs of the ops that have kernels on both.
    """
    cost = problem.cost_ns.astype(np.float64)
    has_kernel = problem.cost_ns >= 0
    kinds = np.unique(problem.device_kind[list(devices)])
    reference = kinds[has_kernel[:, kinds].sum(axis=0).argmax()]
    speed = np.ones(cost.shape[1])
    for kind in range(cost.shape[1]):
        both = has_kernel[:, kind] & has_kernel[:, reference]
        theirs, ours = cost[both, kind].sum(), cost[both, reference].sum()
        if theirs > 0 and ours > 0:
            speed[kind] = ours / theirs
    normal = np.where(has_kernel, cost * speed, 0).sum(axis=1) / np.maximum(has_kernel.sum(1), 1)
    return speed, np.where(has_kernel[:, reference], cost[:, reference], normal)


def exchanges(
    problem: Problem,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Returns (u, v, bytes) of each pair u < v of units with an edge; 0 bytes for control only."""
    units = problem.units.astype(np.int64)
    src, output, dst = problem.edges.T
    tensor = problem.output_ptr[src] + output
    # A tensor goes to a unit once.
    _, first = np.unique(tensor * problem.num_units + units[dst], return_index=True)
    size_bytes = problem.output_bytes[tensor[first]].astype(np.float64)
    control = units[problem.control_edges]
    a = np.concatenate([units[src[first]], control[:, 0]])
    b = np.concatenate([units[dst[first]], control[:, 1]])
    size_bytes = np.concatenate([size_bytes, np.zeros(len(control))])
    apart = a != b
    a, b, size_bytes = a[apart], b[apart], size_bytes[apart]
    pair, index = np.unique(
        np.minimum(a, b) * problem.num_units + np.maximum(a, b), return_inverse=True
    )
    total = np.zeros(len(pair))
    np.add.at(total, index, size_bytes)
    return pair // problem.num_units, pair % problem.num_units, total


def place_parts(
    problem: Problem,
    mask: NDArray[np.bool_],
    devices: Sequence[int],
    graph: UnitGraph,
    part: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Returns int32[n]: the units of part p on `devices[p]` where they may run (mask, bool[U, m]).

    A unit that may not, or is not in the graph, goes to its first candidate: of `devices` in order,
    else by index.
    """
    if not problem.num_devices:
        return np.zeros(0, np.int32)
    order = np.array([*devices, *(d for d in range(problem.num_devices) if d not in devices)])
    device = order[mask[:, order].argmax(axis=1)]
    wanted = np.array(devices)[part]
    may = mask[graph.units, wanted]
    device[graph.units[may]] = wanted[may]
    placement: NDArray[np.int32] = device[problem.units].astype(np.int32)
    return placement
