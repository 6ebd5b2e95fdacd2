"""The ways of using a machine that are compared, each with what it was computed from.

    one device          all that may run there, there; of each kind the first that fits
    plan                a placement over all devices, by a planner
    data parallelism    the whole step on each of the equal devices, with a share of the batch
    both                data parallelism over groups of devices, and a plan within each

All have the same number of samples in a step. `Ways.rows` evaluates them on the machine, or on it
after a change, with the placements that were found for it as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.errors import InfeasibleError
from hplacer_optimizer.inspection.advice.allreduce import all_reduce_groups, hosts_of
from hplacer_optimizer.inspection.advice.gradients import find_gradients
from hplacer_optimizer.inspection.advice.replicas import (
    Exchange,
    exchange,
    messages,
    shared_ns,
    with_exchange,
)
from hplacer_optimizer.inspection.advice.subjects import Step
from hplacer_optimizer.inspection.critical_path import COMPUTE, SLOT_WAIT, critical_path
from hplacer_optimizer.inspection.loads import short_names
from hplacer_optimizer.machines.detect import is_limit
from hplacer_optimizer.planners.devices import device_types, on_device
from hplacer_optimizer.problem.memory import MemoryRange, memory_range
from hplacer_optimizer.problem.simulator import simulate

__all__ = ["BOTH", "ONE", "PLAN", "REPLICAS", "Group", "Way", "Ways"]

ONE, PLAN, REPLICAS, BOTH = "one device", "plan", "data parallelism", "both"
Change = Callable[[Problem], Problem]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way of using the machine.

    Attributes:
        kind: ONE, PLAN, REPLICAS or BOTH.
        name: for people, such as "data parallelism over 8 a100".
        devices: how many it computes on.
        batch_size: samples of a step, all devices together; None: not known.
        replica_batch_size: samples of each replica.
        step_time_ns: None: it cannot run.
        least_ns, most_ns: of the step, if as much or as little as possible of the exchange of
            gradients happens beside the backward pass.
        memory: of the fullest device; None: it cannot run.
        infeasible_because: why it cannot run; "": it can, if the memory suffices.
        bound_by: what takes most of the step.
        origin: of the step at that batch size: "captured", "interpolated" or "scaled".
        exchange: of gradients: "ring", "hierarchical" or "".
    """

    kind: str
    name: str
    devices: int
    batch_size: int | None
    replica_batch_size: int | None
    step_time_ns: int | None
    least_ns: int | None
    most_ns: int | None
    memory: MemoryRange | None
    infeasible_because: str
    bound_by: str
    origin: str
    exchange: str = ""

    @property
    def feasible(self) -> bool:
        """It runs, and fits into memory as far as the simulator can tell."""
        return self.step_time_ns is not None and self.memory is not None and self.memory.fits

    @property
    def samples_per_s(self) -> float | None:
        """Of all devices together."""
        if not self.feasible or self.batch_size is None:
            return None
        return self.batch_size / max(self.step_time_ns or 0, 1) * 1e9


@dataclass(frozen=True, kw_only=True)
class Group:
    """Data parallelism over groups: the step and plan of the first, the fast devices of all.

    Its problem has the whole machine, but its ops may run in the first group only.
    """

    step: Step
    placement: NDArray[np.int32]
    members: Sequence[Sequence[int]]


