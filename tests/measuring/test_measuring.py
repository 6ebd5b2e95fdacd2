"""Measured step times: on real devices, in processes that the tests kill, stop and starve."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.capture.loading import LoadedGraph, load_graph
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.measuring import Effort, MeasuredReward, Measurement, Measurer
from hplacer_optimizer.measuring.clusters import local_cluster
from hplacer_optimizer.measuring.graph_measurement import measure
from hplacer_optimizer.measuring.measurement import failed
from hplacer_optimizer.measuring.planning import Measuring
from hplacer_optimizer.options import Options
from hplacer_optimizer.planners import Budget, Progress
from hplacer_optimizer.planners.simple import random
from hplacer_optimizer.plans.making import Search
from hplacer_optimizer.pretraining.jobs import GraphSpec, Job, Loaded, keep, plan_job
from tests.processes import ROOT

tf = pytest.importorskip("tensorflow")

v1 = tf.compat.v1
SIZE = 256
ROOM_BYTES = 200 << 20  # less than TensorFlow's code alone takes
QUICK = Effort(steps=2, warmup=1, time_limit_s=3)


def towers() -> tf.Graph:
    """The training step of two towers, which can be apart."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, SIZE], name="x")
        towers = []
        for name in ("a", "b"):
            h = x
            for layer in range(3):
                w = v1.get_variable(f"{name}{layer}", [SIZE, SIZE], use_resource=True)
                h = tf.tanh(h @ w)
            towers.append(h)
        loss = tf.reduce_mean(tf.square(towers[0] - towers[1]))
        v1.train.AdamOptimizer().minimize(loss, name="train")
    return graph


@pytest.fixture(scope="module")
def loaded() -> LoadedGraph:
    machine = ROOT / "testbed" / "two_cpus.yaml"
    return load_graph(towers(), machine=machine, batch_size=SIZE, keep_graph=True)


# ---- what a measurement is ----


def test_a_measurement_is_a_median_and_a_spread() -> None:
    measurement = Measurement(times_s=(3.0, 1.0, 2.0, 5.0, 4.0))
    assert (measurement.step_s, measurement.spread_s) == (3.0, 2.0)
    assert Measurement(times_s=(1.0,)).spread_s is None
    more = measurement.with_more(Measurement(times_s=(9.0, 9.0)))
    assert (more.step_s, len(more.times_s)) == (4.0, 7)
    failure = failed("crash", "gone")
    assert failure.step_s is None
    assert measurement.with_more(failure) == measurement
    assert failure.with_more(measurement) == measurement


def test_what_cannot_be_measured_is_an_error(loaded: LoadedGraph) -> None:
    placement = np.zeros(loaded.problem.num_ops, np.int32)
    with pytest.raises(hp.GraphError, match="a problem has no ops that can run"):
        measure(loaded.problem, placement)
    with pytest.raises(hp.GraphError, match="without keep_graph"):
        measure(replace(loaded, step=None), placement)
    with pytest.raises(hp.ProblemError, match="placement: has 1 devices"):
        measure(loaded, placement[:1])
    with pytest.raises(hp.GraphError, match="is loaded already; leave out machine, batch_size"):
        measure(loaded, placement, machine="1cpu-2xk40", batch_size=3)
    with pytest.raises(OptionError, match=r"measure.* 'warm_up'; did you mean 'warmup'"):
        measure(loaded, placement, warm_up=3)
    with pytest.raises(OptionError, match="steps: must be an integer of at least 1, got 0"):
        measure(loaded, placement, steps=0)
    with pytest.raises(OptionError, match="time_limit_s: must be more than 0 and at most 2000000"):
        measure(loaded, placement, time_limit_s=math.inf)
    with pytest.raises(OptionError, match="'here' is no address"):
        measure(loaded, placement, devices="here")
    for planner in ("etf", "heft"):
        with pytest.raises(OptionError, match=f"'{planner}' does not measure.*local_search"):
            Search(planner=planner, measuring=Measuring())


# ---- rewards ----


