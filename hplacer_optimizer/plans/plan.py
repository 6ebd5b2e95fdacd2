"""A plan: where every node of one graph goes, and where that answer came from.

    Plan --save--> plan file --load_plan--> Plan

The per-node columns are packed, so that a plan of 50,000 nodes loads in a few milliseconds; node
names are split, and the planned problem is read, only when somebody asks.

    plan_format.py   its fields and its file
    guard.py         whether it takes effect
    ranking.py       which of two plans is better
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.errors import PlanError, StoreError
from hplacer_optimizer.inspection.loads import short_names
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.directories.paths import open_file, write_file
from hplacer_optimizer.plans.fields import NodeNames, node_names
from hplacer_optimizer.plans.guard import Here, decide
from hplacer_optimizer.plans.plan_file import BinaryFile, PlanFile, Section, assemble
from hplacer_optimizer.plans.plan_format import CHECKS, naming, pack, summary, unpack
from hplacer_optimizer.plans.planned_problem import SECTIONS, PackedProblem
from hplacer_optimizer.plans.verdict import FASTER, SLOWER, Verdict
from hplacer_optimizer.problem.bounds import gap
from hplacer_optimizer.support.formats import format_ns, times_as_fast
from hplacer_optimizer.support.notebook import Described

__all__ = ["NodeNames", "Plan", "load_plan"]

MAX_DEVICES = 1 << 16  # device indices are 16 bits wide in the file


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan(Described):
    """One placement with its provenance; D devices, N nodes of the graph.

    Attributes:
        fingerprint: 32 hex digits, the key of the plan store; "": not captured from a graph.
        fingerprint_parts: named parts in order: graph, targets, machine, ...
        label: function or graph name, for people.
        planner: by name, with its planner_options, seed and budget.
        planner_notes: what it said, such as a limit that it hit.
        step_time_ns: simulated; None where nothing simulated it.
        step_spread_ns: the 5th and the 95th percentile of the simulated step, ns, where costs are
            as wrong as they typically are; None if it is not known.
        simulator_version: which SIMULATOR_VERSION predicted all this; None if it is not known.
        lower_bound_ns: no feasible placement beats it; None if unknown.
        lower_bound_term: the name of what binds.
        feasible: whether it fits into every device's memory, as simulated, or ran when measured.
        peak_bytes: D sizes.
        device_names: D full TensorFlow names.
        device_kinds: D names, such as "k40".
        machine: the text of a machine file; None if unknown.
        num_ops, num_units: of the problem.
        planning_s: seconds that planning took.
        learning_curve: points of `Progress` as dictionaries.
        cost_source: "analytic", "measured" or both.
        assumptions: one sentence each.
        baseline: TensorFlow's own placement, simulated; None if it is not known.
        prediction_error: by how much the predicted gain may be too large, as a share; None: by
            what `cost_source` says.
        versions: of hplacer, tensorflow and python.
        created: when, ISO 8601 in UTC.
        host: where.
        node_names: N names, given as any iterable and kept as NodeNames.
        node_hashes: uint64[N].
        node_ranks: uint32[N], which tell nodes of one hash apart; empty where nothing does.
        structure: 64 bits; nodes of one hash and rank correspond in graphs where this is equal.
        node_devices: int32[N], indices into device_names.
        verdict: what measuring it beside TensorFlow's own placement said; None: nobody did.
        packed_problem: what `problem()`, `placement` and `node_op` read; None without them.

    Raises:
        PlanError: a value is wrong; names the field.

    Example:
        >>> import hplacer_optimizer as hp
        >>> plan = hp.plan("example")
        >>> plan.planner, plan.feasible, plan.step_time_ns, plan.gap
        ('auto', True, 438000, 0.0)
        >>> plan.problem().op_names[3], plan.device_names[plan.placement[3]]
        ('left/matmul', '/device:GPU:0')
    """

    fingerprint: str
    fingerprint_parts: dict[str, str]
    label: str
    planner: str
    planner_notes: list[str] = field(default_factory=list)
    planner_options: dict[str, Any]
    seed: int
    budget: dict[str, Any]
    step_time_ns: int | None
    step_spread_ns: tuple[int, int] | None = None
    simulator_version: int | None = None
    lower_bound_ns: int | None = None
    lower_bound_term: str | None = None
    feasible: bool
    peak_bytes: list[int]
    device_names: list[str]
    device_kinds: list[str]
    machine: str | None = None
    num_ops: int
    num_units: int
    planning_s: float
    learning_curve: list[dict[str, Any]] = field(default_factory=list)
    cost_source: str
    assumptions: list[str]
    baseline: Baseline | None = None
    prediction_error: float | None = None
    versions: dict[str, str]
    created: str
    host: str
    node_names: Sequence[str]
    node_hashes: npt.NDArray[np.uint64]
    node_ranks: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    structure: int = 0
    node_devices: npt.NDArray[np.int32]
    verdict: Verdict | None = None
    packed_problem: PackedProblem | None = None

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            try:
                object.__setattr__(self, name, check(getattr(self, name)))
            except ValueError as error:
                raise PlanError(f"plan.{name} {error}") from None
        devices, nodes = len(self.device_names), len(self.node_names)
        if devices > MAX_DEVICES:
            raise PlanError(f"plan.device_names has {devices} entries, at most {MAX_DEVICES}")
        for name, length in (("device_kinds", devices), ("peak_bytes", devices)):
            if len(getattr(self, name)) != length:
                raise PlanError(f"plan.{name} must have one entry for each of {length} devices")
        ranks = ("node_ranks",) if len(self.node_ranks) else ()
        for name in ("node_hashes", *ranks, "node_devices"):
            if len(getattr(self, name)) != nodes:
                raise PlanError(f"plan.{name} must have one entry for each of {nodes} node names")
        outside = (self.node_devices < 0) | (self.node_devices >= devices)
        if outside.any():
            at = int(outside.argmax())
            raise PlanError(
                f"plan.node_devices puts node {self.node_names[at]!r} on device "
                f"{self.node_devices[at]}, there are {devices}"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan) or self.packed_problem != other.packed_problem:
            return False
        return pack(vars(self)) == pack(vars(other))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Callable[[bytes], Plan], tuple[bytes]]:
        """A pickled plan is a plan file, its problem included."""
        return Plan.from_bytes, (self.to_bytes(),)

    def _describe(self) -> tuple[str, dict[str, str]]:
        facts = {}
        if self.lower_bound_ns is not None:
            facts["lower bound"] = f"{format_ns(self.lower_bound_ns)} ({self.lower_bound_term})"
            if self.gap is not None:
                facts["lower bound"] += f", gap {self.gap:.1%}"
        facts["graph"] = (
            f"{self.num_ops} ops in {self.num_units} units, {len(self.node_names)} nodes"
        )
        counts = np.bincount(self.node_devices, minlength=len(self.device_names)).tolist()
        names = zip(counts, short_names(self.device_names), strict=True)
        facts["nodes"] = ", ".join(f"{count} on {name}" for count, name in names)
        facts["made"] = f"{self.created} on {self.host} in {self.planning_s:.3g} s"
        return f"Plan of {self.label}: {self.summary_line()}", facts

    @property
    def node_names_blob(self) -> str:
        """All node names joined by newlines, in column order: what the native part consumes."""
        return node_names(self.node_names).blob

    @property
    def short_fingerprint(self) -> str:
        """For people: the first 8 hex digits of the fingerprint, or that there is none."""
        return self.fingerprint[:8] or "without fingerprint"

    def check_fingerprint(self) -> None:
        """Raises PlanError if there is none: then no graph can be told to be the plan's."""
        if not self.fingerprint:
            raise PlanError(
                f"the plan of {self.label} has no fingerprint, because its problem was not "
                "captured from a graph, so no training run would find it: plan the graph itself "
                "with `hplacer pretrain GRAPH` or `hplacer plan GRAPH`"
            )

    def summary(self) -> dict[str, Any]:
        """Every field that JSON can hold: all but the columns and the problem."""
        return summary(vars(self))

    def summary_line(self) -> str:
        """One line for people, such as `3f9c2b1a (etf): 2.49 ms/step, 2.0 times as fast as
        TensorFlow's placement (5.04 ms), both predicted`.
        """
        measured = f"; measured: {times_as_fast(self.verdict.speedup)}" if self.verdict else ""
        measured += " (emulated)" if self.verdict and self.verdict.emulated is not None else ""
        return f"{self.short_fingerprint} ({self.planner}): {self._outcome()}{measured}"

    def _outcome(self) -> str:
        if not self.feasible:
            return "does not fit into memory"
        if self.step_ns is None:
            return "step time not simulated"
        how = "predicted" if self.measured_ns is None else "measured"
        step, compared = f"{format_ns(self.step_ns)}/step", self._baseline_line()
        if self.speedup is not None:
            return f"{step}, {compared}, both {how}"
        return f"{step} {how}" + (f", {compared}" if compared else "")

    def _baseline_line(self) -> str:
        """TensorFlow's own placement beside this one, in words; "": it is not known."""
        compared = self._compared
        return compared.beside(self.step_ns, self.feasible) if compared else ""

    @property
    def step_ns(self) -> int | None:
        """The step time, ns: measured if the reward was, else simulated."""
        return self.step_time_ns if self.measured_ns is None else self.measured_ns

    @property
    def baseline_ns(self) -> int | None:
        """The step time of TensorFlow's own placement, ns, known in the same way as `step_ns`."""
        return self._compared.step_time_ns if self._compared else None

    @property
    def speedup(self) -> float | None:
        """How many times as many steps a second as under TensorFlow's own placement.

        None if that is not known or does not fit, or if the plan does not fit.
        """
        return self._compared.speedup_of(self.step_ns, self.feasible) if self._compared else None

    @property
    def _compared(self) -> Baseline | None:
        """TensorFlow's own placement, known in the same way as `step_ns`."""
        return self.baseline if self.measured_ns is None else self.measured_baseline

    def why_left_alone(self, min_gain: float | None = None) -> str:
        """Why training that does not try the plan keeps TensorFlow's placement; "": it does not.

        Args:
            min_gain: as the option; None: more than the prediction may be wrong.
        """
        return decide(self, Here.now(min_gain=min_gain)).why

    @property
    def is_retired(self) -> bool:
        """Whether it was measured on this hardware to be slower than TensorFlow's placement."""
        return self.verdict is not None and self.verdict.outcome_here == SLOWER

    @property
    def is_confirmed(self) -> bool:
        """Whether it was measured on this hardware to be faster than TensorFlow's placement."""
        return self.verdict is not None and self.verdict.outcome_here == FASTER

    @property
    def constant_bytes(self) -> int:
        """Of the constants in its graph; 0: not known."""
        problem = self.problem()
        if problem is None:
            return 0
        is_constant = np.array([kind == "Const" for kind in problem.op_types], bool)
        outputs = np.repeat(is_constant, np.diff(problem.output_ptr))
        return int(problem.output_bytes[outputs].sum())

    def places_as(self, other: Plan) -> bool:
        """Whether both have the same nodes on the same devices."""
        return (
            self.device_names == other.device_names
            and np.array_equal(self.node_hashes, other.node_hashes)
            and np.array_equal(self.node_devices, other.node_devices)
        )

    @property
    def gap(self) -> float | None:
        """By what share of the lower bound the step is longer; 0.0: it is optimal.

        None if the plan is infeasible, or step or bound are not known.
        """
        return gap(self.step_time_ns, self.lower_bound_ns) if self.feasible else None

    @property
    def measured_ns(self) -> int | None:
        """The measured step time of a plan whose reward was measured."""
        return self._measured("step_ns")

    @property
    def measured_baseline(self) -> Baseline | None:
        """TensorFlow's own placement, if that was measured, too."""
        measured = None if self.measured_ns is None else self._measured("baseline_ns")
        if measured is None:
            return None
        return Baseline(step_time_ns=measured, feasible=True, peak_bytes=[])

    def _measured(self, name: str) -> int | None:
        measured = self.planner_options.get("measured")
        found = measured.get(name) if isinstance(measured, dict) else None
        return found if isinstance(found, int) else None

    def problem(self) -> Problem | None:
        """The problem that was planned, read from the file on the first call; None if it is not
        there. Raises PlanError, or StoreError if the file cannot be read any more.
        """
        return self._problem

    @property
    def placement(self) -> npt.NDArray[np.int32] | None:
        """int32[n]: the device of each op of `problem()`, read on first use as that is."""
        return self._op_columns[0]

    @property
    def node_op(self) -> npt.NDArray[np.int32] | None:
        """int32[N]: the op of `problem()` that each node belongs to, read on first use."""
        return self._op_columns[1]

    def verify(self) -> None:
        """Reads and checks the problem and the placement, too; raises as `problem()`."""
        _ = self._op_columns, self._problem

    def trace(self) -> StepTrace:
        """Simulates the placement on its problem; raises PlanError if the plan holds none."""
        return self.simulated().trace

    def simulated(self) -> SimulatedStep:
        """What reports and tables are made from; raises PlanError if the plan holds no problem."""
        problem, placement = self.problem(), self.placement
        if problem is None or placement is None:
            raise PlanError(
                f"plan {self.short_fingerprint} of {self.label} holds no problem to simulate: plan "
                "its graph again, or name the graph to a command such as `hplacer report` with "
                "--graph, and its machine with --machine"
            )
        return SimulatedStep.of(problem, placement)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes one HTML page: timelines, waits, memory, graph, other placements, provenance.

        It is what `hplacer report` writes (docs/how-to/inspection.md). A reader sees the old file
        or the new one, never a part. Raises PlanError if the plan holds no problem, OSError if the
        page cannot be written.
        """
        from hplacer_optimizer.inspection.report import write_report  # not in every lookup

        write_report(self.simulated(), self, path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a plan file for `load_plan`, to a path or to an address such as gs://bucket/x.hplan.

        A reader sees the old file or the new one, never a part. Raises StoreError, an OSError,
        which names the path, if it cannot be written.
        """
        write_file(path, self.to_bytes())

    @functools.cached_property
    def _problem(self) -> Problem | None:
        packed = self.packed_problem
        if packed is None:
            return None
        with naming(packed.source):
            return packed.read_problem(num_ops=self.num_ops, device_names=self.device_names)

    @functools.cached_property
    def _op_columns(
        self,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]] | tuple[None, None]:
        """`placement` and `node_op`."""
        packed = self.packed_problem
        if packed is None:
            return None, None
        with naming(packed.source):
            placement, node_op = packed.read_columns(
                num_ops=self.num_ops,
                num_nodes=len(self.node_names),
                num_devices=len(self.device_names),
            )
            if not np.array_equal(placement[node_op], self.node_devices):
                raise PlanError("holds a problem with another placement than its own")
        return placement, node_op

    def to_bytes(self) -> bytes:
        """The content of a plan file; the same plan gives the same bytes (with the same zlib)."""
        problem = self.packed_problem.load(SECTIONS) if self.packed_problem else {}
        return assemble({**pack(vars(self)), **problem})

    @classmethod
    def from_bytes(cls, data: bytes, source: object = "plan") -> Plan:
        """Reads what `to_bytes` wrote; raises PlanError that starts with `source`, a path.

        Every checksum is verified, that of the problem included.
        """
        with naming(source):
            file = PlanFile(io.BytesIO(data))
            file.check_length()
            sections = {name: file.section(name) for name in file.names}
            packed = PackedProblem.from_file(
                file, lambda names: {name: sections[name] for name in names}, source
            )
            return cls(**unpack(file), packed_problem=packed)

    @classmethod
    def from_file(
        cls,
        file: BinaryFile,
        source: object,
        reopen: Callable[[], AbstractContextManager[BinaryFile | None]],
    ) -> Plan:
        """Reads and verifies what applying the plan needs.

        `problem()` opens the file again. Raises PlanError that starts with `source`, a path.
        """
        with naming(source):
            opened = PlanFile(file)

            def load(names: Sequence[str]) -> Mapping[str, Section]:
                with reopen() as again:
                    current = None if again is None else PlanFile(again)
                    if current is None or current.digest != opened.digest:
                        raise StoreError(f"{source}: was replaced or removed; read the plan again")
                    return {name: current.section(name) for name in names}

            packed = PackedProblem.from_file(opened, load, source)
            return cls(**unpack(opened), packed_problem=packed)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Reads a plan file; its problem is read when somebody asks for it.

    Args:
        path: of the file, or an address such as gs://bucket/x.hplan. The file of a `ModelPlan`
            gives the plan of its step.

    Raises:
        PlanError: the file holds no valid plan; names the path.
        StoreError: an OSError, the file cannot be read; names the path.

    Example:
        >>> import hplacer_optimizer as hp
        >>> hp.plan("example").save("example.hplan")
        >>> hp.load_plan("example.hplan").step_time_ns
        438000
    """

    def reopen() -> AbstractContextManager[BinaryFile | None]:
        return open_file(path)

    with reopen() as file:
        if file is None:
            raise StoreError(f"{path}: there is no such file")
        return Plan.from_file(file, path, reopen)