@dataclass(kw_only=True)
class Ways:
    """What the ways of one machine and one batch size are computed from."""

    step: Step
    singles: dict[str, NDArray[np.int32]]  # by the kind of the device
    plan: NDArray[np.int32] | None = None
    why_no_plan: str = ""
    replica: Step | None = None
    replicas: Sequence[int] = ()
    group: Group | None = None

    def rows(self, change: Change = lambda problem: problem) -> list[Way]:
        """Every way, on the machine as it is or changed."""
        problem = change(self.step.problem)
        found = [self._single(problem, *item) for item in self.singles.items()]
        if self.plan is not None:
            found.append(self._plan(problem, self.plan))
        elif self.why_no_plan:
            found.append(self._impossible(PLAN, "a plan over several devices", self.why_no_plan))
        if self.replica is not None:
            found.append(self._replicas(problem, change(self.replica.problem), self.replica))
        if self.group is not None:
            found.append(self._groups(problem, change(self.group.step.problem), self.group))
        return found

    def _single(self, problem: Problem, kind: str, placement: NDArray[np.int32]) -> Way:
        return self._simulated(ONE, f"one {kind}", problem, placement, 1)

    def _plan(self, problem: Problem, placement: NDArray[np.int32]) -> Way:
        used = len(np.unique(placement))
        name = f"a plan over {used} devices" if used > 1 else "a plan, which uses one device"
        return self._simulated(PLAN, name, problem, placement, used)

    def _simulated(
        self, kind: str, name: str, problem: Problem, placement: NDArray[np.int32], devices: int
    ) -> Way:
        trace = simulate(problem, placement)
        if trace.makespan_ns is None:
            return self._impossible(kind, name, trace.infeasible_because[0])
        return Way(
            kind=kind,
            name=name,
            devices=devices,
            batch_size=self.step.batch_size,
            replica_batch_size=self.step.batch_size,
            step_time_ns=trace.makespan_ns,
            least_ns=trace.makespan_ns,
            most_ns=trace.makespan_ns,
            memory=_fullest(problem, trace),
            infeasible_because="",
            bound_by=_bound_by(problem, placement, trace),
            origin=self.step.origin,
        )

    def _replicas(self, whole: Problem, problem: Problem, step: Step) -> Way:
        # All wait for the replica whose step begins last.
        devices = sorted(self.replicas, key=lambda device: -problem.device_start_ns[device])
        kind = problem.device_kinds[problem.device_kind[devices[0]]]
        name = f"data parallelism over {len(devices)} {kind}"
        placement = on_device(problem, devices[0])
        trace = simulate(problem, placement)
        if trace.makespan_ns is None:
            return self._impossible(REPLICAS, name, trace.infeasible_because[0])
        gradients = find_gradients(problem)
        try:
            added = exchange(whole, devices, gradients, trace, step.machine)
        except InfeasibleError as error:
            return self._impossible(REPLICAS, name, str(error))
        shared = shared_ns(problem, devices, placement, trace)
        memory = _fullest(problem, trace, buffer_bytes=gradients.size_bytes, replicas=devices)
        is_shared = shared > trace.makespan_ns
        bound = "what replicas share" if is_shared else _bound_by(problem, placement, trace)
        own_ns = max(trace.makespan_ns, shared)
        way = self._exchanged(REPLICAS, name, step, own_ns, bound, added, memory)
        return replace(way, devices=len(devices))

    def _groups(self, whole: Problem, problem: Problem, group: Group) -> Way:
        count, size = len(group.members), len(group.members[0])
        name = f"data parallelism over {count} groups, a plan over {size} devices in each"
        trace = simulate(problem, group.placement)
        if trace.makespan_ns is None:
            return self._impossible(BOTH, name, trace.infeasible_because[0])
        gradients = find_gradients(problem)
        first = group.members[0][0]
        held = np.zeros(problem.num_devices, np.int64)
        np.add.at(held, group.placement[gradients.producers], gradients.sizes_bytes)
        largest = int(held.max(initial=0))
        try:
            pieces = messages(whole, first, gradients)
            ring = all_reduce_groups(whole, group.members, largest, messages=pieces)
        except InfeasibleError as error:
            return self._impossible(BOTH, name, str(error))
        added = with_exchange(ring, gradients, trace, group.step.machine, first)
        memory = _fullest(problem, trace, buffer_bytes=largest)
        bound = _bound_by(problem, group.placement, trace)
        way = self._exchanged(BOTH, name, group.step, trace.makespan_ns, bound, added, memory)
        return replace(way, devices=count * size)

    def _exchanged(
        self,
        kind: str,
        name: str,
        step: Step,
        own_ns: int,
        own_bound: str,
        added: Exchange,
        memory: MemoryRange,
    ) -> Way:
        """A replica's step of `own_ns`, and the exchange of gradients."""
        step_ns = own_ns + added.figure_ns
        share = added.figure_ns / max(step_ns, 1)
        return Way(
            kind=kind,
            name=name,
            devices=1,
            batch_size=self.step.batch_size,
            replica_batch_size=step.batch_size,
            step_time_ns=step_ns,
            least_ns=own_ns + added.least_ns,
            most_ns=own_ns + added.most_ns,
            memory=memory,
            infeasible_because="",
            bound_by=f"exchange of gradients {share:.0%}" if share > 0.5 else own_bound,
            origin=step.origin,
            exchange=added.kind,
        )

    def _impossible(self, kind: str, name: str, why: str) -> Way:
        return Way(
            kind=kind,
            name=name,
            devices=0,
            batch_size=self.step.batch_size,
            replica_batch_size=None,
            step_time_ns=None,
            least_ns=None,
            most_ns=None,
            memory=None,
            infeasible_because=why,
            bound_by="",
            origin=self.step.origin,
        )


def _fullest(
    problem: Problem, trace: StepTrace, *, buffer_bytes: int = 0, replicas: Sequence[int] = ()
) -> MemoryRange:
    """Of the device with the largest share of its memory in use.

    What replicas of one host keep on a device that is not their own is there for each of them.
    """
    peaks = trace.peak_bytes.astype(np.int64)
    if replicas:
        others = np.ones(problem.num_devices, np.bool_)
        others[list(replicas)] = False
        peaks = np.where(others, peaks * max(map(len, hosts_of(problem, replicas))), peaks)
    device = int((peaks / problem.device_memory_bytes.clip(1)).argmax())
    device_type = device_types(problem)[device]
    return memory_range(
        short_names(problem.device_names)[device],
        device_type,
        peak_bytes=int(peaks[device]),
        memory_bytes=int(problem.device_memory_bytes[device]),
        is_limit=is_limit(problem.device_kinds[problem.device_kind[device]], device_type),
        buffer_bytes=buffer_bytes,
    )


def _bound_by(problem: Problem, placement: NDArray[np.int32], trace: StepTrace) -> str:
    """As "GPU:0 is busy 93%": the largest part of the critical path."""
    names = dict(zip(problem.device_names, short_names(problem.device_names), strict=True))
    spent: Counter[str] = Counter()
    for stage in critical_path(problem, placement, trace):
        if stage.kind in (COMPUTE, SLOT_WAIT):
            spent[f"{names[stage.where]} is busy"] += stage.duration_ns
        else:
            spent[f"transfers over {stage.where}"] += stage.duration_ns
    if not spent:
        return ""
    ((what, ns),) = spent.most_common(1)
    return f"{what} {ns / max(trace.makespan_ns or 0, 1):.0%}"
