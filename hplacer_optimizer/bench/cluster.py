"""Real step times on two workers: TensorFlow's placement, a person's, planned, and refined.

    default    everything where the session's worker is: what TensorFlow does by itself
    by hand    as a person would place the workload
    planned    the planner `auto`, scored by the simulator with measured costs
    refined    local search from there, scored by measured steps
    learned    if wanted: the planner `hierarchical`, scored by measured steps

Goals: planned at least 1.5 times as fast as default on the two-tower recommender, and not slower
than by hand on any task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.bench.cluster_tasks import ClusterTask, place_by_hand
from hplacer_optimizer.bench.measured import Bench
from hplacer_optimizer.capture.loading import LoadedGraph
from hplacer_optimizer.errors import BenchError
from hplacer_optimizer.measuring import Effort, MeasuredReward
from hplacer_optimizer.measuring import local_search as measured_search
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.planners.learning import learn
from hplacer_optimizer.problem.simulator import simulate

DEFAULT, BY_HAND, PLANNED = "default", "by hand", "planned"
REFINED, LEARNED = "refined", "learned"


@dataclass(frozen=True, kw_only=True)
class ClusterRow:
    """One placement of one task."""

    task: str
    placement: str
    measured_s: float  # median
    spread_s: float  # interquartile range
    steps: int
    predicted_s: float
    speedup: float
    """Over the default placement, in the same run."""


def compare(
    bench: Bench,
    tasks: Sequence[ClusterTask],
    *,
    rounds: int,
    planning_s: float,
    refining_s: float,
    learning_s: float | None = None,
    seed: int = 0,
) -> Iterator[ClusterRow]:
    """Plans and measures the tasks, one after the other."""
    for task in tasks:
        loaded = bench.load(task)
        problem = loaded.problem
        bench.on_start(f"{task.title}: planning")
        budget = Budget(seconds=planning_s)
        planned = get_planner("auto").plan(problem, budget=budget, seed=seed).placement
        by_hand = place_by_hand(problem, task.by_hand)
        bench.on_start(f"{task.title}: refining by measured steps")
        placements = {
            DEFAULT: on_device(problem, 0),
            BY_HAND: by_hand,
            PLANNED: planned,
            REFINED: _refined(bench, loaded, [planned, by_hand], refining_s, seed),
        }
        if learning_s is not None:
            bench.on_start(f"{task.title}: learning by measured steps")
            placements[LEARNED] = _learned(bench, loaded, learning_s, seed)
        measured = bench.measure(task, loaded, placements, rounds)
        for name, placement in placements.items():
            step_s, default_s = measured[name].step_s, measured[DEFAULT].step_s
            makespan_ns = simulate(problem, placement).makespan_ns
            if step_s is None or default_s is None or makespan_ns is None:
                raise BenchError(f"{task.title}: {name}: has no step time")
            yield ClusterRow(
                task=task.name,
                placement=name,
                measured_s=step_s,
                spread_s=measured[name].spread_s or 0.0,
                steps=len(measured[name].times_s),
                predicted_s=makespan_ns / 1e9,
                speedup=default_s / step_s,
            )


def _refined(
    bench: Bench,
    loaded: LoadedGraph,
    starts: Sequence[NDArray[np.int32]],
    seconds: float,
    seed: int,
) -> NDArray[np.int32]:
    """The best placement that was measured."""
    with MeasuredReward([bench.measurer(loaded, Effort(steps=5))]) as reward:
        for start in starts:
            reward(start)
        measured_search.search(
            loaded.problem,
            reward,
            get_planner("local_search").plan,
            budget=Budget(seconds=seconds),
            seed=seed,
        )
        return _best(reward)


def _learned(bench: Bench, loaded: LoadedGraph, seconds: float, seed: int) -> NDArray[np.int32]:
    with MeasuredReward([bench.measurer(loaded, Effort(steps=5))]) as reward:
        learn(loaded.problem, reward=reward, budget=Budget(seconds=seconds), seed=seed)
        return _best(reward)


def _best(reward: MeasuredReward) -> NDArray[np.int32]:
    best = reward.best
    if best is None:
        raise BenchError(f"no placement ran: {reward.last_failure}")
    return best[0]


def document(rows: Sequence[ClusterRow], notes: Sequence[str]) -> dict[str, Any]:
    """For JSON."""
    tasks: dict[str, dict[str, Any]] = {}
    for row in rows:
        tasks.setdefault(row.task, {})[row.placement] = {
            key: value for key, value in asdict(row).items() if key not in ("task", "placement")
        }
    for found in tasks.values():
        for name in {PLANNED, REFINED, LEARNED} & found.keys():
            by_hand_s = found[BY_HAND]["measured_s"]
            found[name]["speedup_over_hand"] = by_hand_s / found[name]["measured_s"]
    return {"tasks": tasks, "calibration": list(notes)}
