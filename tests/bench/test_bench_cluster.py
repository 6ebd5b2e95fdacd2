"""What `hplacer bench predict` and `bench cluster` measure and say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.bench import cluster
from hplacer_optimizer.bench.cluster_tasks import TASKS, cuts_by_hand, place_by_hand
from hplacer_optimizer.bench.prediction import (
    Prediction,
    ablations,
    document,
    draw,
    placements_of,
    rank_correlation,
)
from hplacer_optimizer.measuring.turns import Turns
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.problem.constraints import check_constraints
from testbed.documents import problem_from_dict
from testbed.environment import ROOT, clean_environment
from testbed.planted_problems import machine
from tests.commands import error_of, hplacer_process

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 1000], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3], [1, 3, 2], 0.5),
        ([1, 1, 2], [1, 2, 3], 1.5 / np.sqrt(1.5 * 2)),  # ranks 1.5, 1.5, 3 and 1, 2, 3
    ],
)
def test_rank_correlation(a: list[float], b: list[float], expected: float) -> None:
    assert rank_correlation(a, b) == pytest.approx(expected)


def test_placements_are_allowed_and_of_all_sorts() -> None:
    problem = hp.load_problem(GOLDEN)
    placements = dict(placements_of(problem, ({"a0": 0, "b0": 1},), Budget(seconds=0.2)))
    assert len(placements) >= 15
    for placement in placements.values():
        check_constraints(problem, placement)
    assert len({placement.tobytes() for placement in placements.values()}) >= 10


def test_by_hand_follows_the_rules_and_then_the_neighbours() -> None:
    problem = hp.load_problem(GOLDEN)
    placement = place_by_hand(problem, {"b": 1})
    named = np.array(["b" in name for name in problem.op_names])
    free = np.diff(problem.allowed_ptr) == problem.num_devices
    assert (placement[named & free] == 1).all()
    check_constraints(problem, placement)


def test_cuts_by_hand_follow_the_layers_and_not_the_numbers_of_ops() -> None:
    """A chain of in/a, out and in/b, numbered backwards: scopes stay together."""
    names = ["out", "in/b", "in/a", "x", "scale", "in/a/scaled", "use_a", "use_out", "use_b"]
    types = {"x": "Placeholder", "scale": "Const"} | dict.fromkeys(names[:3], "VarHandleOp")
    reads = {
        "in/a/scaled": ["in/a", "scale"],
        "use_a": ["x", "in/a/scaled"],
        "use_out": ["use_a", "out"],
        "use_b": ["use_out", "in/b"],
    }
    ops = [
        {"name": name, "type": types.get(name, "Mul"), "cost_ns": {"gpu": 1}, "output_bytes": [4]}
        for name in names
    ]
    edges = [
        [names.index(src), 0, names.index(dst)] for dst, sources in reads.items() for src in sources
    ]
    document = machine(2, 99, is_linked=False) | {"ops": ops, "edges": edges}
    cuts = dict(cuts_by_hand(problem_from_dict(document), ()))
    workers = {name: [int(cut[names.index(name)]) for cut in cuts.values()] for name in names[:3]}
    assert list(cuts)[-1] == "by hand, in turn"
    assert workers == {"in/a": [0, 0, 0, 0], "in/b": [1, 0, 0, 1], "out": [1, 1, 1, 0]}


def test_predictions_are_summed_up_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = [
        Prediction(
            task="t",
            placement=str(i),
            predicted_ns=predicted,
            step_time_ns=(1 + i) * 10**9,
            spread_ns=10**8,
            steps=5,
            transfers=i,
            error=predicted / 10**9 / (1 + i) - 1,
            error_again=1.05 * predicted / 10**9 / (1 + i) - 1,
            error_without={"turns": 0.5},
        )
        for i, predicted in enumerate([10**9, 18 * 10**8, 33 * 10**8])
    ]
    told = document(found, ["a note"])
    assert told["all"] == {
        "placements": 3,
        "most_optimistic_plan": None,
        "rank_correlation": pytest.approx(1.0),
        "median_error": pytest.approx(0.1),
        "again": {
            "most_optimistic_plan": None,
            "rank_correlation": pytest.approx(1.0),
            "median_error": pytest.approx(0.055),
            "apart": pytest.approx(0.05),
            "most_apart": pytest.approx(0.05),
        },
        "median_error_without": {"turns": 0.5},
    }
    assert told["tasks"]["t"] == told["all"]
    draw(found, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_part_of_the_model_is_left_out() -> None:
    problem = hp.load_problem(GOLDEN)
    links = len(problem.link_src)
    problem = problem.replace(
        device_turn_ns=np.full(problem.num_devices, 50),
        device_cold_ns=np.full(problem.num_devices, 20),
        device_start_ns=np.full(problem.num_devices, 7),
        link_send_ns=np.full(links, 100),
        link_receive_ns=np.full(links, 200),
        link_receive_bytes_per_s=np.full(links, 10**9),
    )
    parts = dict(ablations(problem))
    assert set(parts) == {"turns", "turns of several ops", "cold caches", "starts", "work"}
    assert parts["turns of several ops"].inter_op_threads == 1
    assert not parts["turns"].device_turn_ns.any()
    assert not parts["cold caches"].device_cold_ns.any()
    assert not parts["starts"].device_start_ns.any()
    carried = parts["work"]
    assert not (carried.link_send_ns.any())
    assert not (carried.link_receive_bytes_per_s.any())
    assert (carried.link_latency_ns == problem.link_latency_ns + 300).all()
    rates = 1 / problem.link_bytes_per_s + 1e-9
    assert carried.link_bytes_per_s.tolist() == np.round(1 / rates).astype(int).tolist()


def test_an_unknown_workload_is_refused() -> None:
    error = error_of("bench", "predict", "--workload", "none", code=2)
    assert "unknown task 'none'; valid are " in error
    assert "two_tower" in error


@pytest.mark.slow
def test_a_plan_beats_one_worker_and_is_kept_when_the_next_task_is_interrupted(
    tmp_path: Path,
) -> None:
    pytest.importorskip("tensorflow")
    command = [sys.executable, "-m", "hplacer_optimizer", "bench", "cluster"]
    command += ["--workload", "two_tower", "--workload", "nmt", "--time", "5s", "--budget", "5s"]
    command += ["--refine", "5s", "--learn", "20s", "-o", str(tmp_path), "--json"]
    file = tmp_path / "cluster.json"
    running = subprocess.Popen(
        command,
        env=clean_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with running:
        assert running.stderr is not None
        assert f"hplacer: two_tower is in {file}\n" in running.stderr  # reads up to there
        kept = json.loads(file.read_text())
        running.send_signal(signal.SIGINT)
        stdout, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert json.loads(stdout) == json.loads(file.read_text()) == kept
    rows = kept["tasks"]["two_tower"]
    assert set(rows) == {"default", "by hand", "planned", "refined", "learned"}
    assert rows["default"]["speedup"] == 1.0
    assert rows["refined"]["speedup"] > 1.0


def test_no_row_starts_from_one_that_it_is_compared_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The search by measured steps has the simulated plan to start from, learning has nothing."""
    problem = hp.load_problem(GOLDEN)
    given: dict[str, list[bytes]] = {"refined": [], "learned": []}
    running = "refined"

    class Reward:
        """In place of the measured one: keeps what it is asked for."""

        def __init__(self, measurers: list[Any]) -> None:
            self.best = (np.zeros(problem.num_ops, np.int32), None)

        def __enter__(self) -> Reward:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def __call__(self, placement: np.ndarray[Any, np.dtype[np.int32]]) -> float:
            given[running].append(placement.tobytes())
            return 1.0

    def search(problem: hp.Problem, reward: Any, planner: Any, **_: Any) -> None:
        assert planner is get_planner("local_search").plan  # it makes its own starts

    def learn(problem: hp.Problem, **options: Any) -> None:
        nonlocal running
        running = "learned"
        assert options.keys() == {"reward", "budget", "seed"}

    class FakeBench:
        """In place of two workers: by hand is by far the fastest."""

        def on_start(self, what: str) -> None:
            pass

        def load(self, task: Any) -> Any:
            return SimpleNamespace(problem=problem, step=None)

        def measurer(self, loaded: Any, effort: Any) -> None:
            pass

        def measure(self, task: Any, loaded: Any, cuts: Any, rounds: int) -> Any:
            return {name: hp.Measurement(times_s=(1e-6,)) for name in cuts}

        def take_turns(self, loaded: Any, placements: Any, base: str, limit_s: float) -> Any:
            self.placements = dict(placements)
            return {name: Turns(times_s=[1.0, 1.0]) for name in placements}

    monkeypatch.setattr(cluster, "MeasuredReward", Reward)
    monkeypatch.setattr(cluster.measured_search, "search", search)
    monkeypatch.setattr(cluster, "learn", learn)
    bench: Any = FakeBench()
    (rows,) = cluster.compare(
        bench, [TASKS[0]], limit_s=1.0, planning_s=0.2, refining_s=1.0, learning_s=1.0
    )
    assert [row.placement for row in rows] == list(bench.placements)
    planned = bench.placements[cluster.PLANNED].tobytes()
    assert bench.placements[cluster.BY_HAND].tobytes() != planned
    assert given == {"refined": [planned], "learned": []}


@pytest.mark.slow
def test_the_demo_measures_a_plan_on_two_workers(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    report = tmp_path / "report.html"
    arguments = ("--workload", "two_workers", "-o", report, "--cache", tmp_path / "plans")
    done = hplacer_process("demo", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["workloads"]
    assert told["output"] == str(report)
    assert report.read_text().startswith("<!DOCTYPE html>")
    assert told["planned_now"]
    assert told["with_plan"]["step_time_ns"] > 0 < told["without_plan"]["step_time_ns"]
