"""A captured step, on its way between processes, and the Problem that it makes with a machine.

save_captured(captured, directory)   captured.json (texts) + captured.npz (numbers)
load_captured(directory)             -> CapturedGraph
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.costs import table as costs
from hplacer_optimizer.costs.table import CostSummary, CostTable
from hplacer_optimizer.log import warn_once
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
    def fingerprint_parts(self) -> list[tuple[str, str]]: ...
    @property
    def arrays(self) -> Mapping[str, Any]:
        """The step's share of the keywords of `Problem`."""

    @property
    def op_signatures(self) -> list[str]:
        """[n], the keys of a cost table."""

    @property
    def is_static(self) -> NDArray[np.bool_]:
        """bool[n], the ops that TensorFlow replaces by constants before a step."""

    @property
    def is_removed(self) -> NDArray[np.bool_]:
        """bool[n], the ops that TensorFlow removes before a step."""

    @property
    def is_repeated(self) -> NDArray[np.bool_]:
        """bool[n], the ops that are equal to one that TensorFlow runs for them."""

    @property
    def units(self) -> NDArray[np.int32]:
        """int32[n]"""

    @property
    def num_units(self) -> int: ...
    @property
    def node_names(self) -> list[str]:
        """[N]"""

    @property
    def node_hashes(self) -> NDArray[np.uint64]:
        """uint64[N]"""

    @property
    def node_ranks(self) -> NDArray[np.uint32]:
        """uint32[N], which tell nodes of one hash apart."""

    @property
    def structure(self) -> int:
        """64 bits; nodes of one hash and rank correspond in graphs where this is equal."""

    @property
    def node_op(self) -> NDArray[np.int32]:
        """int32[N], the op that stands for the node."""

    @property
    def assumptions(self) -> list[str]: ...


@dataclass(frozen=True, kw_only=True)
class CapturedGraph:
    """A step that was captured by another process; fields as in `_tf.OfflineCapture`."""

    label: str
    fingerprint: str
    fingerprint_parts: list[tuple[str, str]]
    arrays: Mapping[str, Any]
    op_signatures: list[str]
    is_static: NDArray[np.bool_]
    is_removed: NDArray[np.bool_]
    is_repeated: NDArray[np.bool_]
    units: NDArray[np.int32]
    num_units: int
    node_names: list[str]
    node_hashes: NDArray[np.uint64]
    node_ranks: NDArray[np.uint32]
    structure: int
    node_op: NDArray[np.int32]
    assumptions: list[str]


_TEXTS, _NUMBERS = "captured.json", "captured.npz"
_FACTS = (
    "label",
    "fingerprint",
    "fingerprint_parts",
    "op_signatures",
    "num_units",
    "node_names",
    "structure",
)
_COLUMNS = (
    "is_static",
    "is_removed",
    "is_repeated",
    "units",
    "node_hashes",
    "node_ranks",
    "node_op",
)
_LISTS = ("op_names", "op_types")  # of the arrays
_NO_ALIAS = -1
_COPIED_BYTES = 64  # 16 elements of 4 bytes


def save_captured(
    captured: Captured, directory: str | os.PathLike[str], *, assumed: Sequence[str] = ()
) -> None:
    """Writes the step into a directory, with `assumed` beside the assumptions that it has."""
    arrays = dict(captured.arrays)
    texts = {name: arrays.pop(name) for name in _LISTS}
    texts |= {name: getattr(captured, name) for name in _FACTS}
    texts["assumptions"] = [*captured.assumptions, *assumed]
    columns = {name: getattr(captured, name) for name in _COLUMNS}
    np.savez(Path(directory) / _NUMBERS, **arrays, **columns)
    (Path(directory) / _TEXTS).write_text(json.dumps(texts))


def load_captured(directory: str | os.PathLike[str]) -> CapturedGraph:
    """Reads what `save_captured` wrote."""
    texts = json.loads((Path(directory) / _TEXTS).read_text())
    with np.load(Path(directory) / _NUMBERS, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    columns = {name: arrays.pop(name) for name in _COLUMNS}
    arrays |= {name: texts.pop(name) for name in _LISTS}
    texts["fingerprint_parts"] = [(name, value) for name, value in texts["fingerprint_parts"]]
    return CapturedGraph(arrays=arrays, **columns, **texts)


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
        signatures = captured.op_signatures
        arrays, summary = costs.apply(table, arrays, signatures, kinds, captured.is_removed)
        if summary.is_unused:
            _warn_of_unused(table, kinds)
    if _are_hosts(machine):
        arrays = _without_copied_constants(arrays, captured.is_static)
    problem = Problem(
        name=name or captured.label,
        **machine.problem_arrays(),
        **arrays,
        allowed_given=np.ones(len(arrays["op_names"]), np.bool_),
        colocation_group=captured.units,
        colocation_group_names=[f"unit {unit}" for unit in range(captured.num_units)],
    )
    return problem, summary


def _warn_of_unused(table: CostTable, kinds: Sequence[str]) -> None:
    only = f"only costs for {', '.join(table.kinds)}" if len(table) else "since it is empty"
    fix = "" if set(kinds) & set(table.kinds) else "; calibrate the devices that the graph runs on"
    warn_once(
        f"unused {table.name}",
        f"the cost table {table.name} has no cost of this graph's ops on {', '.join(kinds)}, "
        f"{only}: all costs are estimated{fix}",
    )


def _are_hosts(machine: Machine) -> bool:
    """Whether every device is the only one of its task, and its CPU."""
    tasks = {device.task for device in machine.devices}
    return len(tasks) == len(machine.devices) and {d.type for d in machine.devices} == {"CPU"}


def _without_copied_constants(
    arrays: Mapping[str, Any], is_static: NDArray[np.bool_]
) -> Mapping[str, Any]:
    """The arrays without the edges that TensorFlow replaces by copies of small constants.

    It copies a constant of at most 16 elements to each task that reads it, if several do
    ("tensorflow/core/common_runtime/replicate_constants_pass.cc"): nothing is sent. It is sent if a
    single task reads it, another one: hence the edge to its first reader stays. An output that was
    such a constant under another name has a buffer of its own instead.
    """
    src, _, dst = arrays["edges"].T
    num_ops = len(is_static)
    op = np.repeat(np.arange(num_ops), np.diff(arrays["output_ptr"]))
    sizes = np.bincount(op, arrays["output_bytes"], num_ops)
    pairs = np.unique(np.stack([src, dst], axis=1), axis=0)
    readers = np.bincount(pairs[:, 0], minlength=num_ops)
    is_copied = is_static & (sizes <= _COPIED_BYTES) & (readers > 1)
    first_reader = np.full(num_ops, num_ops)
    np.minimum.at(first_reader, src, dst)
    is_kept = ~is_copied[src] | (dst == first_reader[src])
    alias_src = arrays["output_alias_src"]
    loses_alias = (alias_src >= 0) & is_copied[np.maximum(alias_src, 0)]
    return {
        **arrays,
        "edges": arrays["edges"][is_kept],
        "output_alias_src": np.where(loses_alias, _NO_ALIAS, alias_src),
        "output_alias_output": np.where(loses_alias, 0, arrays["output_alias_output"]),
    }
