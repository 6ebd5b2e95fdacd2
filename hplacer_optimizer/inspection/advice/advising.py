"""`advise`: the ways of using one or several machines, compared for a training step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.costs.table import CostTable
from hplacer_optimizer.errors import InfeasibleError, OptionError
from hplacer_optimizer.inspection.advice.allreduce import hosts_of
from hplacer_optimizer.inspection.advice.changes import Tried, best, changed_ways
from hplacer_optimizer.inspection.advice.gradients import find_gradients
from hplacer_optimizer.inspection.advice.picture import draw
from hplacer_optimizer.inspection.advice.replicas import equal_devices
from hplacer_optimizer.inspection.advice.subjects import (
    INTERPOLATED,
    SCALED,
    Step,
    Subject,
    between,
    scaled_step,
    subject_of,
)
from hplacer_optimizer.inspection.advice.verdicts import change_sentence, verdict
from hplacer_optimizer.inspection.advice.ways import Group, Way, Ways
from hplacer_optimizer.machines import Machine, load_machine
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.planners.devices import candidate_mask, on_device
from hplacer_optimizer.planners.host_offload import accelerators_first
from hplacer_optimizer.problem.cost_sources import MEASURED
from hplacer_optimizer.problem.prediction_error import (
    against_the_plan,
    launches_ahead,
    prediction_error,
)
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.support.formats import format_ns
from hplacer_optimizer.support.keywords import checks_keywords
from hplacer_optimizer.support.notebook import Described

__all__ = ["SECONDS", "Advice", "MachineAdvice", "advise", "compare"]

SECONDS = 2.0
"""Of each search for a plan."""
SAME_BATCH = "every way has the same number of samples in a step, so data parallelism splits them"
_LEAST_OF_GROUPS = 4  # equal devices of one host that are worth two groups

OnStart = Callable[[str], None]
MachineLike = Machine | str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class MachineAdvice:
    """The ways on one machine, at one batch size.

    Attributes:
        machine: its name.
        batch_size: samples of a step; None: not known.
        cost_source: "analytic", "measured", or both.
        error: by how much a predicted gain may be too large, as a share.
        ways: one device, a plan, data parallelism, and both, as far as the machine has them.
        verdict: the advice, a sentence or two.
        change: what would change it, a sentence.
        changes: the changed machines that were tried.
        assumptions: one sentence each.
        placement: of the plan, int32[n]; None: there is none.
    """

    machine: str
    batch_size: int | None
    cost_source: str
    error: float
    ways: list[Way]
    verdict: str
    change: str
    changes: list[Tried]
    assumptions: list[str]
    placement: NDArray[np.int32] | None = field(repr=False, compare=False)

    @property
    def best(self) -> Way | None:
        """The way with the shortest step of those that fit."""
        return best(self.ways)

    @property
    def title(self) -> str:
        """The machine, and the batch size where it is known."""
        return self.machine + (f", batch {self.batch_size}" if self.batch_size else "")


@dataclass(frozen=True, kw_only=True, repr=False)
class Advice(Described):
    """Which way of using devices suits a model.

    Attributes:
        name: of the graph, the script or the workload.
        machines: what was found for each machine and batch size, in the order of the arguments.
    """

    name: str
    machines: list[MachineAdvice]

    def picture(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Samples per second of every way as bars.

        Args:
            path: where to write it, too: .svg, .png or .pdf.

        Returns:
            A `matplotlib.figure.Figure`, which a notebook shows.

        Raises:
            OptionError: matplotlib is missing, or the file is of another kind.
        """
        return draw([(found.title, found.ways) for found in self.machines], path)

    def _describe(self) -> tuple[str, dict[str, str]]:
        facts = {found.title: found.verdict for found in self.machines}
        return f"Advice for {self.name!r}", facts


