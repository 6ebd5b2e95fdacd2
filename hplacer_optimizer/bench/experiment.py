"""Runs planners on tasks and keeps every finished cell.

    Task --export, load--> Problem --planner--> placement --simulate--> Cell --> journal

The journal is a file of JSON lines in the output directory, one per finished task and cell. A run
that was stopped goes on from there: what it holds for the same setup is not run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hplacer_optimizer
from hplacer_optimizer._engine import Problem, lower_bound
from hplacer_optimizer.bench.tasks import Task
from hplacer_optimizer.capture.loading import load_problem
from hplacer_optimizer.errors import BenchError, HPlacerError
from hplacer_optimizer.planners import Budget, PlannerEntry, get_planner
from hplacer_optimizer.planners.learning import PRESETS
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.problem_file import load_problem_file, save_problem
from hplacer_optimizer.problem.simulator import simulate

JOURNAL = "journal.jsonl"


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """What is known of a task before any planner has run."""

    task: str
    num_ops: int
    num_units: int
    device_names: tuple[str, ...]
    lower_bound_ns: int | None  # None: no placement is feasible
    lower_bound_term: str  # what binds, or why nothing is feasible
    default_ns: int | None = None  # step time of TensorFlow's own placement; None: not known
    default_fits: bool = True  # into memory


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One planner on one task with one seed."""

    task: str
    planner: str
    seed: int
    step_time_ns: int | None = None  # None: there is no trace, or no placement
    planning_s: float = 0.0
    placements: int = 0  # that the planner scored; 0: it does not say
    missing_bytes: Mapping[str, int] = field(default_factory=dict)
    """By device: what its memory lacks. The placement is infeasible if there are any."""
    notes: Sequence[str] = ()  # what the planner said of its answer, e.g. a limit that it hit
    error: str = ""
    """Why there is no placement, e.g. that a library is missing and how to get it."""

    @property
    def feasible(self) -> bool:
        """The step runs within memory."""
        return self.step_time_ns is not None and not self.missing_bytes and not self.error


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is run: every planner on every task with every seed."""

    tasks: Sequence[Task]
    planners: Sequence[str]
    seeds: Sequence[int] = (0,)
    budget_s: float | None = None
    placements: int | None = None
    """Scored placements of each planner that learns, in place of its budget."""

    @property
    def num_cells(self) -> int:
        """How many there are in all."""
        return len(self.tasks) * len(self.planners) * len(self.seeds)


@dataclass(kw_only=True)
class Results:
    """What has been found so far."""

    facts: dict[str, TaskFacts] = field(default_factory=dict)  # by task
    cells: dict[tuple[str, str, int], Cell] = field(default_factory=dict)

    def add(self, record: TaskFacts | Cell) -> None:
        """Takes the facts of a task, or a cell."""
        if isinstance(record, TaskFacts):
            self.facts[record.task] = record
        else:
            self.cells[record.task, record.planner, record.seed] = record


def run(
    experiment: Experiment,
    directory: Path,
    results: Results,
    *,
    resume: bool = False,
    on_start: Callable[[str], None] = lambda what: None,
    on_cell: Callable[[Cell], None] = lambda cell: None,
) -> None:
    """Runs what the journal in `directory` does not hold yet, and fills `results` on the way.

    `on_start` is told what begins, `on_cell` every cell, also those that were read. Raises
    BenchError if `directory` holds an earlier run and `resume` is not set, or if a graph cannot be
    built. A planner that fails is a cell with an error.
    """
    directory.mkdir(parents=True, exist_ok=True)
    journal = _Journal(directory / JOURNAL, experiment, results, resume)
    for cell in results.cells.values():
        on_cell(cell)
    waiting = [
        (task, missing)
        for task in experiment.tasks
        if (missing := _missing(experiment, task, results))
    ]
    with contextlib.closing(_prepared(waiting, directory, on_start)) as prepared:
        for (task, missing), problem in zip(waiting, prepared, strict=True):
            if task.name not in results.facts:
                journal.add(_facts(task, problem))
            for planner, seed in missing:
                on_start(f"{task.title}: {planner}")
                cell = run_cell(problem, task.name, planner, seed, experiment)
                journal.add(cell)
                on_cell(cell)


def run_cell(problem: Problem, task: str, planner: str, seed: int, experiment: Experiment) -> Cell:
    """Plans and scores; a planner that cannot plan is a cell that says why."""
    start_s = time.perf_counter()
    try:
        entry = get_planner(planner)
        found = entry.plan(problem, budget=_budget(entry, experiment), seed=seed)
        planning_s = time.perf_counter() - start_s
        check_constraints(problem, found.placement)
    except HPlacerError as error:
        return Cell(task=task, planner=planner, seed=seed, error=str(error))
    trace = simulate(problem, found.placement)
    missing = np.asarray(trace.peak_bytes) - problem.device_memory_bytes
    return Cell(
        task=task,
        planner=planner,
        seed=seed,
        step_time_ns=trace.makespan_ns,
        planning_s=round(planning_s, 3),
        placements=found.placements,
        missing_bytes={
            problem.device_names[device]: int(missing[device])
            for device in np.flatnonzero(missing > 0)
        },
        notes=list(found.notes),
        error="" if trace.has_trace else "; ".join(trace.infeasible_because),
    )


def _budget(planner: PlannerEntry, experiment: Experiment) -> Budget | None:
    if experiment.placements is not None and planner.learns:
        settings = PRESETS[planner.preset or "default"]
        return Budget(steps=max(1, experiment.placements // settings.batch))
    return None if experiment.budget_s is None else Budget(seconds=experiment.budget_s)


def _missing(experiment: Experiment, task: Task, results: Results) -> list[tuple[str, int]]:
    return [
        (planner, seed)
        for planner in experiment.planners
        for seed in experiment.seeds
        if (task.name, planner, seed) not in results.cells
    ]


def _facts(task: Task, problem: Problem) -> TaskFacts:
    bound, default = lower_bound(problem), Baseline.of(problem)
    return TaskFacts(
        task=task.name,
        num_ops=problem.num_ops,
        num_units=problem.num_units,
        device_names=tuple(problem.device_names),
        lower_bound_ns=bound.ns,
        lower_bound_term=bound.term or "; ".join(bound.infeasible_because),
        default_ns=default.step_time_ns if default else None,
        default_fits=default is None or default.feasible,
    )


# ---- problems ----


def _prepared(
    waiting: Sequence[tuple[Task, Any]], directory: Path, on_start: Callable[[str], None]
) -> Generator[Problem]:
    """The problems of the tasks in order; the next graph is built while planners run."""
    with ThreadPoolExecutor(max_workers=1) as builder:
        futures = [builder.submit(prepare, task, directory) for task, _ in waiting]
        try:
            for (task, _), future in zip(waiting, futures, strict=True):
                if not future.done():
                    on_start(f"{task.title}: building the graph")
                yield future.result()
        finally:
            builder.shutdown(wait=False, cancel_futures=True)


def prepare(task: Task, directory: Path) -> Problem:
    """The task's problem; kept as a problem file in `directory`, since building takes a while.

    Raises BenchError if the workload does not build, and what `load_problem` raises.
    """
    path = directory / f"{task.name}-{_digest(task)}.hplacer.json.gz"
    if path.exists():
        return load_problem_file(path)
    graph = directory / f"{task.name}.{os.getpid()}.meta"
    command = [sys.executable, "-m", "hplacer_optimizer.workloads.graphs", task.workload]
    command += [f"{name}={value}" for name, value in task.parameters.items()]
    command += ["-o", str(graph)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=_search_path())
        if done.returncode != 0:
            reason = "\n".join(done.stderr.strip().splitlines()[-3:])
            raise BenchError(f"{task.name}: the graph of {task.workload} was not built: {reason}")
        problem = load_problem(graph, machine=task.machine, targets=["train_op"])
    finally:
        graph.unlink(missing_ok=True)
    save_problem(problem, path)
    return problem


def _digest(task: Task) -> str:
    setup = [
        hplacer_optimizer.__version__,
        task.workload,
        sorted(task.parameters.items()),
        task.machine,
    ]
    return hashlib.sha256(repr(setup).encode()).hexdigest()[:8]


def _search_path() -> dict[str, str]:
    """A child finds the packages that this process finds."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


