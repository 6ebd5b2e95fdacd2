"""A captured step and the Problem that it makes with a machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import costs
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.costs import CostSummary, CostTable
from hplacer_optimizer.machines import Machine


class Captured(Protocol):
    """What a capture tells of a step, inside of a training process or outside (`_tf`).

    n ops in U units stand for N nodes of the graph.
    """

    @property
    def label(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def arrays(self) -> Mapping[str, Any]:
        """The step's share of the keywords of `Problem`."""

    @property
    def op_signatures(self) -> list[str]:
        """[n], the keys of a cost table."""

    @property
    def units(self) -> NDArray[np.int32]:
        """int32[n]"""

    @property
    def num_units(self) -> int: ...
    @property
    def assumptions(self) -> list[str]: ...


@dataclass(frozen=True, kw_only=True)
class CapturedGraph:
    """A step that was captured by another process; fields as in `_tf.OfflineCapture`."""

    label: str
    num_ops: int
    fingerprint: str
    fingerprint_parts: list[tuple[str, str]]
    arrays: Mapping[str, Any]
    op_signatures: list[str]
    units: NDArray[np.int32]
    num_units: int
    node_names: list[str]
    node_hashes: NDArray[np.uint64]
    node_op: NDArray[np.int32]
    assumptions: list[str]


def build_problem(
    captured: Captured,
    machine: Machine,
    *,
    name: str = "",
    cost_table: CostTable | str | os.PathLike[str] | None = None,
) -> tuple[Problem, CostSummary | None]:
    """The Problem of a captured step on the machine that it was captured for.

    Costs that the table holds, given as such or as its file, replace the estimates; the summary
    tells how many there were. Raises CostTableError if the file is malformed.
    """
    arrays, summary = captured.arrays, None
    if cost_table is not None:
        table = cost_table if isinstance(cost_table, CostTable) else CostTable.load(cost_table)
        kinds = [kind.name for kind in machine.kinds]
        arrays, summary = costs.apply(table, arrays, captured.op_signatures, kinds)
    problem = Problem(
        name=name or captured.label,
        **machine.problem_arrays(),
        **arrays,
        allowed_given=np.ones(len(arrays["op_names"]), np.bool_),
        colocation_group=captured.units,
        colocation_group_names=[f"unit {unit}" for unit in range(captured.num_units)],
    )
    return problem, summary
