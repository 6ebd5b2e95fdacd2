"""A pretraining job: a graph and a machine, a planner with its budget, and the plan's way to disk.

GraphSpec --load--> captured step, machine --make_plan--> Plan --keep--> plan store
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from hplacer_optimizer.capture.captured import CapturedGraph
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.capture.sources import is_problem_file
from hplacer_optimizer.errors import GraphError, HPlacerError, InfeasibleError, OptionError
from hplacer_optimizer.machines import Machine, load_machine
from hplacer_optimizer.options import Options
from hplacer_optimizer.planners import ProgressCallback
from hplacer_optimizer.plans.making import Search, make_plan
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.scripts.step_capture import capture_script


@dataclass(frozen=True, kw_only=True)
class GraphSpec:
    """Which training step, on which machine: either a file or a script to capture."""

    path: str = ""
    script: tuple[str, ...] = ()
    machine: str | None = None
    targets: tuple[str, ...] = ()
    signature: str | None = None
    batch_size: int | None = None
    loop_trip_count: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    allow_soft_placement: bool | None = None
    capture_timeout_s: float = 600.0
    in_place: bool = False
    """Whether the script runs in the working directory, and not in a copy."""
    keep_graph: bool = False
    """To measure the step."""

    @property
    def name(self) -> str:
        """For people."""
        return " ".join(self.script) or self.path


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to plan and how."""

    graph: GraphSpec
    search: Search

    @property
    def title(self) -> str:
        """As "model.meta on 1cpu-2xk40: etf, seed 0"."""
        machine = f" on {self.graph.machine}" if self.graph.machine else ""
        return f"{self.graph.name}{machine}: {self.search.planner}, seed {self.search.seed}"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A step, ready to be planned; `options` are those that a captured script set."""

    captured: CapturedGraph
    machine: Machine
    options: Options
    step: RunnableStep | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a job: a plan or an error."""

    job: Job
    plan: Plan | None = None
    path: str | None = None  # of the plan in the store
    stored: bool = False  # False with a plan: one as good was there
    error: str | None = None


def load(spec: GraphSpec) -> Loaded:
    """Captures the step, in a process of its own.

    Raises GraphError, MachineError or OSError, which name the file and what is wrong.
    """
    if spec.script:
        if spec.keep_graph:
            raise OptionError("reward: a script's graph cannot be measured; give the graph's file")
        machine = load_machine(spec.machine) if spec.machine else None
        captured, found, options = capture_script(
            spec.script,
            machine=machine,
            timeout_s=spec.capture_timeout_s,
            in_place=spec.in_place,
        )
        return Loaded(captured=captured, machine=found, options=options)
    if is_problem_file(spec.path):
        raise GraphError(
            f"{spec.path}: a problem file has no fingerprint, by which a script finds its plan; "
            "give the graph that it was exported from"
        )
    loaded = load_graph(
        spec.path,
        machine=spec.machine,
        targets=spec.targets or None,
        signature=spec.signature,
        batch_size=spec.batch_size,
        loop_trip_count=spec.loop_trip_count,
        shapes=dict(spec.shapes),
        allow_soft_placement=spec.allow_soft_placement,
        keep_graph=spec.keep_graph,
    )
    return Loaded(
        captured=loaded.captured, machine=loaded.machine, options=Options(), step=loaded.step
    )


def plan_job(loaded: Loaded, search: Search, on_progress: ProgressCallback | None = None) -> Plan:
    """The plan of a loaded step; raises InfeasibleError where no placement that fits was found."""
    if search.cost_table is None and loaded.options.cost_table is not None:
        search = replace(search, cost_table=loaded.options.cost_table)
    if loaded.options.host_offload:
        search = replace(search, host_offload=True)
    plan, trace = make_plan(
        loaded.captured, loaded.machine, search, step=loaded.step, on_progress=on_progress
    )
    if not plan.feasible:
        reasons = "; ".join(trace.infeasible_because)
        raise InfeasibleError(
            f"{loaded.captured.label}: no placement was found that fits: {reasons}"
        )
    return plan


def load_to_keep(spec: GraphSpec, store: PlanStore | None) -> Loaded:
    """As `load`. Raises StoreError if `keep` could not store a plan, before a long search."""
    loaded = load(spec)
    _store_of(loaded, store).check_usable()
    return loaded


def _store_of(loaded: Loaded, store: PlanStore | None) -> PlanStore:
    """Where the script looks for its plan: `store`, else the script's own."""
    return store or PlanStore.from_options(loaded.options)


def keep(job: Job, plan: Plan, loaded: Loaded, store: PlanStore | None) -> Outcome:
    """Stores the plan where the script looks for it: in `store`, else in the script's own."""
    chosen = _store_of(loaded, store)
    stored = chosen.put(plan)
    return Outcome(job=job, plan=plan, path=chosen.path(plan.fingerprint), stored=stored)


def failure(job: Job, error: BaseException) -> Outcome:
    """The outcome of a job that ended with an error."""
    return Outcome(job=job, error=error_text(error))


def error_text(error: BaseException) -> str:
    """In one line; what is no error of this package with its type."""
    known = isinstance(error, (HPlacerError, OSError))
    return " ".join((str(error) if known else repr(error)).split())


def run_serially(
    jobs: Sequence[Job],
    store: PlanStore | None,
    *,
    stop: threading.Event,
    watched: Callable[[], AbstractContextManager[None]],
    on_start: Callable[[Job], None],
    on_progress: ProgressCallback,
) -> Iterator[Outcome]:
    """One job after the other; a job's failure does not end the others, but `stop` does.

    Jobs of one graph that follow each other capture it once. A search runs inside `watched()`.
    """
    spec: GraphSpec | None = None
    loaded: Loaded | None = None
    for job in jobs:
        if stop.is_set():
            return
        on_start(job)
        try:
            if loaded is None or job.graph != spec:
                loaded = None
                loaded, spec = load_to_keep(job.graph, store), job.graph
            with watched():
                search = with_stop(job.search, stop)
                outcome = keep(job, plan_job(loaded, search, on_progress), loaded, store)
        except Exception as error:  # a planner may raise anything
            outcome = failure(job, error)
        yield outcome


def with_stop(search: Search, stop: threading.Event) -> Search:
    """The same search, which ends when `stop` is set."""
    return replace(search, budget=replace(search.budget, stop=stop))


def slug(job: Job, *, whole_path: bool = False) -> str:
    """A file name that tells one job of a list from others, whose graphs have other names."""
    path = Path(job.graph.script[0] if job.graph.script else os.path.normpath(job.graph.path))
    directories = path.parent.relative_to(path.anchor).parts if whole_path else ()
    graph = "_".join([*directories, path.stem])
    machine = Path(job.graph.machine).stem if job.graph.machine else "here"
    planner = job.search.planner.replace("/", "_").replace(":", "_")
    return f"{graph}-{machine}-{planner}-{job.search.seed}"
