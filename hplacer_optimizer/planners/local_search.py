"""The `local_search` planner: anytime multilevel search by simulation, in one native call.

`cc/engine/search/local_search.h` says how. Starts are the list schedulers and each device alone; a
caller may add placements of its own (`search`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.planners import simple, topo
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.devices import devices_of_type
from hplacer_optimizer.planners.native_search import search_keywords
from hplacer_optimizer.planners.result import PlannerResult, Watch
from hplacer_optimizer.problem.simulator import simulate

_LEAST_SECONDS, _SECONDS_PER_OP, _MOST_SECONDS = 10.0, 1e-3, 60.0
_PATIENCE, _PATIENCE_PER_OP = 20_000, 10
_HOLDERS_TOLD = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Searched(PlannerResult):
    """What a search found."""

    was_stalled: bool  # it ended as little was gained any more, not by its budget
    ended_by_time: bool


def default_budget(problem: Problem) -> Budget:
    """A second for 1,000 ops, 10 to 60 seconds; less where nothing gets better."""
    seconds = min(max(_LEAST_SECONDS, _SECONDS_PER_OP * problem.num_ops), _MOST_SECONDS)
    return Budget(seconds=seconds, patience=patience(problem.num_ops))


def patience(num_ops: int) -> int:
    """Evaluations without a better placement after which to expect none."""
    return _PATIENCE + _PATIENCE_PER_OP * num_ops


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Plans as any `Planner`.

    A step of the budget is one evaluation: a placement made and scored. A note tells how many there
    were if the time ended the search: a budget of so many steps repeats it.
    """
    return search(problem, [], budget=budget, seed=seed, on_progress=on_progress)


def search(
    problem: Problem,
    starts: Sequence[NDArray[np.int32]],
    *,
    budget: Budget | None,
    seed: int,
    on_progress: ProgressCallback | None,
    until_stalled: bool = False,
    without: Collection[str] = (),
) -> Searched:
    """The same, from further placements (int32[n] each): the result is no worse than any.

    Args:
        problem: as for `plan`, and so are `budget`, `seed` and `on_progress`.
        starts: the placements.
        budget: of the search.
        seed: of what it draws.
        on_progress: is told of what it finds.
        until_stalled: ends when little is gained any more (cc/engine/search/search_clock.h).
        without: parts that are left out, to see what they give (`_engine.local_search`).
    """
    begin_s = time.monotonic()
    budget = (budget or Budget()).or_default(default_budget(problem))
    rows = [*starts, *_cheap_starts(problem)]
    watch = Watch(on_progress)
    all_starts = np.array(rows, np.int32).reshape(len(rows), problem.num_ops)
    placement, evaluations, ended_by_time, was_stalled = _engine.local_search(
        problem,
        all_starts,
        until_stalled=until_stalled,
        without=set(without),
        **search_keywords(budget, watch, begin_s=begin_s, seed=seed),
    )
    notes = [f"local_search: {evaluations} evaluations"] if ended_by_time else []
    return Searched(
        placement=placement,
        notes=(*notes, *_what_is_missing(problem, placement)),
        curve=watch.curve,
        steps=watch.last.steps,
        placements=watch.last.placements,
        was_stalled=was_stalled,
        ended_by_time=ended_by_time,
    )


def _what_is_missing(problem: Problem, placement: NDArray[np.int32]) -> Iterator[str]:
    """Says that no placement is feasible where that is proved, else what this one lacks."""
    trace = simulate(problem, placement)
    if trace.feasible:
        return
    proof = _engine.lower_bound(problem).infeasible_because
    for reason in proof:
        yield f"local_search: no placement is feasible: {reason}"
    if not proof:
        yield f"local_search: found no feasible placement: {trace.infeasible_because[0]}"
    missing = trace.peak_bytes - problem.device_memory_bytes
    if trace.makespan_ns is None or missing.max() <= 0:
        return
    device = int(missing.argmax())
    holders = [
        f"{what} of '{problem.op_names[op]}' ({size_bytes} bytes)"
        for op, what, size_bytes in trace.peak_holders(device)[:_HOLDERS_TOLD]
    ]
    device_name = problem.device_names[device]
    yield f"local_search: most of the memory of '{device_name}' holds {', '.join(holders)}"


def _cheap_starts(problem: Problem) -> list[NDArray[np.int32]]:
    _engine.check_candidates(problem)
    if not problem.num_devices:
        return []
    starts = [topo.plan(problem).placement]
    if devices_of_type(problem, "GPU"):
        starts.append(simple.gpu_only(problem).placement)
    if devices_of_type(problem, "CPU"):
        starts.append(simple.cpu_only(problem).placement)
    return starts
