"""What is advised about: a training step, on any machine and at any batch size.

workload     built again with another batch size
graph        captured with other shapes of what is fed, where their batch dimension is open
script       the same with the graph of its training step
problem      scaled, as is a graph whose batch dimension is fixed

A step between two that were captured is interpolated.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture.loading import LoadedGraph, load, load_graph
from hplacer_optimizer.capture.sources import is_problem_file
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.inspection.advice.scaling import least_costs_ns, scaled
from hplacer_optimizer.machines import Machine
from hplacer_optimizer.problem.cost_sources import ANALYTIC
from hplacer_optimizer.scripts.script_graph import graph_of_script
from hplacer_optimizer.support import child_process
from hplacer_optimizer.support.keywords import unknown_name
from hplacer_optimizer.workloads.graphs import GRAPHS, NAMED, parameters

__all__ = [
    "CAPTURED",
    "INTERPOLATED",
    "SCALED",
    "GraphSubject",
    "Step",
    "Subject",
    "WorkloadSubject",
    "between",
    "scaled_step",
    "step_of",
    "subject_of",
]

CAPTURED, INTERPOLATED, SCALED = "captured", "interpolated", "scaled"
_FED = re.compile(r"unknown dimensions of \d+ fed tensors taken as (\d+)")
_READ = re.compile(r"unknown dimensions taken as (\d+)")
_ITERATORS = {"IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue"}
_BUILDING_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """A training step on a machine, at one batch size.

    Attributes:
        problem: the graph and the machine.
        batch_size: samples of a step; None: not known.
        origin: CAPTURED at this batch size, INTERPOLATED between two others, or SCALED from one.
        cost_source: "analytic", "measured", or both.
        machine: None for a problem file, which has devices of its own.
        assumptions: one sentence each.
    """

    problem: Problem
    batch_size: int | None
    origin: str
    cost_source: str
    machine: Machine | None
    assumptions: tuple[str, ...]


class Subject(Protocol):
    """What is advised about."""

    name: str

    def step(self, machine: Machine | str | None, batch_size: int | None) -> Step:
        """On a machine (None: this one, or that of a problem file); None: its own batch size."""


def subject_of(
    source: object,
    workload: str | None,
    options: Mapping[str, Any],
    script_args: Sequence[str],
    *,
    in_place: bool = False,
) -> Subject:
    """Raises OptionError or GraphError for what is none."""
    if (source is None) == (workload is None):
        raise OptionError("name a graph or a script, or a workload with --workload, and one only")
    if workload is not None:
        return WorkloadSubject(workload, options)
    if isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".py":
        found, batch_size = graph_of_script([os.fspath(source), *script_args], in_place=in_place)
        return GraphSubject(found, options, own_batch_size=batch_size)
    for name, given in (("script_args", script_args), ("in_place", in_place)):
        if given:
            raise OptionError(f"{name}: what is advised about is no script (*.py)")
    return GraphSubject(source, options)


class GraphSubject:
    """A graph that is there, in a file, live, or caught in a script; or a problem file."""

    def __init__(
        self, source: object, options: Mapping[str, Any], own_batch_size: int | None = None
    ) -> None:
        """`options`: of `load_graph`, but the machine and the batch size."""
        self._source, self._options = source, options
        self._own_batch_size = own_batch_size
        self._fixed: dict[Machine | str | None, Step] = {}  # of fixed batch sizes
        self.name = getattr(source, "name", None) or str(source)

    def step(self, machine: Machine | str | None, batch_size: int | None) -> Step:
        """Captured at that batch size if the graph lets it, else scaled."""
        if machine not in self._fixed:
            loaded = self._load(machine, batch_size or self._own_batch_size)
            if isinstance(loaded, LoadedGraph):
                open_size = _open_batch_size(loaded)
                if open_size is not None:
                    return step_of(loaded, open_size)
                self._fixed[machine] = step_of(loaded, self._remember(loaded, batch_size))
            else:
                self._fixed[machine] = _of_problem(loaded, self._remember(None, batch_size))
        return _scaled_step(self._fixed[machine], batch_size)

    def _remember(self, loaded: LoadedGraph | None, batch_size: int | None) -> int | None:
        """The first batch size that is named is that of a graph which does not tell its own."""
        fed = loaded and _fed_batch_size(loaded)
        self._own_batch_size = self._own_batch_size or fed or batch_size
        return self._own_batch_size

    def _load(self, machine: Machine | str | None, batch_size: int | None) -> LoadedGraph | Problem:
        given = {name: value for name, value in self._options.items() if value is not None}
        if _is_problem(self._source):
            return load(self._source, machine=machine, **given)
        return load_graph(
            self._source,
            machine=machine,
            batch_size=batch_size,
            keep_graph=True,
            logs=False,
            **given,
        )


class WorkloadSubject:
    """A shipped workload, as NAME or NAME:PARAMETER=VALUE,PARAMETER=VALUE."""

    def __init__(self, text: str, options: Mapping[str, Any]) -> None:
        """Raises OptionError for an unknown name."""
        name, _, assignments = text.partition(":")
        base, sizes = NAMED.get(name, (name, {}))
        if base not in GRAPHS:
            raise OptionError(f"workload: {unknown_name('workload', name, {*GRAPHS, *NAMED})}")
        self.name = text
        self._workload = base
        self._parameters = {key: str(value) for key, value in sizes.items()}
        for assignment in filter(None, assignments.split(",")):
            key, _, value = assignment.partition("=")
            self._parameters[key] = value
        self._sized()  # a wrong size is told before anything is built
        self._options = options
        self._directory = tempfile.mkdtemp(prefix="hplacer-")
        weakref.finalize(self, shutil.rmtree, self._directory, True)

    def step(self, machine: Machine | str | None, batch_size: int | None) -> Step:
        """Built with that batch size, and captured."""
        size = batch_size or self._sized()
        path = self._built(size)
        given = {name: value for name, value in self._options.items() if value is not None}
        return step_of(load_graph(path, machine=machine, logs=False, **given), size)

    def _sized(self) -> int:
        text = self._parameters.get("batch_size", parameters(self._workload)["batch_size"])
        if not str(text).isdecimal() or int(text) < 1:
            raise OptionError(f"workload: batch_size: must be a whole number, not {text!r}")
        return int(text)

    def _built(self, batch_size: int) -> Path:
        path = Path(self._directory, f"{self._workload}-{batch_size}.meta")
        if not path.exists():
            _build(self._workload, self._parameters | {"batch_size": str(batch_size)}, path)
        return path


def _build(workload: str, sizes: Mapping[str, str], path: Path) -> None:
    """In a process of its own, since this one is to do without TensorFlow."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "hplacer_optimizer.workloads.graphs", workload),
            *(f"{key}={value}" for key, value in sizes.items()),
            *("-o", str(path)),
        ],
        env=child_process.environment(HPLACER_DISABLE="1", TF_CPP_MIN_LOG_LEVEL="2"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_BUILDING_S,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it left no message"])[-1]
        raise OptionError(f"workload: {last.removeprefix('hplacer: error: ')}")


# ---- steps of what was loaded ----


def _is_problem(source: object) -> bool:
    return isinstance(source, Problem) or source == "example" or is_problem_file(source)


def step_of(loaded: LoadedGraph, batch_size: int | None) -> Step:
    """As it was captured, at that batch size."""
    return Step(
        problem=loaded.problem,
        batch_size=batch_size,
        origin=CAPTURED,
        cost_source=loaded.cost_source,
        machine=loaded.machine,
        assumptions=loaded.assumptions,
    )


def _of_problem(problem: Problem, batch_size: int | None) -> Step:
    return Step(
        problem=problem,
        batch_size=batch_size,
        origin=CAPTURED,
        cost_source=ANALYTIC,
        machine=None,
        assumptions=(),
    )


def _scaled_step(step: Step, wanted: int | None) -> Step:
    own = step.batch_size
    if wanted is None or own is None or wanted == own:
        return step
    return replace(scaled_step(step, wanted / own), batch_size=wanted)


def scaled_step(step: Step, factor: float) -> Step:
    """With `factor` times the batch."""
    problem = scaled(step.problem, factor, least_costs_ns(step.problem))
    return replace(step, problem=problem, origin=SCALED)


def between(small: Step, large: Step, batch_size: int) -> Step | None:
    """The step at a batch size between two that are known; None if their graphs differ.

    Costs and sizes of each op are taken to grow evenly with the batch between the two.
    """
    one, other = small.problem, large.problem
    if small.batch_size is None or large.batch_size is None or one.op_names != other.op_names:
        return None
    if not small.batch_size < batch_size < large.batch_size:
        return {small.batch_size: small, large.batch_size: large}.get(batch_size)
    share = (batch_size - small.batch_size) / (large.batch_size - small.batch_size)
    figures = {
        name: _mixed(getattr(one, name), getattr(other, name), share)
        for name in ("cost_ns", "output_bytes", "temp_bytes")
    }
    problem = other.replace(**figures)
    origin = INTERPOLATED if CAPTURED == small.origin == large.origin else SCALED
    return replace(large, problem=problem, batch_size=batch_size, origin=origin)


def _mixed(one: NDArray[np.int64], other: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """What is missing, -1, stays so."""
    mixed = np.rint(one + share * (other - one)).astype(np.int64)
    return np.where(other < 0, other, mixed)


def _open_batch_size(loaded: LoadedGraph) -> int | None:
    """What open batch dimensions were taken as; None: there are none."""
    types = set(loaded.problem.op_types)
    for sentence in loaded.captured.assumptions:
        found = _FED.search(sentence)
        if found is None and types & _ITERATORS:
            found = _READ.search(sentence)
        if found:
            return int(found[1])
    return None


def _fed_batch_size(loaded: LoadedGraph) -> int | None:
    """The first dimension that most fed tensors have, the largest of equals."""
    fed = loaded.step.fed_shapes if loaded.step else {}
    first = Counter(shape[0] for shapes in fed.values() for shape in shapes if shape)
    return max(first, key=lambda size: (first[size], size), default=None)
