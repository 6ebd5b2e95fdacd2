"""Real steps of the cluster tasks: two workers on this machine, calibrated, then measured.

Placements take turns, round by round, so that a machine that is slow for a while is slow for all.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.cluster_tasks import ClusterTask
from hplacer_optimizer.capture.loading import LoadedGraph, load_graph
from hplacer_optimizer.errors import BenchError, MeasuringError
from hplacer_optimizer.machines import Machine
from hplacer_optimizer.measuring import Effort, Measurement, Measurer
from hplacer_optimizer.measuring.calibration.calibrate import (
    MeasuredMachine,
    calibrate_graph,
    calibrate_machine,
)
from hplacer_optimizer.measuring.clusters import LocalCluster, local_cluster
from hplacer_optimizer.measuring.turns import EFFORT, Turns, take_turns_of_placements

OnStart = Callable[[str], None]  # what begins
Placements = Mapping[str, NDArray[np.int32]]

WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A calibrated cluster."""

    cluster: LocalCluster
    machine: Machine
    notes: list[str]
    directory: Path
    on_start: OnStart

    def load(self, task: ClusterTask) -> LoadedGraph:
        """The task's graph with measured costs."""
        self.on_start(f"{task.title}: building the graph")
        task.write(self._path(task))
        return self._load(task, self.machine, keep_graph=True)

    @functools.cached_property
    def machine_again(self) -> Machine:
        """By another calibration."""
        found = _calibrated(self.cluster, self.on_start)
        self.notes.extend(f"again: {note}" for note in found.notes)
        return found.machine

    def problem_again(self, task: ClusterTask) -> Problem:
        """That of a loaded task by another calibration of the machine and the graph."""
        return self._load(task, self.machine_again).problem

    def _path(self, task: ClusterTask) -> Path:
        return self.directory / f"{task.name}.meta"

    def _load(
        self, task: ClusterTask, machine: Machine, *, keep_graph: bool = False
    ) -> LoadedGraph:
        self.on_start(f"{task.title}: measuring its ops")
        path = self._path(task)
        measured = calibrate_graph(path, machine, addresses=self.cluster.addresses)
        self.notes.extend(f"{task.title}: {note}" for note in measured.notes)
        return load_graph(path, machine=machine, cost_table=measured.costs, keep_graph=keep_graph)

    def measurer(self, loaded: LoadedGraph, effort: Effort) -> Measurer:
        """Of a loaded task."""
        assert loaded.step is not None
        return Measurer(loaded.step, loaded.problem, devices=self.cluster.addresses, effort=effort)

    def take_turns(
        self, loaded: LoadedGraph, placements: Placements, base: str, limit_s: float
    ) -> dict[str, Turns]:
        """All placements against one of them; raises ClusterError for a worker that was lost."""
        with self.measurer(loaded, EFFORT) as measurer:
            try:
                return take_turns_of_placements(
                    measurer, placements, base, limit_s=limit_s, on_start=self.on_start
                )
            except MeasuringError:
                self.cluster.check()
                raise

    def measure(
        self, task: ClusterTask, loaded: LoadedGraph, placements: Placements, rounds: int
    ) -> dict[str, Measurement]:
        """Raises BenchError, which names the placement, if one does not run."""
        found: dict[str, Measurement] = {}
        with self.measurer(loaded, Effort(steps=5)) as measurer:
            for number in range(rounds):
                for name, placement in placements.items():
                    self.on_start(f"{task.title}: {name}, round {number + 1} of {rounds}")
                    more = measurer.measure(placement)
                    if more.error is not None:
                        self.cluster.check()
                        raise BenchError(f"{task.title}: {name}: {more.error}")
                    found[name] = found[name].with_more(more) if name in found else more
        return found


@contextmanager
def calibrated_cluster(on_start: OnStart) -> Iterator[Bench]:
    """Starts the workers and measures their machine."""
    with tempfile.TemporaryDirectory() as directory, local_cluster(workers=WORKERS) as cluster:
        found = _calibrated(cluster, on_start)
        yield Bench(
            cluster=cluster,
            machine=found.machine,
            notes=found.notes,
            directory=Path(directory),
            on_start=on_start,
        )


def _calibrated(cluster: LocalCluster, on_start: OnStart) -> MeasuredMachine:
    on_start("measuring the machine")
    return calibrate_machine(
        addresses=cluster.addresses, on_progress=lambda done, total, what: on_start(what)
    )
