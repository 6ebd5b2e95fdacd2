"""How well the simulator predicts real steps: placements of all sorts, simulated and measured.

Goals: rank correlation at least 0.95, median error at most 8%, no plan more than 15% optimistic,
over at least 20 placements of each graph. And another calibration predicts what the first one did,
within 10%.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.cluster_tasks import ClusterTask, Rules, cuts_by_hand
from hplacer_optimizer.bench.measured import Bench
from hplacer_optimizer.errors import BenchError, PlannerUnavailableError
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.planners.devices import on_device, where_possible
from hplacer_optimizer.problem.simulator import simulate

GOAL_CORRELATION, GOAL_ERROR, GOAL_APART = 0.95, 0.08, 0.10

_PLANNERS = ("auto", "etf", "heft", "mincut", "metis")
_BUDGET = Budget(seconds=10.0)
_DEPTHS = (1, 2, 3, 4)  # of name scopes that stay together
_MOVED = (0.01, 0.03, 0.1)  # shares of units that are moved at random
_BASES = ("by hand, cut at 50%", "auto", "worker 0")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One placement of one task."""

    task: str
    placement: str
    predicted_ns: int
    step_time_ns: int  # measured, the median
    spread_ns: int  # interquartile range of the measured steps
    steps: int
    transfers: int
    error: float
    """Relative to the measured time."""
    error_again: float
    """The same by another calibration of the machine and the graph."""
    error_without: Mapping[str, float]
    """The error if a part of the model is left out, by the part."""


def predict(bench: Bench, tasks: Sequence[ClusterTask], rounds: int) -> Iterator[list[Prediction]]:
    """Simulates and measures the placements of each task, one task after the other."""
    for task in tasks:
        loaded = bench.load(task)
        problem = loaded.problem
        bench.on_start(f"{task.title}: planning")
        placements = dict(placements_of(problem, task.by_hand))
        measured = bench.measure(task, loaded, placements, rounds)
        again = bench.problem_again(task)
        ablated = dict(ablations(problem))
        found = []
        for name, placement in placements.items():
            trace = simulate(problem, placement)
            step_s = measured[name].step_s
            if trace.makespan_ns is None or step_s is None:
                raise BenchError(f"{task.title}: {name}: has no step time")
            found.append(
                Prediction(
                    task=task.name,
                    placement=name,
                    predicted_ns=trace.makespan_ns,
                    step_time_ns=round(1e9 * step_s),
                    spread_ns=round(1e9 * (measured[name].spread_s or 0.0)),
                    steps=len(measured[name].times_s),
                    transfers=len(trace.transfers),
                    error=_error(problem, placement, step_s),
                    error_again=_error(again, placement, step_s),
                    error_without={
                        part: _error(other, placement, step_s) for part, other in ablated.items()
                    },
                )
            )
        yield found


def _error(problem: Problem, placement: NDArray[np.int32], step_s: float) -> float:
    return (simulate(problem, placement).makespan_ns or 0) / 1e9 / step_s - 1


