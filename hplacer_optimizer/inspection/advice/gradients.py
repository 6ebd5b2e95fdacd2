"""How many bytes of gradients a training step computes, and when each is there.

A dense gradient is as large as its variable. That of a table that is looked up has the rows that
the batch has read, so it grows with the batch and not with the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem

__all__ = ["VARIABLES", "Gradients", "find_gradients"]

VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable", "_Arg"})
_DENSE = re.compile(r"(Resource)?Apply\w+")
_SPARSE = re.compile(r"(Resource)?(SparseApply\w+|Scatter(Nd)?(Add|Sub|Update))")
_PLAIN = re.compile(r"AssignSub(VariableOp)?")


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """What replicas have to exchange.

    Attributes:
        dense_bytes: added up over the replicas.
        sparse_bytes: rows of tables, which each replica gets of every other one.
        sparse: how many of the gradients are such rows; they come last.
        producers: int64[G], the ops that compute the G gradients.
        sizes_bytes: int64[G], of each.
        note: what was assumed, or "".
    """

    dense_bytes: int
    sparse_bytes: int
    sparse: int
    producers: NDArray[np.int64]
    sizes_bytes: NDArray[np.int64]
    note: str = ""

    @property
    def size_bytes(self) -> int:
        """All together."""
        return self.dense_bytes + self.sparse_bytes


def find_gradients(problem: Problem) -> Gradients:
    """From the ops that update variables; a step without any has none."""
    inputs = _Inputs(problem)
    types = problem.op_types
    sparse = [op for op, kind in enumerate(types) if _SPARSE.fullmatch(kind)]
    dense = [op for op, kind in enumerate(types) if _DENSE.fullmatch(kind)]
    note = ""
    if not dense:
        dense = [op for op, kind in enumerate(types) if _PLAIN.fullmatch(kind)]
        note = "gradients are assumed to be as large as what is subtracted from variables"
    found_dense, found_sparse = inputs.largest(dense), inputs.largest(sparse)
    producers, sizes = np.array([*found_dense, *found_sparse], np.int64).reshape(-1, 2).T
    return Gradients(
        dense_bytes=sum(size for _, size in found_dense),
        sparse_bytes=sum(size for _, size in found_sparse),
        sparse=len(found_sparse),
        producers=producers,
        sizes_bytes=sizes,
        note=note if found_dense else "",
    )


class _Inputs:
    """The data edges of a problem by the op that reads them."""

    def __init__(self, problem: Problem) -> None:
        src, output, dst = problem.edges.T
        size_bytes = problem.output_bytes[problem.output_ptr[src] + output]
        is_variable = np.array([kind in VARIABLES for kind in problem.op_types], np.bool_)
        size_bytes = np.where(is_variable[src], -1, size_bytes)
        order = np.lexsort((size_bytes, dst))  # the largest comes last
        self._src, self._bytes, self._dst = src[order], size_bytes[order], dst[order]

    def largest(self, ops: list[int]) -> list[tuple[int, int]]:
        """The producer and the bytes of each op's largest input that is no variable."""
        found = []
        for op in ops:
            last = int(np.searchsorted(self._dst, op, side="right")) - 1
            if last >= 0 and self._dst[last] == op and self._bytes[last] >= 0:
                found.append((int(self._src[last]), int(self._bytes[last])))
        return found
