"""Makes a Plan of a captured step: the one place that composes problem, planner and checks.

    captured step + machine --> Problem --planner--> placement --simulate, validate--> Plan

The pass plans through it in a training process, `hplacer pretrain` outside of one.
"""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import socket
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.capture.captured import Captured, build_problem
from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.errors import OptionError, PlannerUnavailableError
from hplacer_optimizer.machines import Machine, full_device_name, machine_to_yaml
from hplacer_optimizer.measuring import MeasuredReward
from hplacer_optimizer.measuring.local_search import search as measured_search
from hplacer_optimizer.measuring.planning import Measuring, best_measured
from hplacer_optimizer.planners import (
    Budget,
    Progress,
    ProgressCallback,
    Proof,
    collect_notes,
    collect_proofs,
    get_planner,
    strongest,
)
from hplacer_optimizer.planners.learning import LEARNED_PLANNERS, Learned, learn
from hplacer_optimizer.planners.learning.scoring import best_single_device
from hplacer_optimizer.planners.notes import add_note
from hplacer_optimizer.plans.plan import CURVE_POINT, Plan
from hplacer_optimizer.plans.planned_problem import PackedProblem
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.files import check_placement
from hplacer_optimizer.problem.simulator import simulate

_CURVE_POINTS = 1000
_LEARNING = {"preset": "default", "checkpoint": None, "resume": False, "logdir": None}
_LIMITS = ("seconds", "steps", "patience")
_SEARCHES = ("auto", "local_search")  # those by simulation that have a measured form


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a placement is looked for."""

    planner: str
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    cost_table: str | None = None
    """File of measured op costs; None: all costs are estimated."""
    preset: str = "default"
    """Hyperparameters of a planner that learns, by name; so are the following for these only."""
    checkpoint: str | None = None
    """Directory that keeps what was learned."""
    resume: bool = False
    """Goes on from the checkpoint."""
    logdir: str | None = None
    """Directory of TensorBoard's event files."""
    measuring: Measuring | None = None
    """Scores placements by measured step time; None: by the simulator."""

    def __post_init__(self) -> None:
        """Raises OptionError for what the planner cannot do."""
        if self.measuring and self.planner not in (*LEARNED_PLANNERS, *_SEARCHES):
            raise OptionError(
                f"reward: the planner '{self.planner}' does not measure; those that do are "
                + ", ".join((*LEARNED_PLANNERS, *_SEARCHES))
            )
        if self.planner not in LEARNED_PLANNERS:
            for name, default in _LEARNING.items():
                if getattr(self, name) != default:
                    raise OptionError(
                        f"{name}: the planner '{self.planner}' does not learn; leave it out"
                    )


def make_plan(
    captured: Captured,
    machine: Machine,
    search: Search,
    *,
    step: RunnableStep | None = None,
    on_progress: ProgressCallback | None = None,
) -> tuple[Plan, StepTrace]:
    """Plans a step on the machine that it was captured for.

    To measure placements it takes the `step` that was kept with the capture.

    Returns the plan, which may be infeasible, and its simulated step. The plan's `budget` holds the
    limits and what was done: a search that ended by its seconds is repeated by its `steps_done`.

    Raises:
        OptionError: there is no such planner.
        InfeasibleError: an op has no device at all, or no measured placement ran.
        PlanError: the planner's placement is not allowed.
        CostTableError: the cost table is malformed.
    """
    started = time.monotonic()
    machine = _with_full_names(machine)
    problem, measured = build_problem(captured, machine, cost_table=search.cost_table)
    found = _search(problem, search, step, on_progress)
    placement = check_placement(problem, found.placement)
    trace = simulate(problem, placement)
    check_constraints(problem, placement)
    bound = strongest(problem, found.proofs)
    limits = {name: getattr(search.budget, name) for name in _LIMITS}
    plan = Plan(
        fingerprint=captured.fingerprint,
        fingerprint_parts=dict(captured.fingerprint_parts),
        label=captured.label,
        planner=search.planner,
        planner_notes=found.notes,
        planner_options=_planner_options(search, found),
        seed=search.seed,
        budget={
            **{name: limit for name, limit in limits.items() if limit is not None},
            "steps_done": found.progress.steps,
            "placements_scored": found.progress.placements,
        },
        step_time_ns=trace.makespan_ns,
        lower_bound_ns=bound.ns,
        lower_bound_term=bound.term,
        feasible=trace.feasible or found.measured is not None,
        peak_bytes=[int(peak) for peak in trace.peak_bytes],
        device_names=list(machine.device_names),
        device_kinds=[machine.kinds[kind].name for kind in machine.device_kind],
        machine=machine_to_yaml(machine),
        num_ops=problem.num_ops,
        num_units=problem.num_units,
        planning_s=time.monotonic() - started,
        learning_curve=[_curve_point(point) for point in found.curve],
        cost_source=measured.cost_source if measured else "analytic",
        assumptions=[
            *captured.assumptions,
            *machine.assumptions,
            *([measured.sentence] if measured else []),
        ],
        versions=_versions(captured),
        created=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        host=socket.gethostname(),
        node_names=captured.node_names,
        node_hashes=captured.node_hashes,
        node_devices=placement[captured.node_op],
        packed_problem=PackedProblem.of(problem, placement, captured.node_op),
    )
    return plan, trace


