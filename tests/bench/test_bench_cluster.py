"""What `hplacer bench predict` and `bench cluster` measure and say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.bench.cluster_tasks import place_by_hand
from hplacer_optimizer.bench.prediction import (
    Prediction,
    ablations,
    document,
    draw,
    placements_of,
    rank_correlation,
)
from hplacer_optimizer.planners import Budget
from hplacer_optimizer.problem.constraints import check_constraints
from tests.cli.test_cli import error_of, hplacer

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


def test_predictions_are_summed_up_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = [
        Prediction(
            task="t",
            placement=str(i),
            predicted_s=predicted,
            measured_s=1.0 + i,
            spread_s=0.1,
            steps=5,
            transfers=i,
            error=predicted / (1.0 + i) - 1,
            error_without={"turns": 0.5},
        )
        for i, predicted in enumerate([1.0, 1.8, 3.3])
    ]
    told = document(found, ["a note"])
    assert told["all"] == {
        "placements": 3,
        "most_optimistic_plan": None,
        "rank_correlation": pytest.approx(1.0),
        "median_error": pytest.approx(0.1),
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
        device_start_ns=np.full(problem.num_devices, 7),
        link_send_ns=np.full(links, 100),
        link_receive_ns=np.full(links, 200),
        link_receive_bytes_per_s=np.full(links, 10**9),
    )
    parts = dict(ablations(problem))
    assert set(parts) == {"turns", "starts", "work"}
    assert not parts["turns"].device_turn_ns.any()
    assert not parts["starts"].device_start_ns.any()
    carried = parts["work"]
    assert not (carried.link_send_ns.any())
    assert not (carried.link_receive_bytes_per_s.any())
    assert (carried.link_latency_ns == problem.link_latency_ns + 300).all()
    rates = 1 / problem.link_bytes_per_s + 1e-9
    assert carried.link_bytes_per_s.tolist() == np.round(1 / rates).astype(int).tolist()


def test_an_unknown_workload_is_refused() -> None:
    error = error_of(hplacer("bench", "predict", "--workload", "none"))
    assert "unknown task 'none'; there are " in error
    assert "two_tower" in error


@pytest.mark.slow
def test_a_plan_beats_one_worker(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    done = hplacer(
        *("bench", "cluster", "--workload", "two_tower", "--limit", "5s", "--plan", "5s"),
        *("--refine", "5s", "--learn", "20s", "-o", tmp_path, "--json"),
        timeout_s=280,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert json.loads((tmp_path / "cluster.json").read_text()) == told
    rows = told["tasks"]["two_tower"]
    assert set(rows) == {"default", "by hand", "planned", "refined", "learned"}
    assert rows["default"]["speedup"] == 1.0
    assert rows["refined"]["speedup"] > 1.0
