"""The problem that a plan solved, packed into sections of its file.

    op_devices   zlib of u16[n]   the placement: a device index per op
    node_ops     zlib of i32[N]   the op that each node of the graph belongs to
    problem      zlib of a problem file

Nothing of it is needed to apply a plan, so a lookup leaves it in the file; whoever simulates or
explains the plan again reads it then.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlanError, ProblemError
from hplacer_optimizer.plans.fields import as_node_name
from hplacer_optimizer.plans.plan_file import PlanFile, Section, compress, decompress, seal
from hplacer_optimizer.problem.problem_file import check_placement

__all__ = ["SECTIONS", "PackedProblem", "fields_without_graph"]

SECTIONS = ("op_devices", "node_ops", "problem")
MAX_BYTES = 64 << 20  # of the compressed problem; one of 50,000 ops has about 1 MB


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedProblem:
    """The sections of a planned problem, here or in a file; equal if their digests are."""

    digests: tuple[str, ...]  # in the order of SECTIONS
    load: Callable[[Sequence[str]], Mapping[str, Section]]  # those of these names
    source: object = "plan"  # the path of the file, for messages

    @classmethod
    def of(
        cls,
        problem: Problem,
        placement: Sequence[int] | NDArray[np.integer[Any]],
        node_op: NDArray[np.integer[Any]],
        *,
        max_bytes: int = MAX_BYTES,
    ) -> PackedProblem | None:
        """Packs a problem; None if it takes more than `max_bytes` compressed.

        Raises ProblemError if the placement does not fit the problem.
        """
        devices = check_placement(problem, placement)
        file = _Compressor(max_bytes)
        try:
            _engine.write_problem(problem, cast(io.BufferedIOBase, file))
            packed = file.finish()
        except _TooLargeError:
            return None
        sections = {
            "op_devices": compress(devices.astype("<u2").tobytes()),
            "node_ops": compress(np.asarray(node_op).astype("<i4").tobytes()),
            "problem": seal(packed),
        }
        digests = tuple(sections[name].digest for name in SECTIONS)
        return cls(digests=digests, load=lambda names: {name: sections[name] for name in names})

    @classmethod
    def from_file(
        cls,
        file: PlanFile,
        load: Callable[[Sequence[str]], Mapping[str, Section]],
        source: object,
    ) -> PackedProblem | None:
        """Of sections that stay in the file until `load` reads them; None if it has none."""
        present = [name for name in SECTIONS if name in file.names]
        if not present:
            return None
        if len(present) != len(SECTIONS):
            raise PlanError(f"has the section {present[0]!r} without all of {', '.join(SECTIONS)}")
        digests = tuple(file.digest_of(name) for name in SECTIONS)
        return cls(digests=digests, load=load, source=source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedProblem) and self.digests == other.digests

    def __hash__(self) -> int:
        return hash(self.digests)

    def read_columns(
        self, *, num_ops: int, num_nodes: int, num_devices: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The device of each op, [n], and the op of each node, [N]; the problem stays packed.

        Raises PlanError where they do not fit a plan of so many ops, nodes and devices.
        """
        sections = self.load(SECTIONS[:2])
        return (
            _column(sections, "op_devices", "<u2", length=num_ops, limit=num_devices),
            _column(sections, "node_ops", "<i4", length=num_nodes, limit=num_ops),
        )

    def read_problem(self, *, num_ops: int, device_names: Sequence[str]) -> Problem:
        """The problem; raises PlanError where it is not of these ops and devices."""
        raw = decompress(self.load(SECTIONS[2:])["problem"].data, "problem")
        try:
            problem = _engine.read_problem(io.BytesIO(raw))
        except ProblemError as error:
            raise PlanError(f"holds a problem that cannot be used: {error}") from None
        if list(problem.device_names) != list(device_names):
            raise PlanError("holds a problem with other devices than its own")
        if problem.num_ops != num_ops:
            raise PlanError("holds a problem with another number of ops than its own")
        return problem


def fields_without_graph(
    problem: Problem, placement: Sequence[int] | NDArray[np.integer[Any]]
) -> dict[str, Any]:
    """What a `Plan` says of a problem that was not captured from a graph: each op is a node.

    There is no fingerprint, and the nodes have no hashes: they are 0. Raises ProblemError if the
    placement does not fit the problem.
    """
    return {
        "fingerprint": "",
        "fingerprint_parts": {},
        "node_names": [as_node_name(name) for name in problem.op_names],
        "node_hashes": np.zeros(problem.num_ops, np.uint64),
        "node_devices": check_placement(problem, placement),
        "packed_problem": PackedProblem.of(problem, placement, np.arange(problem.num_ops)),
    }


class _TooLargeError(Exception):
    """Ends the writing of a problem that exceeds the limit."""


class _Compressor:
    """A file whose content is compressed, up to a limit."""

    def __init__(self, max_bytes: int) -> None:
        self._stream = zlib.compressobj(6)
        self._parts: list[bytes] = []
        self._room = max_bytes

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self._add(self._stream.compress(data))
        return len(data)

    def finish(self) -> bytes:
        self._add(self._stream.flush())
        return b"".join(self._parts)

    def _add(self, part: bytes) -> None:
        self._room -= len(part)
        if self._room < 0:
            raise _TooLargeError
        self._parts.append(part)


def _column(
    sections: Mapping[str, Section], name: str, dtype: str, *, length: int, limit: int
) -> NDArray[np.int32]:
    """Indices below `limit`, read-only."""
    try:
        values = np.frombuffer(decompress(sections[name].data, name), dtype)
    except ValueError as error:
        raise PlanError(f"the section {name!r} is damaged: {error}") from None
    if len(values) != length:
        raise PlanError(f"the section {name!r} has {len(values)} entries instead of {length}")
    outside = np.flatnonzero((values < 0) | (values >= limit))
    if len(outside):
        raise PlanError(
            f"the section {name!r} holds {values[outside[0]]}, but there are only {limit}"
        )
    indices = values.astype(np.int32)
    indices.flags.writeable = False
    return indices