def _planner_options(search: Search, found: _Found) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if search.planner in LEARNED_PLANNERS:
        options["preset"] = search.preset
    if found.measured is not None:
        options["measured"] = found.measured
    return options


def _with_full_names(machine: Machine) -> Machine:
    return replace(
        machine,
        devices=tuple(replace(d, name=full_device_name(d.name)) for d in machine.devices),
        links=tuple(
            replace(link, src=full_device_name(link.src), dst=full_device_name(link.dst))
            for link in machine.links
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Found:
    placement: NDArray[np.int32]
    notes: list[str]
    proofs: list[Proof]
    progress: Progress  # the last that the planner told
    curve: list[Progress]
    measured: dict[str, Any] | None  # of the placement


def _search(
    problem: Problem,
    search: Search,
    step: RunnableStep | None,
    on_progress: ProgressCallback | None,
) -> _Found:
    last = Progress(steps=0, best_ns=None)
    curve = _Curve()

    def watch(progress: Progress) -> None:
        nonlocal last
        last = progress
        curve.add(progress)
        if on_progress is not None:
            on_progress(progress)

    with collect_notes() as notes, collect_proofs() as proofs:
        if search.measuring is None:
            placement, measured = _placement(problem, search, watch), None
        elif step is None:
            raise OptionError("reward: only the graph of a file can be measured, give its path")
        else:
            propose = functools.partial(_propose, problem, search, watch)
            placement, measured = best_measured(problem, step, search.measuring, propose)
    return _Found(
        placement=placement,
        notes=notes,
        proofs=proofs,
        progress=last,
        curve=curve.points,
        measured=measured,
    )


def _placement(problem: Problem, search: Search, watch: ProgressCallback) -> NDArray[np.int32]:
    if search.planner in LEARNED_PLANNERS:
        return _learned(problem, search, search.budget, watch).placement
    planner = get_planner(search.planner)
    return planner(problem, budget=search.budget, seed=search.seed, on_progress=watch)


def _learned(
    problem: Problem,
    search: Search,
    budget: Budget,
    watch: ProgressCallback,
    reward: MeasuredReward | None = None,
) -> Learned:
    return learn(
        problem,
        model=search.planner,
        preset=search.preset,
        budget=budget,
        seed=search.seed,
        reward=reward,
        parallel=reward.parallel if reward else 1,
        checkpoint=search.checkpoint,
        resume=search.resume,
        logdir=search.logdir,
        on_progress=watch,
    )


def _propose(
    problem: Problem, search: Search, watch: ProgressCallback, reward: MeasuredReward
) -> None:
    """Has the planner measure placements."""
    begin_s = time.monotonic()
    if search.planner not in LEARNED_PLANNERS:
        planner = get_planner(search.planner)
        measured_search(
            problem, reward, planner, budget=search.budget, seed=search.seed, on_progress=watch
        )
        return
    reward(best_single_device(problem))

    def tell(progress: Progress) -> None:
        watch(replace(progress, best_ns=reward.best_ns))

    try:
        found = _learned(problem, search, search.budget.left(begin_s), tell, reward)
    except PlannerUnavailableError as error:
        if reward.best is None:
            raise
        add_note(f"{search.planner}: {error}")
    else:
        if search.resume:
            reward(found.placement)  # of an earlier run


def _curve_point(progress: Progress) -> dict[str, Any]:
    """The part of it that a plan holds."""
    return {name: getattr(progress, name) for name in CURVE_POINT}


class _Curve:
    """At most _CURVE_POINTS of what a planner told, evenly spread."""

    def __init__(self) -> None:
        self.points: list[Progress] = []
        self._every = 1
        self._told = 0

    def add(self, progress: Progress) -> None:
        if self._told % self._every == 0:
            self.points.append(progress)
        self._told += 1
        if len(self.points) > _CURVE_POINTS:
            self._every *= 2
            self.points = self.points[::2]


def _versions(captured: Captured) -> dict[str, Any]:
    try:
        own = importlib.metadata.version("hplacer-optimizer")
    except importlib.metadata.PackageNotFoundError:
        own = "0+unknown"
    tensorflow = dict(captured.fingerprint_parts)["format"].rpartition("tensorflow-")[2]
    return {"hplacer": own, "tensorflow": tensorflow, "python": platform.python_version()}
