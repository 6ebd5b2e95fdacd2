"""Costs of a graph's ops, from steps that run on one device of each kind.

    StepRunner --steps, traces--> times of ops --by signature--> CostTable

Nodes are known by their names. Grappler folds ops away and fuses them into others, whose name one
of them keeps: an op of the step without an entry did not run and costs nothing, and an op that
others were fused into has their cost. They are one unit, so no placement tells them apart.

What a trace does not show (the executor) is the difference between a step without a trace, less the
start of a step, and the sum of its ops; every op that ran has an equal part of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture.loading import LoadedGraph
from hplacer_optimizer.costs.table import CostTable, MeasuredCost
from hplacer_optimizer.measuring.calibration.fitting import Timing
from hplacer_optimizer.measuring.calibration.traces import op_times_ns
from hplacer_optimizer.measuring.step_runner import StepRunner
from hplacer_optimizer.planners.devices import on_device

_WARMUP = 3


@dataclass(frozen=True, kw_only=True)
class OpCosts:
    """What one kind's steps told."""

    kind: str
    device: str
    step: Timing
    """Without a trace."""
    attributed: float
    """The share of the traced time that belongs to ops of the step, by name."""
    ran: int
    """Ops that ran on the device."""


def measure_op_costs(
    loaded: LoadedGraph,
    runner: StepRunner,
    table: CostTable,
    *,
    steps: int,
    on_step: Callable[[str], None] = lambda what: None,
) -> list[OpCosts]:
    """Fills `table` with the costs of all ops that can run on a CPU device, of each kind once."""
    problem = loaded.problem
    found = []
    for kind, device in _first_devices(problem).items():
        name = problem.device_names[device]
        placement = on_device(problem, device)
        on_step(f"steps on {name}")
        seconds = runner.run(placement, steps=steps, warmup=_WARMUP)
        on_step(f"traced steps on {name}")
        traces = runner.trace(placement, steps=steps, warmup=_WARMUP)
        on_step(f"steps on {name}")
        seconds += runner.run(placement, steps=steps, warmup=_WARMUP)
        step = Timing(seconds=tuple(seconds))
        slots = int(problem.device_slots[device])
        by_name = [op_times_ns(traced.step_stats, name, slots) for traced in traces]
        times_ns, attributed = _times_of_ops(loaded, by_name)
        ran = times_ns > 0
        if (placement == device).all():
            start_ns = float(problem.device_start_ns[device])
            times_ns = _as_long_as(times_ns, (step.value_s * 1e9 - start_ns) * slots)
        elif not loaded.machine.kinds[kind].launches_ahead:
            times_ns[ran] += loaded.machine.kinds[kind].launch_overhead_ns
        _fill(table, problem, loaded, placement == device, times_ns, kind, len(traces))
        found.append(
            OpCosts(
                kind=problem.device_kinds[kind],
                device=name,
                step=step,
                attributed=attributed,
                ran=int(np.count_nonzero(ran)),
            )
        )
    return found


def _first_devices(problem: Problem) -> dict[int, int]:
    """By kind, of those whose name says CPU: traces of others do not tell when an op ran there."""
    found: dict[int, int] = {}
    for device, kind in enumerate(problem.device_kind.tolist()):
        if "/device:CPU:" in problem.device_names[device]:
            found.setdefault(kind, device)
    return found


def _times_of_ops(
    loaded: LoadedGraph, by_name: Sequence[dict[str, float]]
) -> tuple[NDArray[np.float64], float]:
    """float64[n], the medians over the traced steps, and the share of time that has an op."""
    assert loaded.step is not None
    op_of = dict(zip(loaded.step.node_names, loaded.step.node_op.tolist(), strict=True))
    times_ns = np.zeros((len(by_name), loaded.problem.num_ops))
    unknown_ns = 0.0
    for row, step in enumerate(by_name):
        for name, spent_ns in step.items():
            if name in op_of:
                times_ns[row, op_of[name]] += spent_ns
            else:
                unknown_ns += spent_ns
    known_ns = times_ns.sum()
    return np.median(times_ns, axis=0), float(known_ns / max(known_ns + unknown_ns, 1.0))


def _as_long_as(times_ns: NDArray[np.float64], step_ns: float) -> NDArray[np.float64]:
    """The times such that their sum is that of the step."""
    ran = times_ns > 0
    step_ns = max(step_ns, 0.0)
    missing_ns = step_ns - times_ns.sum()
    if missing_ns > 0:
        return times_ns + np.where(ran, missing_ns / max(np.count_nonzero(ran), 1), 0.0)
    shorter: NDArray[np.float64] = times_ns * (step_ns / times_ns.sum())
    return shorter


def _fill(
    table: CostTable,
    problem: Problem,
    loaded: LoadedGraph,
    here: NDArray[np.bool_],
    times_ns: NDArray[np.float64],
    kind: int,
    steps: int,
) -> None:
    """The mean over the ops of a signature, which share one entry: their sum stays what it is."""
    by_signature: defaultdict[str, list[float]] = defaultdict(list)
    signatures = loaded.captured.op_signatures
    runs = ~loaded.captured.is_removed & (problem.cost_ns[:, kind] >= 0)
    for op in np.flatnonzero(here & runs).tolist():
        if signatures[op]:
            by_signature[signatures[op]].append(times_ns[op])
    for signature, times in by_signature.items():
        cost = MeasuredCost(round(float(np.mean(times))), len(times) * steps)
        table.set(signature, problem.device_kinds[kind], cost)
