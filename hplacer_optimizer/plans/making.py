"""Makes a Plan of a captured step: the one place that composes problem, planner and checks.

    captured step + machine --> Problem --planner--> placement --simulate, validate--> Plan

The pass plans through it in a training process, `hplacer pretrain` outside of one.
"""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem, StepTrace, lower_bound
from hplacer_optimizer.capture.captured import Captured, build_problem
from hplacer_optimizer.capture.loading import LoadedGraph, load
from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.costs.table import CostSummary, CostTable
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.machines import Machine, full_device_name, machine_to_yaml
from hplacer_optimizer.measuring.planning import Measuring, plan_by_measuring
from hplacer_optimizer.planners import (
    PLANNERS,
    Budget,
    PlannerEntry,
    PlannerResult,
    ProgressCallback,
    get_planner,
    is_own,
)
from hplacer_optimizer.planners.host_offload import accelerators_first
from hplacer_optimizer.planners.isolation import isolated
from hplacer_optimizer.planners.result import Watch
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.plan_format import CURVE_POINT
from hplacer_optimizer.plans.planned_problem import PackedProblem, fields_without_graph
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.cost_errors import step_spread_ns, typical_errors
from hplacer_optimizer.problem.cost_sources import ANALYTIC, GIVEN
from hplacer_optimizer.problem.prediction_error import prediction_error_of
from hplacer_optimizer.problem.problem_file import check_placement
from hplacer_optimizer.problem.simulator import SIMULATOR_VERSION, simulate
from hplacer_optimizer.support.installed import own_version
from hplacer_optimizer.support.keywords import checks_keywords

# Fields of `Search` that are keywords of a planner's, each with the ability that it needs.
_LEARNING = {"preset": "learns", "checkpoint": "resumes", "resume": "resumes", "logdir": "logs"}
_LIMITS = ("seconds", "steps", "patience")


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a placement is looked for."""

    planner: str
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    cost_table: CostTable | str | os.PathLike[str] | None = None
    """Measured op costs, or their file; None: all costs are estimated."""
    preset: str = "default"
    """Hyperparameters of a planner that learns, by name; so are the following for these only."""
    checkpoint: str | None = None
    """Directory that keeps what was learned."""
    resume: bool = False
    """Goes on from the checkpoint."""
    logdir: str | None = None
    """Directory of TensorBoard's event files."""
    isolated: bool = False
    """One's own planner runs in a process of its own, which `Budget.stop` ends."""
    host_offload: bool = False
    """The host's CPU is offered for what can run on an accelerator, too."""
    measuring: Measuring | None = None
    """Scores placements by measured step time; None: by the simulator."""

    def __post_init__(self) -> None:
        """Raises OptionError for an unknown planner, and for what it cannot do."""
        planner = self.entry
        if self.measuring and not planner.measures:
            able = ", ".join(name for name, entry in PLANNERS.items() if entry.measures)
            raise OptionError(
                f"reward: the planner '{self.planner}' does not measure; those that do are {able}"
            )
        for name, ability in _LEARNING.items():
            if getattr(self, name) != getattr(Search, name) and not getattr(planner, ability):
                raise OptionError(
                    f"{name}: the planner '{self.planner}' does not learn; leave it out, or choose "
                    "one that does, such as hierarchical"
                )

    @property
    def entry(self) -> PlannerEntry:
        """The planner."""
        if self.isolated and is_own(self.planner):
            return PlannerEntry(plan=isolated(self.planner), uses_host=True)
        return get_planner(self.planner)

    @property
    def options(self) -> dict[str, Any]:
        """The further keywords of the planner."""
        entry = self.entry
        if not entry.learns:
            return {}
        options = {name: getattr(self, name) for name in _LEARNING}
        return options | {"preset": entry.preset or self.preset}