def ablations(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """The problem without one part of the model each.

    Without the work of transfers, a transfer takes as long as before, but of its channel alone.
    """
    yield "turns", problem.replace(device_turn_ns=np.zeros_like(problem.device_turn_ns))
    yield "turns of several ops", problem.replace(inter_op_threads=1)
    yield "cold caches", problem.replace(device_cold_ns=np.zeros_like(problem.device_cold_ns))
    yield "starts", problem.replace(device_start_ns=np.zeros_like(problem.device_start_ns))
    none = np.zeros_like(problem.link_send_ns)
    per_byte = sum(
        1 / np.where(rate > 0, rate, np.inf)
        for rate in (
            problem.link_bytes_per_s,
            problem.link_send_bytes_per_s,
            problem.link_receive_bytes_per_s,
        )
    )
    yield (
        "work",
        problem.replace(
            link_latency_ns=problem.link_latency_ns
            + problem.link_send_ns
            + problem.link_receive_ns,
            link_bytes_per_s=np.maximum(1, np.round(1 / per_byte)).astype(np.int64),
            link_send_ns=none,
            link_send_bytes_per_s=none,
            link_receive_ns=none,
            link_receive_bytes_per_s=none,
        ),
    )


def placements_of(
    problem: Problem, by_hand: tuple[Rules, ...], budget: Budget = _BUDGET
) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Single workers, by hand, planned, random ones, and some with a few units moved."""
    known: dict[str, NDArray[np.int32]] = {}
    for worker in range(problem.num_devices):
        known[f"worker {worker}"] = on_device(problem, worker)
    known |= cuts_by_hand(problem, by_hand)
    for planner in _PLANNERS:
        try:
            found = get_planner(planner).plan(problem, budget=budget, seed=0)
            known[planner] = found.placement
        except PlannerUnavailableError:
            continue  # a program or package of its own is not installed
    known["random"] = get_planner("random").plan(problem, seed=0).placement
    yield from known.items()
    for depth in _DEPTHS:
        yield f"random scopes of depth {depth}", _random_scopes(problem, depth)
    for base in _BASES:
        for share in _MOVED:
            yield f"{base}, {share:.0%} moved", _moved(problem, known[base], share)


def _random_scopes(problem: Problem, depth: int) -> NDArray[np.int32]:
    """A random device for all units whose first op has the same first name scopes."""
    rng = np.random.default_rng(depth)
    _, first_op = np.unique(problem.units, return_index=True)
    op_names = problem.op_names
    device_of: dict[str, int] = {}
    wanted = []
    for op in first_op.tolist():
        scope = "/".join(op_names[op].removeprefix("gradients/").split("/")[:depth])
        wanted.append(device_of.setdefault(scope, int(rng.integers(problem.num_devices))))
    return where_possible(problem, np.array(wanted))


def _moved(problem: Problem, placement: NDArray[np.int32], share: float) -> NDArray[np.int32]:
    """Random units on the device after theirs."""
    rng = np.random.default_rng(round(share * 1000))
    _, first_op = np.unique(problem.units, return_index=True)
    moves = rng.random(problem.num_units) < share
    return where_possible(problem, (placement[first_op] + moves) % problem.num_devices)


# ---- what it says ----


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's: that of the ranks, equal values sharing the mean of theirs."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: ArrayLike) -> NDArray[np.float64]:
    _, where, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last: NDArray[np.float64] = np.cumsum(counts).astype(float)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[where]
    return ranks


def summary(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """How good the predictions are, those by another calibration, and those without each part."""
    apart = [abs((1 + p.error_again) / (1 + p.error) - 1) for p in predictions]
    return {
        "placements": len(predictions),
        **_quality(predictions, [p.error for p in predictions]),
        "again": _quality(predictions, [p.error_again for p in predictions])
        | {"apart": float(np.median(apart)), "most_apart": max(apart)},
        "median_error_without": {
            part: float(np.median([abs(p.error_without[part]) for p in predictions]))
            for part in predictions[0].error_without
        },
    }


def _quality(predictions: Sequence[Prediction], errors: Sequence[float]) -> dict[str, Any]:
    """Of predictions with these errors; that of the plan is the most optimistic one."""
    both = list(zip(predictions, errors, strict=True))
    return {
        "most_optimistic_plan": min((e for p, e in both if p.placement == "auto"), default=None),
        "rank_correlation": rank_correlation(
            [(1 + error) * p.step_time_ns for p, error in both],
            [p.step_time_ns for p in predictions],
        ),
        "median_error": float(np.median(np.abs(errors))),
    }


def document(predictions: Sequence[Prediction], notes: Sequence[str]) -> dict[str, Any]:
    """For JSON."""
    tasks = dict.fromkeys(p.task for p in predictions)
    return {
        "goals": {
            "rank_correlation": GOAL_CORRELATION,
            "median_error": GOAL_ERROR,
            "apart": GOAL_APART,
        },
        "all": summary(predictions),
        "tasks": {task: summary([p for p in predictions if p.task == task]) for task in tasks},
        "calibration": list(notes),
        "predictions": [asdict(p) for p in predictions],
    }


def draw(predictions: Sequence[Prediction], path: Path) -> None:
    """A scatter plot as PNG. Raises BenchError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BenchError("charts need matplotlib: pip install 'hplacer-optimizer[bench]'") from None
    figure = Figure(figsize=(6, 5.5), layout="constrained")
    axes = figure.add_subplot()
    for task in dict.fromkeys(p.task for p in predictions):
        points = [p for p in predictions if p.task == task]
        measured, predicted = ([getattr(p, key) / 1e9 for p in points] for key in _AXES)
        axes.scatter(measured, predicted, label=task, alpha=0.8)
    values = [getattr(p, key) / 1e9 for p in predictions for key in _AXES]
    ends = np.array([min(values) * 0.9, max(values) * 1.1])
    axes.plot(ends, ends, color="black", linewidth=1)
    axes.fill_between(ends, ends * (1 - GOAL_ERROR), ends * (1 + GOAL_ERROR), alpha=0.15)
    axes.set(xscale="log", yscale="log", xlabel="measured s/step", ylabel="predicted s/step")
    told = summary(predictions)
    axes.set_title(
        f"{told['placements']} placements, rank correlation {told['rank_correlation']:.2f}, "
        f"median error {told['median_error']:.0%}",
        fontsize="medium",
    )
    axes.legend()
    figure.savefig(path, dpi=150)


_AXES = ("step_time_ns", "predicted_ns")
