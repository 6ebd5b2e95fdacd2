"""Real step times on two workers: TensorFlow's placement, a person's, planned, and refined.

    default    everything where the session's worker is: what TensorFlow does by itself
    by hand    the best of the cuts that a person would try, all of them measured
    planned    the planner `auto`, scored by the simulator with measured costs
    refined    local search from there, scored by measured steps
    learned    if wanted: the planner `hierarchical`, scored by measured steps

Goals: planned, by simulation alone, takes at most 1.05 times the better of default and by hand,
1.10 times refined, and never more than 1.03 times default.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.bench.cluster_tasks import ClusterTask, cuts_by_hand
from hplacer_optimizer.bench.measured import Bench
from hplacer_optimizer.capture.loading import LoadedGraph
from hplacer_optimizer.errors import BenchError
from hplacer_optimizer.measuring import Effort, MeasuredReward, measured_search
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.planners.learning import learn
from hplacer_optimizer.problem.simulator import simulate

DEFAULT, BY_HAND, PLANNED = "default", "by hand", "planned"
REFINED, LEARNED = "refined", "learned"
_CUT_ROUNDS = 2  # of five steps each


@dataclass(frozen=True, kw_only=True)
class ClusterRow:
    """One placement of one task."""

    task: str
    placement: str
    step_time_ns: int  # measured, the median
    spread_ns: int  # interquartile range of the measured steps
    steps: int
    predicted_ns: int
    speedup: float
    """Over the default placement, in the same run: the geometric mean over its turns."""
    low: float
    high: float
    """The 95% interval of the speedup."""


def compare(
    bench: Bench,
    tasks: Sequence[ClusterTask],
    *,
    limit_s: float,
    planning_s: float,
    refining_s: float,
    learning_s: float | None = None,
    seed: int = 0,
) -> Iterator[list[ClusterRow]]:
    """Plans and measures the tasks, one after the other: the rows of each."""
    for task in tasks:
        loaded = bench.load(task)
        problem = loaded.problem
        bench.on_start(f"{task.title}: planning")
        budget = Budget(seconds=planning_s)
        planned = get_planner("auto").plan(problem, budget=budget, seed=seed).placement
        bench.on_start(f"{task.title}: cuts by hand")
        default = on_device(problem, 0)
        cuts = dict(cuts_by_hand(problem, task.by_hand))
        tried = bench.measure(task, loaded, cuts, _CUT_ROUNDS)
        best = min(cuts, key=lambda name: tried[name].step_s or math.inf)
        bench.on_start(f"{task.title}: refining by measured steps")
        placements = {
            DEFAULT: default,
            BY_HAND: cuts[best],
            PLANNED: planned,
            REFINED: _refined(bench, loaded, planned, refining_s, seed),
        }
        if learning_s is not None:
            bench.on_start(f"{task.title}: learning by measured steps")
            placements[LEARNED] = _learned(bench, loaded, learning_s, seed)
        measured = bench.take_turns(loaded, placements, DEFAULT, limit_s)
        rows = []
        for name, placement in placements.items():
            makespan_ns = simulate(problem, placement).makespan_ns
            if makespan_ns is None:
                raise BenchError(f"{task.title}: {name}: has no step time")
            low, high = measured[name].interval
            rows.append(
                ClusterRow(
                    task=task.name,
                    placement=name,
                    step_time_ns=round(1e9 * measured[name].step_s),
                    spread_ns=round(1e9 * measured[name].spread_s),
                    steps=len(measured[name].times_s),
                    predicted_ns=makespan_ns,
                    speedup=measured[name].speedup,
                    low=low,
                    high=high,
                )
            )
        yield rows


def _refined(
    bench: Bench,
    loaded: LoadedGraph,
    start: NDArray[np.int32],
    seconds: float,
    seed: int,
) -> NDArray[np.int32]:
    """The best placement that was measured."""
    with MeasuredReward([bench.measurer(loaded, Effort(steps=5))]) as reward:
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
            by_hand = found[BY_HAND]["speedup"]
            found[name]["speedup_over_hand"] = found[name]["speedup"] / by_hand
    return {"tasks": tasks, "calibration": list(notes)}