@checks_keywords
def advise(
    source: object = None,
    *,
    workload: str | None = None,
    machine: MachineLike | Sequence[MachineLike] | None = None,
    batch_size: int | Sequence[int] | None = None,
    cost_table: CostTable | str | os.PathLike[str] | None = None,
    budget_s: float = SECONDS,
    seed: int = 0,
    targets: Sequence[object] | None = None,
    signature: str | None = None,
    loop_trip_count: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    allow_soft_placement: bool | None = None,
    script_args: Sequence[str] = (),
    in_place: bool = False,
    on_start: OnStart | None = None,
) -> Advice:
    """Compares the ways of using a machine: one device, a plan over several, data parallelism.

    Nothing has to run on the machine: steps and memory are simulated. A script runs here until its
    first training step has ended.

    Args:
        source: a graph as for `load_problem`, or a training script (*.py).
        workload: in place of it, a shipped workload, as "nmt_4" or "nmt:layers=4,hidden=512".
        machine: a Machine, a shipped one's name or a YAML file, or several; None: this machine.
        batch_size: samples of a step, all devices together, or several; None: the graph's own.
        cost_table: measured costs, which replace the estimates of the ops that it has.
        budget_s: seconds of each search for a plan.
        seed: of the searches.
        targets: as for `load_problem`.
        signature: as for `load_problem`.
        loop_trip_count: as for `load_problem`.
        shapes: as for `load_problem`.
        allow_soft_placement: as for `load_problem`.
        script_args: arguments of the script.
        in_place: lets the script run in the working directory itself, where it may overwrite files;
            else it runs in a copy.
        on_start: is told what begins, as text.

    Returns:
        An Advice: for each machine and batch size the ways, a verdict, and what would change it.

    Raises:
        OptionError: there is no such workload, or an argument is wrong.
        GraphError: the graph or the script has no training step that can be captured, or the
            working directory is too large for a copy.
        MachineError: the machine's description is wrong.

    Example:
        >>> import hplacer_optimizer as hp
        >>> advice = hp.advise("example", budget_s=1)
        >>> [way.kind for way in advice.machines[0].ways]
        ['one device', 'one device', 'plan', 'data parallelism']
        >>> advice.machines[0].best.kind
        'data parallelism'
    """
    options = {
        "targets": targets,
        "signature": signature,
        "loop_trip_count": loop_trip_count,
        "shapes": shapes,
        "allow_soft_placement": allow_soft_placement,
        "cost_table": cost_table,
    }
    sizes = _batch_sizes(batch_size)
    budget = Budget(seconds=budget_s)
    tell = on_start or (lambda what: None)
    machines = [_loaded(one) for one in _listed(machine)]
    tell("capturing the training step")
    subject = subject_of(source, workload, options, script_args, in_place=in_place)
    return compare(subject, machines, sizes, budget=budget, seed=seed, on_start=tell)


def compare(
    subject: Subject,
    machines: Sequence[Machine | None],
    batch_sizes: Sequence[int | None],
    *,
    budget: Budget,
    seed: int = 0,
    on_start: OnStart = lambda what: None,
) -> Advice:
    """The ways for each machine and batch size; None: this machine, the subject's own size."""
    found = [
        _Adviser(subject, machine, budget, seed, on_start).advise(size)
        for machine in machines
        for size in batch_sizes
    ]
    return Advice(name=subject.name, machines=found)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        if not value:
            raise OptionError("machine: name at least one")
        return list(value)
    return [value]


def _loaded(machine: Any) -> Machine | None:
    if machine is None or isinstance(machine, Machine):
        return machine
    return load_machine(machine)


def _batch_sizes(value: Any) -> list[int | None]:
    if value is None:
        return [None]
    sizes = list(value) if isinstance(value, (list, tuple)) else [value]
    for size in sizes:
        if type(size) is not int or size < 1:
            raise OptionError(f"batch_size: must be a whole number of at least 1, got {size!r}")
    if not sizes:
        raise OptionError("batch_size: name at least one")
    return sizes


