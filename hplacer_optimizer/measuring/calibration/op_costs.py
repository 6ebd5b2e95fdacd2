"""Costs of a graph's ops, from steps that run on one device of each kind.

    StepRunner --steps, traces--> times of ops --by signature--> CostTable, launch overheads

Nodes are known by their names. Grappler folds ops away and fuses them into others, whose name one
of them keeps: an op of the step without an entry did not run and costs nothing, and an op that
others were fused into has their cost. They are one unit, so no placement tells them apart.

A trace of a CPU does not show the executor. Every op that ran has an equal part of it, such that
the simulated step takes as long as a measured one without a trace.

On a GPU an op costs what its kernels take. What the host takes to launch one differs by op: from 7
us (Neg) to 37 us (Conv2D) where that was measured. The simulator has one figure, so it is that of
the graph's own mix: with it, the simulated step takes as long as the measured one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import emulation
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture.loading import LoadedGraph
from hplacer_optimizer.costs.table import CostTable, MeasuredCost
from hplacer_optimizer.errors import MeasuringError
from hplacer_optimizer.machines import full_device_name
from hplacer_optimizer.measuring.calibration.fitting import Timing
from hplacer_optimizer.measuring.calibration.traces import OnGpu, op_times_ns, times_on_gpu
from hplacer_optimizer.measuring.step_runner import StepRunner
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.problem.simulator import simulate

_WARMUP = 3
_ORDERS = 5  # of launches
_HALVINGS = 40  # of what is between times that are too short and too long
_SIMULATED_WITHIN = 0.05  # of an executed step, as far as launches go (docs/results/emulation.md)

_Traced = TypeVar("_Traced")
OnStep = Callable[[str], None]  # told what begins


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
    """Ops that ran on the device; on a GPU those that launched kernels."""
    launch_ns: int | None
    """Of the host, for an op; None: the device launches nothing ahead."""


def measure_op_costs(
    loaded: LoadedGraph,
    runner: StepRunner,
    table: CostTable,
    *,
    steps: int,
    devices: Collection[int] | None = None,
    on_step: OnStep = lambda what: None,
) -> list[OpCosts]:
    """Fills `table` with the costs of all ops that these devices can run; None: one of each kind.

    Raises MeasuringError if no kernel is traced on a GPU.
    """
    problem = loaded.problem
    found = []
    for device in _first_devices(problem) if devices is None else devices:
        measured = _on_gpu if problem.device_launch_ns[device] > 0 else _on_cpu
        found.append(measured(loaded, runner, table, device, steps, on_step))
    return found


def _on_cpu(
    loaded: LoadedGraph,
    runner: StepRunner,
    table: CostTable,
    device: int,
    steps: int,
    on_step: OnStep,
) -> OpCosts:
    problem = loaded.problem
    kind, name = int(problem.device_kind[device]), problem.device_names[device]
    placement = on_device(problem, device)
    step, traces = _time_and_trace(
        lambda: runner.run(placement, steps=steps, warmup=_WARMUP),
        lambda: runner.trace(placement, steps=steps, warmup=_WARMUP),
        lambda what: on_step(f"{what} on {name}"),
    )
    slots = int(problem.device_slots[device])
    full_name = full_device_name(name)
    by_name = [op_times_ns(traced.step_stats, full_name, slots) for traced in traces]
    times_ns, attributed = _times_of_ops(loaded, by_name)
    ran = times_ns > 0
    if (placement == device).all():
        times_ns = as_long_as(problem, placement, kind, times_ns, step.median_s * 1e9)
    else:
        times_ns[ran] += loaded.machine.kinds[kind].launch_overhead_ns
    _fill(table, problem, loaded, placement == device, times_ns, kind, len(traces))
    return OpCosts(
        kind=problem.device_kinds[kind],
        device=name,
        step=step,
        attributed=attributed,
        ran=int(np.count_nonzero(ran)),
        launch_ns=None,
    )


def _on_gpu(
    loaded: LoadedGraph,
    runner: StepRunner,
    table: CostTable,
    device: int,
    steps: int,
    on_step: OnStep,
) -> OpCosts:
    problem = loaded.problem
    kind, name = int(problem.device_kind[device]), problem.device_names[device]
    placement = on_device(problem, device)
    step, traced = _time_and_trace(
        lambda: runner.run(placement, steps=steps, warmup=_WARMUP),
        lambda: _trace_gpu(runner, placement, name, steps),
        lambda what: on_step(f"{what} on {name}"),
    )
    times_ns, attributed = _times_of_ops(loaded, [of_step.kernels_ns for of_step in traced])
    launching = int(np.count_nonzero(times_ns))
    if not launching:
        raise MeasuringError(
            f"{name}: no kernel was traced in a step; TensorFlow needs the library CUPTI of CUDA "
            "(libcupti.so) for that"
        )
    here = placement == device
    _fill(table, problem, loaded, here, times_ns, kind, len(traced))
    cost_ns = problem.cost_ns.copy()
    runs = here & (cost_ns[:, kind] >= 0)
    cost_ns[runs, kind] = np.rint(times_ns[runs]).astype(np.int64)
    step_ns = step.median_s * 1e9
    host_ns = [
        step_ns if of_step.launches_ns is None else sum(of_step.launches_ns.values()) / launching
        for of_step in traced
    ]
    launch_ns = _launch_ns(
        problem.replace(cost_ns=cost_ns), placement, device, step_ns, float(np.median(host_ns))
    )
    return OpCosts(
        kind=problem.device_kinds[kind],
        device=name,
        step=step,
        attributed=attributed,
        ran=launching,
        launch_ns=launch_ns,
    )


def _time_and_trace(
    run: Callable[[], list[float]], trace: Callable[[], list[_Traced]], on_step: OnStep
) -> tuple[Timing, list[_Traced]]:
    """Steps before and after the traced ones, and these."""
    on_step("steps")
    seconds = run()
    on_step("traced steps")
    traced = trace()
    on_step("steps")
    return Timing(seconds=(*seconds, *run())), traced


def _trace_gpu(
    runner: StepRunner, placement: NDArray[np.int32], name: str, steps: int
) -> list[OnGpu]:
    """What each step does on the GPU of this name."""
    if not emulation.is_on():
        traces = runner.trace(placement, steps=steps, warmup=_WARMUP)
        return [times_on_gpu(traced.step_stats, full_device_name(name)) for traced in traces]
    number, found = int(name.rpartition(":")[2]), []
    with runner.placed(placement) as step:
        step.warm_up(_WARMUP)
        for _ in range(steps):
            with emulation.traced() as ran:
                step.time(1)
            kernels: Counter[str] = Counter()
            for event in ran:
                if event.kind == "kernel" and event.source == number:
                    kernels[event.name] += event.end_ns - event.start_ns
            found.append(OnGpu(kernels_ns=kernels, launches_ns=None))
    return found


def _launch_ns(
    problem: Problem,
    placement: NDArray[np.int32],
    device: int,
    step_ns: float,
    most_ns: float,
) -> int:
    """Of an op, such that the simulated step takes as long as the measured one.

    At least what the device has: where kernels are what takes time, a step tells nothing of
    launches. At most `most_ns`, what the host took in the traces. Nobody knows the order of
    launches, so the simulated step is the median of several.
    """
    least = int(problem.device_launch_ns[device])

    def simulated_ns(launch_ns: int) -> float:
        all_ns = problem.device_launch_ns.copy()
        all_ns[problem.device_kind == problem.device_kind[device]] = launch_ns
        steps_ns = [
            simulate(
                problem.replace(device_launch_ns=all_ns, launch_seed=seed), placement
            ).makespan_ns
            for seed in range(_ORDERS)
        ]
        return float(np.median([ns or 0 for ns in steps_ns]))

    if simulated_ns(least) > (1 - _SIMULATED_WITHIN) * step_ns:
        return least
    low, high = least, max(least, round(most_ns))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if simulated_ns(middle) < step_ns else (low, middle)
    return low


def _first_devices(problem: Problem) -> Collection[int]:
    """One of each kind, of CPUs and GPUs: traces of others do not tell when an op ran there."""
    found: dict[int, int] = {}
    for device, kind in enumerate(problem.device_kind.tolist()):
        is_cpu = "/device:CPU:" in problem.device_names[device]
        if is_cpu or problem.device_launch_ns[device] > 0:
            found.setdefault(kind, device)
    return found.values()


def _times_of_ops(
    loaded: LoadedGraph, by_name: Sequence[Mapping[str, float]]
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


def as_long_as(
    problem: Problem,
    placement: NDArray[np.int32],
    kind: int,
    times_ns: NDArray[np.float64],
    step_ns: float,
) -> NDArray[np.float64]:
    """The times such that the simulated step takes as long: equally longer ones, or a share."""
    ran, runs = times_ns > 0, problem.cost_ns[:, kind] >= 0

    def fitted(amount: float) -> NDArray[np.float64]:
        """Up to 1 a share of the times, beyond it all of them and a share of the step for each."""
        longer_ns = max(amount - 1, 0.0) * step_ns
        return np.where(ran, times_ns * min(amount, 1.0) + longer_ns, 0.0)

    def is_shorter(amount: float) -> bool:
        cost_ns = problem.cost_ns.copy()
        cost_ns[runs, kind] = np.rint(fitted(amount)[runs]).astype(np.int64)
        return (simulate(problem.replace(cost_ns=cost_ns), placement).makespan_ns or 0) < step_ns

    low, high = (1.0, 2.0) if is_shorter(1.0) else (0.0, 1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_shorter(middle) else (low, middle)
    return fitted(high)


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