@checks_keywords
def plan(
    graph: object,
    planner: str = "auto",
    machine: Machine | str | os.PathLike[str] | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
    *,
    steps: int | None = None,
    patience: int | None = None,
    stop: threading.Event | None = None,
    preset: str = Search.preset,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    logdir: str | os.PathLike[str] | None = None,
    host_offload: bool = Search.host_offload,
    targets: Sequence[object] | None = None,
    signature: str | None = None,
    batch_size: int | None = None,
    loop_trip_count: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    cost_table: CostTable | str | os.PathLike[str] | None = None,
    allow_soft_placement: bool | None = None,
) -> Plan:
    """Plans which device runs each op of a training step.

    A training script finds the plan of a graph, once a `PlanStore` has it. The plan of a Problem or
    a problem file has no fingerprint: you can look at it and compare it, but no script finds it.

    Args:
        graph: what `load_problem` takes, or a Problem.
        planner: by name, or one's own as "package.module:function".
        machine: a Machine, a shipped one's name or a YAML file; None: this machine.
        budget_s: seconds that the planner may search; None: its own default, unless `steps` or
            `patience` limit it.
        seed: of every random choice.
        on_progress: called with a `Progress` now and then.
        steps: ends the search after so many steps of the planner, with the same plan every time.
        patience: ends it after so many steps without a better placement.
        stop: ends it, with the best placement so far, as soon as somebody sets it.
        preset: hyperparameters of a planner that learns, "default", "paper" or "paper_tables".
        checkpoint: directory where it keeps what it learned.
        resume: goes on from the checkpoint.
        logdir: directory of its TensorBoard event files.
        host_offload: offers the host's CPU for what can run on an accelerator, also where its
            cost is estimated.
        targets: op names (or ops) of the training step in a session's graph; None: found
            automatically.
        signature: of a SavedModel or a MetaGraphDef; None: a SavedModel's default or only one.
        batch_size: for unknown batch dimensions; None: the largest static one, else 32.
        loop_trip_count: for while loops without a constant bound; None: 10.
        shapes: of fed tensors, by the name of their placeholder or argument.
        cost_table: measured costs, which replace the estimates of the ops that it has.
        allow_soft_placement: whether TensorFlow may replace devices that the graph asks for and
            the machine lacks; None: yes in a function and no in a session.

    Returns:
        The plan. Where no placement that fits was found, `plan.feasible` is False.

    Raises:
        OptionError: an unknown planner, a wrong limit, or what this planner cannot do.
        GraphError, ProblemError, MachineError, CostTableError, OSError: as `load_problem`.
        InfeasibleError: an op has no device at all.
        PlannerUnavailableError: the planner needs a package or a program that is not there.
        PlanError: one's own planner placed an op where it may not run.

    Example:
        >>> import hplacer_optimizer as hp
        >>> plan = hp.plan("example")  # or a graph and a machine
        >>> plan.step_time_ns, plan.placement.tolist()
        (438000, [0, 1, 1, 1, 2, 2, 2, 2, 2])
    """
    search = Search(
        planner=planner,
        seed=seed,
        budget=Budget(seconds=budget_s, steps=steps, patience=patience, stop=stop),
        preset=preset,
        checkpoint=None if checkpoint is None else os.fspath(checkpoint),
        resume=resume,
        logdir=None if logdir is None else os.fspath(logdir),
        host_offload=host_offload,
        cost_table=cost_table,
    )
    options = {
        "machine": machine,
        "targets": targets,
        "signature": signature,
        "batch_size": batch_size,
        "loop_trip_count": loop_trip_count,
        "shapes": shapes,
        "allow_soft_placement": allow_soft_placement,
    }
    made, _ = plan_loaded(load(graph, **options), search, on_progress=on_progress)
    return made


