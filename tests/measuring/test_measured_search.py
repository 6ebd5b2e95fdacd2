"""Local search by measured steps, on devices whose step times are not those of the problem."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.measuring import MeasuredReward, Measurement
from hplacer_optimizer.measuring.measured_search import search
from hplacer_optimizer.measuring.measurement import CRASH, failed
from hplacer_optimizer.planners import Budget, Progress, get_planner
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.problem.cost_learning import CostLearner
from hplacer_optimizer.problem.simulator import simulate

MOVES = 40  # at least, till no move is left
GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"


@pytest.fixture(scope="module")
def problem() -> Problem:
    return hp.load_problem(GOLDEN)


class World:
    """A measurer whose steps are simulated ones of ops up to three times as slow or as fast."""

    def __init__(self, problem: Problem, broken: int | None = None) -> None:
        """Placements that use the device `broken` crash."""
        factors = np.random.default_rng(0).uniform(1 / 3, 3, problem.cost_ns.shape)
        self.real = problem.replace(cost_ns=np.round(factors * problem.cost_ns).astype(np.int64))
        self.broken = broken
        self.measured: list[bytes] = []
        self.closed = False

    def measure(self, placement: np.ndarray) -> Measurement:
        self.measured.append(placement.tobytes())
        if self.broken in placement:
            return failed(CRASH, "the device is broken")
        return Measurement(times_s=(simulate(self.real, placement).makespan_ns / 1e9,) * 3)

    def close(self) -> None:
        self.closed = True


def searched(
    problem: Problem, worlds: Sequence[Any], budget: Budget, **options: Any
) -> tuple[MeasuredReward, list[str]]:
    """The reward after a search, whose measurers are closed."""
    with MeasuredReward(worlds) as reward:
        notes = search(problem, reward, get_planner("local_search").plan, budget=budget, **options)
    return reward, notes


def test_moves_find_what_the_simulator_did_not_know(problem: Problem) -> None:
    world, told = World(problem), list[Progress]()
    reward, _ = searched(problem, [world], Budget(steps=30), on_progress=told.append)
    assert world.closed
    assert reward.measured == 30
    assert reward.failed == 0
    assert len({*world.measured}) == 30
    assert reward.best is not None
    best, found = reward.best
    assert found.step_s == simulate(world.real, best).makespan_ns / 1e9
    # What the simulator likes best, and single devices are measured first.
    starts = [get_planner("local_search").plan(problem, budget=Budget(steps=500)).placement]
    starts += [on_device(problem, device) for device in range(problem.num_devices)]
    for start in starts:
        assert start.tobytes() in world.measured
        assert found.step_s < simulate(world.real, start).makespan_ns / 1e9
    assert told[-1].measured == told[-1].steps <= 30
    assert world.measured.count(best.tobytes()) == 2, "again, beside the one that it replaced"


def test_the_same_seed_measures_the_same_placements(problem: Problem) -> None:
    worlds = [World(problem) for _ in range(3)]
    for world, seed in zip(worlds, (1, 1, 2), strict=True):
        searched(problem, [world], Budget(steps=25), seed=seed)
    assert worlds[0].measured == worlds[1].measured
    assert worlds[0].measured != worlds[2].measured


def test_it_ends_without_a_better_placement_in_a_while(problem: Problem) -> None:
    reward, _ = searched(problem, [World(problem)], Budget(steps=5_000, patience=15))
    assert 15 < reward.measured < 1_000


class Slow(World):
    """Takes a moment for each."""

    def measure(self, placement: np.ndarray) -> Measurement:
        time.sleep(0.05)
        return super().measure(placement)


def test_it_ends_when_it_is_told_to(problem: Problem) -> None:
    stop = threading.Event()

    def tell(progress: Progress) -> None:
        if progress.measured and progress.measured >= 8:
            stop.set()

    reward, _ = searched(problem, [Slow(problem)], Budget(stop=stop), on_progress=tell)
    assert 8 <= reward.measured < MOVES
    assert reward.best is not None


def test_its_time_ends_it(problem: Problem) -> None:
    begin_s = time.monotonic()
    reward, _ = searched(problem, [Slow(problem)], Budget(seconds=0.6))
    assert time.monotonic() - begin_s >= 0.6
    assert 0 < reward.measured < MOVES


def test_every_measurement_is_learned_from(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[bytes, float]] = []
    tell = CostLearner.tell

    def noted(self: CostLearner, placement: np.ndarray, seconds: float) -> None:
        told.append((placement.tobytes(), seconds))
        tell(self, placement, seconds)

    monkeypatch.setattr(CostLearner, "tell", noted)
    world = World(problem)
    searched(problem, [world], Budget(steps=25), without=("learning",))
    assert not told
    world.measured.clear()
    searched(problem, [world], Budget(steps=25))
    assert len(told) >= 20
    for placement, seconds in told:
        assert placement in world.measured
        real = simulate(world.real, np.frombuffer(placement, np.int32))
        assert seconds == real.makespan_ns / 1e9


def test_it_ends_after_the_last_move(problem: Problem) -> None:
    world = World(problem)
    reward, _ = searched(problem, [world], Budget(steps=5_000))
    assert reward.measured == len({*world.measured}) >= MOVES


def test_two_measurers_share_the_work(problem: Problem) -> None:
    worlds = [World(problem), World(problem)]
    reward, _ = searched(problem, worlds, Budget(steps=40))
    assert reward.parallel == 2
    assert all(world.measured for world in worlds)
    assert 40 <= reward.measured <= 41


def test_what_crashes_is_never_the_answer(problem: Problem) -> None:
    reward, _ = searched(problem, [World(problem, broken=1)], Budget(steps=40))
    assert reward.failed > 0
    assert reward.best is not None
    assert 1 not in reward.best[0]


def test_an_error_that_no_placement_helps_ends_it(problem: Problem) -> None:
    class Gone(World):
        def measure(self, placement: np.ndarray) -> Measurement:
            raise GraphError("the graph's file is gone")

    with pytest.raises(GraphError, match="the graph's file is gone"):
        searched(problem, [Gone(problem)], Budget(steps=5))