class Scripted:
    """A measurer whose times are given: a list of measurements by the first op's device."""

    def __init__(self, times_s: dict[int, list[tuple[float, ...]]]) -> None:
        self.times_s = times_s
        self.calls: list[int] = []

    def measure(self, placement: np.ndarray) -> Measurement:
        key = int(placement[0])
        self.calls.append(key)
        return Measurement(times_s=self.times_s[key].pop(0))

    def close(self) -> None:
        pass


def test_only_a_best_placement_that_is_unsteady_is_measured_again() -> None:
    steady, unsteady, slow = (1.0, 1.0, 1.01), (0.1, 0.9, 1.7), (2.0, 3.0, 4.0)
    measurer = Scripted({0: [steady], 1: [unsteady, (2.0,) * 4], 2: [slow]})
    with MeasuredReward([measurer]) as reward:  # type: ignore[list-item]
        rows = [np.full(4, key, np.int32) for key in range(3)]
        assert [reward(row) for row in [*rows, *rows]] == [1.0, 2.0, 3.0] * 2
        assert measurer.calls == [0, 1, 1, 2]
        assert reward.measured == 3
        assert reward.best is not None
        assert reward.best[0].tolist() == [0] * 4


def test_what_is_no_candidate_is_measured_and_never_the_best() -> None:
    measurer = Scripted({0: [(1.0,)], 1: [(2.0,)]})
    with MeasuredReward([measurer]) as reward:  # type: ignore[list-item]
        rows = [np.full(4, key, np.int32) for key in range(2)]
        assert reward.of_no_candidate(rows[0]) == 1.0
        assert (reward.best, reward.measured) == (None, 0)
        assert reward(rows[1]) == 2.0
        assert reward.best is not None
        assert reward.best[0].tolist() == [1] * 4


# ---- injected failures ----


def worker_pids() -> list[int]:
    """Of the measuring processes that this one has started."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            is_mine = int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
            if is_mine and b"measuring.runner_process" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def hang(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def starve(pid: int) -> None:
    """However far it has come: a process that has loaded TensorFlow gets no more memory at all."""
    resource.prlimit(pid, resource.RLIMIT_AS, (ROOM_BYTES, resource.RLIM_INFINITY))


class Injector:
    """A progress callback: injures one measuring process after the other.

    Those that are to starve as soon as they begin, the others when they have measured something:
    among these may be one whose memory sufficed.
    """

    def __init__(self, injuries: list[Callable[[int], None]]) -> None:
        self.injuries = injuries
        self.injured: list[int] = []
        self.best_ns: list[int] = []
        self._ran = 0

    def __call__(self, progress: Progress) -> None:
        if progress.best_ns is not None:
            self.best_ns.append(progress.best_ns)
        ran = (progress.measured or 0) - progress.failed
        for injury in self.injuries[len(self.injured) :][:1]:
            for pid in worker_pids():
                if pid not in self.injured if injury is starve else ran > self._ran:
                    self._ran = ran
                    self.injured.append(pid)
                    injury(pid)


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the failures of all measurers, as they come."""
    found: list[str] = []
    measure = Measurer.measure

    def recorded(self: Measurer, placement: np.ndarray, **options: bool) -> Measurement:
        measurement = measure(self, placement, **options)
        if measurement.error:
            found.append(measurement.error.kind)
        return measurement

    monkeypatch.setattr(Measurer, "measure", recorded)
    return found


def ready(loaded: LoadedGraph) -> Loaded:
    return Loaded(
        captured=loaded.captured, machine=loaded.machine, options=Options(), step=loaded.step
    )


def pretrain_with_failures(
    loaded: LoadedGraph, search: Search, injector: Injector, tmp_path: Path
) -> hp.Plan:
    """The stored plan of a job whose measuring processes are injured."""
    job = Job(graph=GraphSpec(path="towers", keep_graph=True), search=search)
    store = hp.PlanStore(tmp_path)
    outcome = keep(job, plan_job(ready(loaded), search, injector), ready(loaded), store)
    assert outcome.stored
    assert not worker_pids()
    assert len(injector.injured) == len(injector.injuries)
    plan = store.get(loaded.captured.fingerprint)
    assert plan is not None
    return plan