def plan_loaded(
    loaded: LoadedGraph | Problem,
    search: Search,
    *,
    on_progress: ProgressCallback | None = None,
) -> tuple[Plan, StepTrace]:
    """Plans what `load` returned, as `make_plan` or `plan_problem`."""
    if isinstance(loaded, Problem):
        return plan_problem(loaded, search, on_progress=on_progress)
    return make_plan(
        loaded.captured, loaded.machine, search, step=loaded.step, on_progress=on_progress
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
    problem, costs = build_problem(captured, machine, cost_table=search.cost_table)
    offered = problem
    if not (search.host_offload or search.entry.uses_host or search.measuring):
        offered = accelerators_first(problem, costs.is_measured if costs else None)
    source = costs.cost_source if costs else ANALYTIC
    solved = _solve(problem, search, step, on_progress, offered, cost_source=source)
    plan = Plan(
        **solved.fields,
        **_facts(captured, machine, costs),
        fingerprint=captured.fingerprint,
        fingerprint_parts=dict(captured.fingerprint_parts),
        label=captured.label,
        device_names=list(machine.device_names),
        planning_s=time.monotonic() - started,
        **placed_nodes(captured, problem, solved.placement),
    )
    return plan, solved.trace


def placed_nodes(
    captured: Captured, problem: Problem, placement: NDArray[np.int32]
) -> dict[str, Any]:
    """What a plan holds of the nodes of a captured step, and of its problem under a placement."""
    return {
        "node_names": captured.node_names,
        "node_hashes": captured.node_hashes,
        "node_ranks": captured.node_ranks,
        "structure": captured.structure,
        "node_devices": placement[captured.node_op],
        "packed_problem": PackedProblem.of(problem, placement, captured.node_op),
    }


def _facts(captured: Captured, machine: Machine, costs: CostSummary | None) -> dict[str, Any]:
    """What a plan tells of where its predictions come from."""
    return {
        "device_kinds": [machine.kinds[kind].name for kind in machine.device_kind],
        "machine": machine_to_yaml(machine),
        "cost_source": costs.cost_source if costs else ANALYTIC,
        "assumptions": [
            *captured.assumptions,
            *machine.assumptions,
            *([costs.sentence] if costs else []),
        ],
        "versions": _versions(dict(captured.fingerprint_parts)["format"]),
    }


def _simulated(
    problem: Problem, trace: StepTrace, *, measured: bool, cost_source: str
) -> dict[str, Any]:
    """What a plan tells of its simulated step, and of that of TensorFlow's own placement."""
    return {
        "step_time_ns": trace.makespan_ns,
        "step_spread_ns": step_spread_ns(problem, trace.placement, typical_errors(cost_source)),
        "simulator_version": SIMULATOR_VERSION,
        "feasible": trace.feasible or measured,
        "peak_bytes": [int(peak) for peak in trace.peak_bytes],
        "baseline": Baseline.of(problem),
        "prediction_error": prediction_error_of(problem, trace.placement, cost_source),
        "num_ops": problem.num_ops,
        "num_units": problem.num_units,
    }


def plan_problem(
    problem: Problem, search: Search, *, on_progress: ProgressCallback | None = None
) -> tuple[Plan, StepTrace]:
    """Plans a problem that comes from no graph, such as one of a file; as `make_plan`.

    Its plan has no fingerprint, so that no training script finds it, and a node for each op.
    """
    if search.cost_table is not None:
        raise OptionError("cost_table: a problem has its own costs; leave it out")
    started = time.monotonic()
    solved = _solve(problem, search, None, on_progress, cost_source=GIVEN)
    plan = Plan(
        **solved.fields,
        **fields_without_graph(problem, solved.placement),
        label=problem.name,
        device_names=list(problem.device_names),
        device_kinds=[problem.device_kinds[kind] for kind in problem.device_kind],
        planning_s=time.monotonic() - started,
        cost_source=GIVEN,
        assumptions=[],
        versions=_versions(""),
    )
    return plan, solved.trace


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
class _Solved:
    placement: NDArray[np.int32]
    trace: StepTrace
    fields: dict[str, Any]  # of the plan


def _solve(
    problem: Problem,
    search: Search,
    step: RunnableStep | None,
    on_progress: ProgressCallback | None,
    offered: Problem | None = None,
    *,
    cost_source: str,
) -> _Solved:
    """Has the planner look for a placement, and checks and simulates what it found.

    The planner gets `offered`, with fewer devices for some ops; None: the problem.
    """
    offered, measured = problem if offered is None else offered, None
    if search.measuring is None:
        found = search.entry.plan(
            offered,
            budget=search.budget,
            seed=search.seed,
            on_progress=on_progress,
            **search.options,
        )
    else:
        found, measured = _measured(offered, search, step, on_progress, cost_source)
    placement = check_placement(problem, found.placement)
    trace = simulate(problem, placement)
    check_constraints(problem, placement)
    bound = lower_bound(problem)
    limits = {name: getattr(search.budget, name) for name in _LIMITS}
    preset = {"preset": search.options["preset"]} if search.entry.learns else {}
    fields = {
        "planner": search.planner,
        "planner_notes": list(found.notes),
        "planner_options": preset | ({} if measured is None else {"measured": measured}),
        "seed": search.seed,
        "budget": {
            **{name: limit for name, limit in limits.items() if limit is not None},
            "steps_done": found.steps,
            "placements_scored": found.placements,
        },
        "lower_bound_ns": bound.ns,
        "lower_bound_term": bound.term,
        **_simulated(problem, trace, measured=measured is not None, cost_source=cost_source),
        "learning_curve": [
            {name: getattr(progress, name) for name in CURVE_POINT} for progress in found.curve
        ],
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "host": socket.gethostname(),
    }
    return _Solved(placement=placement, trace=trace, fields=fields)


def _measured(
    problem: Problem,
    search: Search,
    step: RunnableStep | None,
    on_progress: ProgressCallback | None,
    cost_source: str,
) -> tuple[PlannerResult, dict[str, Any]]:
    """The result of a search that measures placements, and what is to be told of measuring."""
    assert search.measuring is not None
    if step is None:
        raise OptionError("reward: only the graph of a file can be measured, give its path")
    return plan_by_measuring(
        problem,
        search.entry,
        step,
        search.measuring,
        budget=search.budget,
        seed=search.seed,
        options=search.options,
        errors=typical_errors(cost_source),
        watch=Watch(on_progress),
    )


def _versions(format_part: str) -> dict[str, str]:
    """`format_part` of a fingerprint names the TensorFlow that it is for."""
    tensorflow = format_part.rpartition("tensorflow-")[2]
    versions = {
        "hplacer": own_version(),
        "tensorflow": tensorflow,
        "python": platform.python_version(),
    }
    return {name: version for name, version in versions.items() if version}
