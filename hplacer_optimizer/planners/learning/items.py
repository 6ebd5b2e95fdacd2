"""What the Grouper assigns to groups: units or clusters of them, with their embeddings.

An embedding has the paper's three parts (ICLR 2018, section 3): op types, output sizes, and the
neighbours' indices in topological order. A unit of several ops, or a cluster, has the sums of what
its ops have. V op types, N items, E edges between items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners.devices import candidate_mask

NUM_OUTPUTS = 4  # the largest outputs in an embedding
NUM_NEIGHBOURS = 6  # in each direction

_Float32 = NDArray[np.float32]
_Int32 = NDArray[np.int32]


class Neighbours:
    """Who touches whom, whichever way an edge goes."""

    def __init__(self, edges: _Int32, count: int) -> None:
        """`edges`: int32[E, 2] between `count` nodes; loops and repetitions do not count."""
        both = np.concatenate([edges, edges[:, [1, 0]]]).astype(np.int64)
        key = np.unique(both[both[:, 0] != both[:, 1]] @ np.array([max(count, 1), 1]))
        self._node = key % max(count, 1)
        self._ptr = np.searchsorted(key // max(count, 1), np.arange(count + 1))

    def of(self, node: int) -> NDArray[np.int64]:
        """The neighbours of a node, ascending."""
        return self._node[self._ptr[node] : self._ptr[node + 1]]


@dataclass(frozen=True, kw_only=True)
class Items:
    """N items in topological order."""

    of_unit: _Int32  # [U] the item of each unit
    embedding: _Float32  # [N, F]
    types: _Float32  # [N, V] ops of each type
    sizes: _Float32  # [N, NUM_OUTPUTS + 1] bytes of the largest outputs, then of all
    edges: _Int32  # [E, 2] distinct (src, dst), no loops
    may_run: NDArray[np.bool_]  # [N, m] some unit of it may run there
    unit_may_run: NDArray[np.bool_]  # [U, m]

    neighbours: Neighbours  # by these edges

    @property
    def count(self) -> int:
        """N."""
        return len(self.types)


def make_items(problem: Problem, of_unit: _Int32, position_frequencies: int) -> Items:
    """Describes the items that `of_unit`, int32[U], makes of the units."""
    count = int(of_unit.max()) + 1 if len(of_unit) else 0
    op_item = of_unit[problem.units]
    op_types, type_of_op = np.unique(np.array(problem.op_types), return_inverse=True)
    types = np.zeros((count, len(op_types)), np.float32)
    np.add.at(types, (op_item, type_of_op), 1)

    src, _, dst = problem.edges.T
    pairs = np.concatenate(
        [np.stack([op_item[src], op_item[dst]], axis=1), op_item[problem.control_edges]]
    )
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).astype(np.int32).reshape(-1, 2)
    mask = candidate_mask(problem)
    may_run = np.zeros((count, problem.num_devices), np.bool_)
    np.logical_or.at(may_run, of_unit, mask)

    sizes = _output_sizes(problem, op_item, count)
    position = (np.arange(count) + 1) / count if count else np.zeros(0)
    parts = [
        np.log1p(types),
        np.log1p(sizes) / 10,
        _neighbours(edges[:, [1, 0]], count),
        _neighbours(edges, count),
    ]
    for power in range(position_frequencies):
        angle = position * np.pi * 2**power
        parts.append(np.stack([np.sin(angle), np.cos(angle)], axis=1))
    return Items(
        of_unit=of_unit,
        embedding=np.concatenate(parts, axis=1).astype(np.float32),
        types=types,
        sizes=sizes,
        edges=edges,
        neighbours=Neighbours(edges, count),
        may_run=may_run,
        unit_may_run=mask,
    )


def _output_sizes(problem: Problem, op_item: _Int32, count: int) -> _Float32:
    sizes = np.zeros((count, NUM_OUTPUTS + 1), np.float32)
    op_of_tensor = np.repeat(np.arange(problem.num_ops), np.diff(problem.output_ptr))
    item = op_item[op_of_tensor]
    size_bytes = problem.output_bytes.astype(np.float32)
    np.add.at(sizes[:, NUM_OUTPUTS], item, size_bytes)
    order = np.lexsort((-size_bytes, item))
    rank = np.arange(len(order)) - np.searchsorted(item[order], item[order])
    first = rank < NUM_OUTPUTS
    sizes[item[order][first], rank[first]] = size_bytes[order][first]
    return sizes


def _neighbours(edges: _Int32, count: int) -> NDArray[np.float64]:
    """float[N, NUM_NEIGHBOURS]: positions in (0, 1] of the first ends of its edges, then 0."""
    table = np.zeros((count, NUM_NEIGHBOURS))
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    item, neighbour = edges[order].T
    rank = np.arange(len(item)) - np.searchsorted(item, item)
    first = rank < NUM_NEIGHBOURS
    table[item[first], rank[first]] = (neighbour[first] + 1) / count
    return table