# ---- the journal ----


class _Journal:
    """Appends records to a file; reads those of an earlier run with the same setup."""

    def __init__(self, path: Path, experiment: Experiment, results: Results, resume: bool) -> None:
        self._path = path
        self._setups = {task.name: self._setup(task, experiment) for task in experiment.tasks}
        self._results = results
        if path.exists():
            if not resume:
                raise BenchError(
                    f"{path.parent} holds an earlier run: continue it with --resume, or choose "
                    "another directory with --output"
                )
            for record in self._read():
                self._results.add(record)
            if not path.read_bytes().endswith(b"\n"):  # the run was killed while it wrote
                with path.open("a") as file:
                    file.write("\n")

    @staticmethod
    def _setup(task: Task, experiment: Experiment) -> str:
        limits = f"budget {experiment.budget_s} placements {experiment.placements}"
        return f"{_digest(task)} {limits}"

    def add(self, record: TaskFacts | Cell) -> None:
        self._results.add(record)
        kind = "task" if isinstance(record, TaskFacts) else "cell"
        line = {"kind": kind, "setup": self._setups[record.task], **asdict(record)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> Iterable[TaskFacts | Cell]:
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                fields = json.loads(line)
            except ValueError:
                continue  # the run was killed while it wrote
            kind, setup = fields.pop("kind"), fields.pop("setup")
            if self._setups.get(fields["task"]) != setup:
                continue
            if kind == "task":
                fields["device_names"] = tuple(fields["device_names"])
                yield TaskFacts(**fields)
            else:
                yield Cell(**fields)
