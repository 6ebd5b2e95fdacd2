"""Where local search stalls: that it goes on from elsewhere, within its budget, and repeatably."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners import Budget, PlannerResult, Progress, lineages
from hplacer_optimizer.planners.local_search import search
from hplacer_optimizer.problem.simulator import simulate
from testbed.documents import problem_from_dict
from testbed.planted_problems import chains, tight_memory

MODULES = ("native_search", "lineages", "learning.hierarchical", "learning.scoring")


def start_of(problem: Problem) -> NDArray[np.int32]:
    return problem.candidates[problem.candidate_ptr[:-1]][problem.units].astype(np.int32)


def run(problem: Problem, **options: Any) -> PlannerResult:
    options = {"budget": Budget(steps=16_000), "seed": 0, **options}
    return lineages.search(problem, [start_of(problem)], **options)


def stalling() -> Problem:
    """Its optimum is found at once."""
    return problem_from_dict(chains(4, 30, cost_ns=100, size_bytes=200)[0])


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The parts that searches have used."""
    used: list[str] = []
    for part in ("race", "learn"):
        method = getattr(lineages._Lineages, f"_{part}")

        def noted(*args: Any, part: str = part, method: Any = method) -> Any:
            used.append(part)
            return method(*args)

        monkeypatch.setattr(lineages._Lineages, f"_{part}", noted)
    return used


def test_a_search_that_stalls_ends_and_says_so() -> None:
    problem = stalling()
    options: dict[str, Any] = {"budget": Budget(steps=50_000), "seed": 0, "on_progress": None}
    found = search(problem, [start_of(problem)], until_stalled=True, **options)
    assert (found.was_stalled, found.ended_by_time, found.notes) == (True, False, ())
    gained = next(p.steps for p in found.curve if p.best_ns == found.curve[-1].best_ns)
    assert 4000 < found.steps <= 1.5 * gained + 4100
    options["budget"] = Budget(steps=5_000)
    assert not search(problem, [start_of(problem)], **options).was_stalled


def test_parts_take_turns_within_the_steps_of_the_budget(tried: list[str]) -> None:
    problem = stalling()
    told: list[Progress] = []
    found = run(problem, on_progress=told.append)
    assert tried[:2] == ["learn", "race"]
    assert found.steps == told[-1].steps <= 16_000 + 32
    steps = [progress.steps for progress in told]
    assert steps == sorted(set(steps))
    best = [progress.best_ns for progress in told if progress.best_ns is not None]
    assert best == sorted(best, reverse=True)
    assert simulate(problem, found.placement).makespan_ns == best[-1] == 3211


def test_several_starts_race_and_none_beats_the_result() -> None:
    problem = problem_from_dict(chains(4, 30, cost_ns=100, size_bytes=200)[0])
    options: dict[str, Any] = {"budget": Budget(steps=400), "seed": 0}
    alone = start_of(problem)
    best = run(problem).placement
    told: list[Progress] = []
    both = lineages.search(problem, [alone, best], on_progress=told.append, **options)
    assert simulate(problem, both.placement).makespan_ns == 3211
    assert both.steps == told[-1].steps <= 400 + 32
    assert told[-1].best_ns == 3211
    options["budget"] = Budget(steps=1)  # not enough for a search from each
    first = lineages.search(problem, [best, alone], **options)
    assert simulate(problem, first.placement).makespan_ns == 3211


def test_what_is_left_out_is_not_tried(tried: list[str]) -> None:
    problem = stalling()
    for without, used in (("race", {"learn"}), ("learner", {"race"})):
        run(problem, without={without})
        assert set(tried) == used
        tried.clear()
    alone = run(problem, without=lineages.PARTS)
    options: dict[str, Any] = {"budget": Budget(steps=16_000), "seed": 0, "on_progress": None}
    plain = search(problem, [start_of(problem)], **options)
    assert not tried
    assert (alone.steps, alone.placement.tobytes()) == (plain.steps, plain.placement.tobytes())


def test_no_number_of_threads_changes_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_from_dict(chains(3, 60, cost_ns=100, size_bytes=900)[0])
    found = []
    for threads in (1, 3):
        for module in MODULES:
            name = f"hplacer_optimizer.planners.{module}.whole_cores"
            monkeypatch.setattr(name, lambda threads=threads: threads)
        result = run(problem, seed=5)
        found.append((result.steps, result.placement.tobytes()))
    assert found[0] == found[1]


def test_patience_counts_over_all_searches(tried: list[str]) -> None:
    found = run(stalling(), budget=Budget(seconds=60, patience=12_000))
    assert tried
    assert found.steps < 40_000


@pytest.mark.parametrize("part", ["race", "learn"])
def test_a_stop_ends_every_part(tried: list[str], part: str) -> None:
    stop = threading.Event()
    after: list[Progress] = []

    def tell(progress: Progress) -> None:
        if part in tried:
            after.append(progress)
            stop.set()

    run(stalling(), budget=Budget(seconds=600, stop=stop), on_progress=tell)
    assert stop.is_set()
    assert len(after) <= 2


def test_few_placements_and_full_memories_try_nothing_else(tried: list[str]) -> None:
    few = problem_from_dict(chains(2, 4, cost_ns=100, size_bytes=200)[0])
    found = run(few)
    assert found.steps < 16_000
    document = tight_memory(3, 12, fill=0.98, seed=0)
    for device in document["devices"]:
        device["memory_bytes"] = 1
    full = problem_from_dict(document)
    options: dict[str, Any] = {"budget": Budget(steps=8_000), "seed": 0}
    plain = search(full, [start_of(full)], on_progress=None, **options)
    assert run(full, **options).placement.tobytes() == plain.placement.tobytes()
    assert plain.placement.tobytes() != start_of(full).tobytes()
    assert not tried