class _Adviser:
    """Of one machine."""

    def __init__(
        self, subject: Subject, machine: Machine | None, budget: Budget, seed: int, tell: OnStart
    ) -> None:
        self._subject, self._machine, self._budget = subject, machine, budget
        self._seed, self._tell = seed, tell
        self._name = machine.name if machine else "this machine"

    def advise(self, batch_size: int | None) -> MachineAdvice:
        """Captures, plans and compares."""
        self._tell(f"{self._name}: capturing the step")
        step = self._subject.step(self._machine, batch_size)
        ways = self._ways(step)
        rows = ways.rows()
        tried = changed_ways(ways, best(rows))
        error = prediction_error(step.cost_source, launches_ahead=launches_ahead(step.problem))
        against = _against(ways)
        return MachineAdvice(
            machine=step.machine.name if step.machine else self._name,
            batch_size=step.batch_size,
            cost_source=step.cost_source,
            error=error,
            ways=rows,
            verdict=verdict(rows, error, against),
            change=change_sentence(rows, tried, error, against),
            changes=tried,
            assumptions=[SAME_BATCH, *step.assumptions, *_notes(rows, step)],
            placement=ways.plan,
        )

    def _ways(self, step: Step) -> Ways:
        problem = step.problem
        devices = equal_devices(problem)[: step.batch_size]
        ways = Ways(step=step, singles=dict(_singles(problem)))
        with ThreadPoolExecutor(1) as pool:  # captured while a plan is searched for
            several = len(devices) > 1
            replica = pool.submit(self._replica, step, len(devices)) if several else None
            if problem.num_devices > 1:
                self._tell(f"{self._name}: searching for a plan")
                try:
                    ways.plan = self._planned(problem)
                except InfeasibleError as error:
                    ways.why_no_plan = str(error)
            if replica is not None:
                ways.replica, ways.replicas = replica.result(), devices
        if ways.replica is not None:
            ways.group = self._group(step, ways.replica, _groups_of(problem, devices))
        return ways

    def _replica(self, step: Step, count: int) -> Step:
        """The step of one of so many replicas, the one with the largest share of the batch."""
        if step.batch_size is None:
            return scaled_step(step, 1 / count)
        return self._subject.step(step.machine, -(-step.batch_size // count))

    def _group(self, step: Step, replica: Step, groups: Sequence[Sequence[int]]) -> Group | None:
        """A plan within the first of the groups; None if there are none, or it has no plan."""
        if not groups:
            return None
        if step.batch_size is None:
            part: Step | None = scaled_step(step, 1 / len(groups))
        else:
            part = between(replica, step, -(-step.batch_size // len(groups)))
        if part is None:
            return None
        self._tell(f"{self._name}: searching for a plan of a group")
        elsewhere = [device for group in groups[1:] for device in group]
        try:
            problem = _without_devices(part.problem, elsewhere)
            placement = self._planned(problem)
        except InfeasibleError:
            return None
        return Group(step=replace(part, problem=problem), placement=placement, members=groups)

    def _planned(self, problem: Problem) -> NDArray[np.int32]:
        offered = accelerators_first(problem)
        planner = get_planner("auto")
        return planner.plan(offered, budget=self._budget, seed=self._seed).placement


def _without_devices(problem: Problem, devices: Sequence[int]) -> Problem:
    """Ops may no longer run there; raises InfeasibleError if one may run nowhere else."""
    mask = candidate_mask(problem)
    mask[:, list(devices)] = False
    if not mask.any(axis=1).all():
        raise InfeasibleError("an op may run only on the devices that are left out")
    op, device = np.nonzero(mask[problem.units])
    counts = np.bincount(op, minlength=problem.num_ops)
    return problem.replace(
        allowed_given=np.ones(problem.num_ops, np.bool_),
        allowed_ptr=np.concatenate([[0], np.cumsum(counts)]),
        allowed_device=device.astype(np.int32),
        default_device=None,
    )


def _singles(problem: Problem) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Of each kind the device with the shortest step that fits, else the first."""
    for kind in dict.fromkeys(problem.device_kind.tolist()):
        tried = []
        for device in np.flatnonzero(problem.device_kind == kind).tolist():
            placement = on_device(problem, device)
            trace = simulate(problem, placement)
            fits = trace.makespan_ns is not None and trace.feasible
            tried.append(((not fits, trace.makespan_ns or 0, device), placement))
        yield problem.device_kinds[kind], min(tried, key=lambda one: one[0])[1]


def _against(ways: Ways) -> list[Way]:
    """The ways if estimates are as wrong as they may be; [] where costs were measured."""
    steps = [ways.step, ways.replica, ways.group.step if ways.group else None]
    problems = [step.problem for step in steps if step is not None]
    if ways.step.cost_source == MEASURED or any(one.default_device is None for one in problems):
        return []
    return ways.rows(against_the_plan)


def _groups_of(problem: Problem, devices: Sequence[int]) -> list[list[int]]:
    """Equal groups of two or more: the hosts, or the two halves of one; [] where there are none."""
    groups = hosts_of(problem, devices)
    if len(groups) == 1 and len(devices) >= _LEAST_OF_GROUPS and len(devices) % 2 == 0:
        half = len(devices) // 2
        groups = [list(devices[:half]), list(devices[half:])]
    is_even = len({len(group) for group in groups}) == 1
    return groups if len(groups) > 1 and is_even and len(groups[0]) > 1 else []


def _notes(rows: Sequence[Way], step: Step) -> Iterator[str]:
    if any(way.origin == SCALED for way in rows):
        yield (
            "the graph cannot be captured with another batch size: the step with a share of the "
            "batch is scaled, not captured"
        )
    if any(way.origin == INTERPOLATED for way in rows):
        yield "the step of a group is interpolated between two that were captured"
    gradients = find_gradients(step.problem)
    if not gradients.size_bytes:
        yield "no op updates variables, so data parallelism is assumed to exchange nothing"
    elif gradients.note:
        yield gradients.note
    if step.batch_size is None:
        yield "the batch size is not known: name it to see samples per second"
    for way in rows:
        if way.least_ns != way.most_ns and way.least_ns is not None and way.most_ns is not None:
            yield (
                f"{way.name}: from {format_ns(way.least_ns)} to {format_ns(way.most_ns)}, by how "
                "much of the exchange of gradients happens beside the backward pass"
            )