@pytest.mark.slow
def test_a_search_outlives_a_crash_and_a_hang(
    loaded: LoadedGraph, kinds: list[str], tmp_path: Path
) -> None:
    injector = Injector([kill, hang])
    search = Search(
        planner="local_search", budget=Budget(steps=12), measuring=Measuring(effort=QUICK)
    )
    plan = pretrain_with_failures(loaded, search, injector, tmp_path)
    assert kinds == ["crash", "time limit"]
    assert plan.feasible
    measured = plan.planner_options["measured"]
    assert measured["placements"] == 12
    assert measured["failed"] == 2
    assert plan.measured_ns == measured["step_ns"] <= max(injector.best_ns)
    assert any("12 placements measured, 2 failed" in note for note in plan.planner_notes)
    assert plan.summary_line().endswith("both measured")
    assert plan.baseline_ns is not None


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_pretraining_outlives_twenty_failures(
    loaded: LoadedGraph, kinds: list[str], tmp_path: Path
) -> None:
    injector = Injector([kill, hang, starve, kill, starve] * 4)
    search = Search(
        planner="hierarchical", budget=Budget(steps=6), measuring=Measuring(effort=QUICK)
    )
    plan = pretrain_with_failures(loaded, search, injector, tmp_path)
    assert plan.feasible
    assert plan.measured_ns == min(injector.best_ns)
    assert len(kinds) >= 18  # a process may be hit between two measurements
    assert {"crash", "time limit", "out of memory"} == set(kinds)
    assert plan.budget["steps_done"] == 6


# ---- clusters ----


@pytest.fixture(scope="module")
def on_cluster() -> LoadedGraph:
    """The graph, captured for two workers."""
    return load_graph(towers(), machine="2hosts-2xcpu", batch_size=SIZE, keep_graph=True)


def spread(loaded: LoadedGraph) -> np.ndarray:
    """A placement that uses both workers."""
    placement = random(loaded.problem, seed=1).placement
    assert len(set(placement.tolist())) == 2
    return placement


@pytest.mark.slow
def test_a_cluster_measures_and_its_loss_is_data(on_cluster: LoadedGraph) -> None:
    assert on_cluster.step is not None
    placement = spread(on_cluster)
    effort = Effort(steps=3, warmup=1, time_limit_s=5)
    with local_cluster(workers=2) as cluster:
        found = measure(on_cluster, placement, devices=cluster.spec, steps=2)
        assert found.step_s
        variables = 6 * 3 * SIZE * SIZE * 4  # with Adam's slots
        assert sum(peak or 0 for peak in found.peak_bytes) > variables
        with Measurer(
            on_cluster.step, on_cluster.problem, devices=cluster.addresses, effort=effort
        ) as measurer:
            assert measurer.measure(placement).step_s
            first = measurer.pid
            os.kill(cluster.pids[1], signal.SIGSTOP)
            hung = measurer.measure(placement)
            os.kill(cluster.pids[1], signal.SIGCONT)
            assert hung.error is not None
            assert hung.error.kind == "time limit"
            assert measurer.measure(placement).step_s
            assert measurer.pid != first
            os.kill(cluster.pids[1], signal.SIGKILL)
            cluster.processes[1].wait(60)
            assert measurer.measure(placement).error is not None


@pytest.mark.slow
def test_two_clusters_measure_at_the_same_time(on_cluster: LoadedGraph) -> None:
    with local_cluster(workers=2) as first, local_cluster(workers=2) as second:
        measuring = Measuring(on=(first.addresses, second.addresses), effort=QUICK)
        search = Search(planner="local_search", budget=Budget(steps=20), measuring=measuring)
        plan = plan_job(ready(on_cluster), search)
    measured = plan.planner_options["measured"]
    assert (measured["placements"], measured["failed"]) == (20, 0)
    assert measured["on"] == [list(first.addresses), list(second.addresses)]
    assert plan.device_names == list(first.device_names)
