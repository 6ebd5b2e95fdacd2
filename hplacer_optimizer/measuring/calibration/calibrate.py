"""Measures a machine that is running, and the ops of a graph on it.

    description of the machine --probes--> Machine with measured rates and links
    graph --steps, traces--> CostTable

A machine is this host or a cluster of TensorFlow servers. Call it in a process where the optimizer
is off (HPLACER_DISABLE=1).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.costs.table import CostTable
from hplacer_optimizer.machines import DeviceKind, Link, Machine, full_device_name
from hplacer_optimizer.machines.describe import describe_cluster, describe_host
from hplacer_optimizer.measuring.calibration.fitting import LinkFit
from hplacer_optimizer.measuring.calibration.op_costs import OpCosts, measure_op_costs
from hplacer_optimizer.measuring.calibration.probes import FLOAT_BYTES, MATRIX, Probes
from hplacer_optimizer.measuring.step_runner import StepRunner
from hplacer_optimizer.measuring.target import Target, session_target

SIZES_BYTES = (64, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
_HOPS = {size: 8 if size >= 1 << 20 else 32 for size in SIZES_BYTES}
_FEW_OPS, _MANY_OPS = 100, 1100
_LARGE_ELEMENTS, _LARGE_OPS = 1 << 20, 8
_PRODUCTS = 8
_MOST_SLOTS = 1024
_GAIN = 1.3  # of throughput: below it, twice as many ops at once are no faster

OnProgress = Callable[[int, int, str], None]  # steps done, of so many, what is next


@dataclass(frozen=True, kw_only=True)
class MeasuredMachine:
    """Rates, overheads and links."""

    machine: Machine
    notes: list[str]
    """What was found, with its spread, one sentence each."""


@dataclass(frozen=True, kw_only=True)
class MeasuredGraph:
    """The costs of a graph's ops."""

    costs: CostTable
    notes: list[str]


def calibrate_machine(
    *,
    addresses: Sequence[str] | None = None,
    timeout_s: float = 120.0,
    on_progress: OnProgress = lambda done, total, what: None,
) -> MeasuredMachine:
    """Measures a machine.

    Args:
        addresses: of the servers of a cluster, "host:port" each; None: this host.
        timeout_s: longest wait for TensorFlow and the servers.
        on_progress: called before every measurement.

    Raises:
        MachineError: a server does not answer.
        tf.errors.OpError: what TensorFlow says of a step, such as that a server was lost.
    """
    if addresses is None:
        described = describe_host(timeout_s=timeout_s)
    else:
        described = describe_cluster(addresses, timeout_s=timeout_s)
    target = _target(described, addresses)
    devices, kinds = len(described.devices), len(described.kinds)
    total = 3 * kinds + len(SIZES_BYTES) * (devices * (devices - 1) // 2)
    running = _Machine(described, Probes(target), _Progress(total, on_progress))
    return MeasuredMachine(machine=running.run(), notes=running.notes)


def calibrate_graph(
    graph: object,
    machine: Machine,
    *,
    addresses: Sequence[str] | None = None,
    steps: int = 8,
    on_progress: OnProgress = lambda done, total, what: None,
    **graph_options: Any,
) -> MeasuredGraph:
    """Measures the ops of a graph, on one device of each kind of CPU of the machine.

    Args:
        graph: as for `load_graph`.
        machine: whose devices are those at `addresses`, with measured overheads.
        addresses: of the servers of a cluster; None: this host.
        steps: so many with a trace and twice as many without, on each of these devices.
        on_progress: called before every measurement.
        graph_options: keywords of `load_graph`.

    Raises:
        GraphError: the graph cannot be read, or not run outside of its program.
        tf.errors.OpError: what TensorFlow says of a step, such as that a server was lost.
    """
    progress = _Progress(1 + 3 * len(machine.kinds), on_progress)
    progress("loading the graph")
    loaded = load_graph(graph, machine=machine, keep_graph=True, **graph_options)
    assert loaded.step is not None
    costs = CostTable()
    runner = StepRunner(loaded.step, _target(machine, addresses))
    found = measure_op_costs(loaded, runner, costs, steps=steps, on_step=progress)
    return MeasuredGraph(costs=costs, notes=[_describe_costs(of_kind) for of_kind in found])


def _target(machine: Machine, addresses: Sequence[str] | None) -> Target:
    names = [full_device_name(name) for name in machine.device_names]
    return Target(session=session_target(addresses), device_names=names)


class _Progress:
    """Counts measurements."""

    def __init__(self, total: int, tell: OnProgress) -> None:
        self._total = total
        self._done = 0
        self._tell = tell

    def __call__(self, what: str) -> None:
        self._tell(self._done, self._total, what)
        self._done += 1


class _Machine:
    """A described machine, on its way to a measured one."""

    def __init__(self, described: Machine, probes: Probes, progress: _Progress) -> None:
        self._described = described
        self._names = [full_device_name(name) for name in described.device_names]
        self._probes = probes
        self._progress = progress
        self.notes: list[str] = []

    def run(self) -> Machine:
        """With measured kinds and links, which its assumptions say."""
        first = {kind: self._described.device_kind.index(kind) for kind in range(self._num_kinds)}
        kinds = [self._kind(kind, self._names[first[kind]]) for kind in range(self._num_kinds)]
        devices = self._described.devices
        links = [
            link
            for a, b in itertools.combinations(range(len(devices)), 2)
            for link in self._links(a, b)
        ]
        day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        alike = ", ".join(devices[index].name for index in first.values())
        return replace(
            self._described,
            kinds=tuple(kinds),
            links=tuple(links),
            assumptions=(
                f"rates and links as measured on {day}; all devices of a kind are like {alike}",
            ),
        )

    @property
    def _num_kinds(self) -> int:
        return len(self._described.kinds)

    def _kind(self, index: int, device: str) -> DeviceKind:
        kind = self._described.kinds[index]
        self._progress(f"launch overhead of {kind.name}")
        few, many = (self._probes.chain([device], ops, 1) for ops in (_FEW_OPS, _MANY_OPS))
        launch_s = (many.value_s - few.value_s) / (_MANY_OPS - _FEW_OPS)
        launch_ns = max(1, round(1e9 * launch_s))
        self._progress(f"memory bandwidth of {kind.name}")
        short = self._probes.chain([device], 1, _LARGE_ELEMENTS)
        long = self._probes.chain([device], 1 + _LARGE_OPS, _LARGE_ELEMENTS)
        op_s = max((long.value_s - short.value_s) / _LARGE_OPS - launch_s, 1e-9)
        bytes_per_s = round(2 * FLOAT_BYTES * _LARGE_ELEMENTS / op_s)
        self._progress(f"slots of {kind.name}")
        slots, product_s = self._slots(device)
        flops_per_s = 2 * MATRIX**3 / max(product_s - launch_s, 1e-9)
        rate = flops_per_s / kind.flops_per_s["float32"]
        self.notes.append(
            f"{kind.name}: {slots} slots of {flops_per_s / 1e9:.3g} GFLOP/s and "
            f"{bytes_per_s / 1e9:.3g} GB/s, an op costs {launch_ns / 1e3:.3g} us beside them "
            f"(spread of the steps {many.spread:.0%})"
        )
        return replace(
            kind,
            flops_per_s={
                dtype: float(f"{peak * rate:.4g}") for dtype, peak in kind.flops_per_s.items()
            },
            memory_bytes_per_s=bytes_per_s,
            launch_overhead_ns=launch_ns,
            executor_overhead_ns=min(kind.executor_overhead_ns, launch_ns),
            slots=slots,
        )

    def _slots(self, device: str) -> tuple[int, float]:
        """How many products run at once, and how long one takes."""
        alone = self._probes.products(device, 1, 1 + _PRODUCTS).value_s
        base = self._probes.products(device, 1, 1).value_s
        product_s = max(alone - base, 1e-9) / _PRODUCTS
        chains, rate = 1, 1.0  # products at once, in units of one alone
        while chains < _MOST_SLOTS:
            together = self._probes.products(device, 2 * chains, 1 + _PRODUCTS).value_s
            base = self._probes.products(device, 2 * chains, 1).value_s
            faster = 2 * chains * _PRODUCTS * product_s / max(together - base, 1e-9)
            if faster < _GAIN * rate:
                break
            chains, rate = 2 * chains, faster
        return max(1, round(rate)), product_s

    def _links(self, a: int, b: int) -> list[Link]:
        """Both directions of a pair, which are taken to be equally fast.

        A transfer takes as long as it takes alone, or as the work that it makes for the processors
        at its two ends, if that is more: large messages are worked on at both ends at once, which
        is no gain where both ends have ops to run.
        """
        src, dst = self._names[a], self._names[b]
        seconds, spreads = [], []
        for size in SIZES_BYTES:
            self._progress(f"{size:,} bytes between {src} and {dst}")
            hops, elements = _HOPS[size], size // FLOAT_BYTES
            moved = self._probes.chain([src, dst], hops, elements)
            stayed = self._probes.chain([src], hops, elements)
            alone_s = (moved.value_s - stayed.value_s) / hops
            work_s = self._work_s(src, dst, hops, elements)
            seconds.append(max(alone_s, work_s))
            spreads.append(moved.spread)
        fit = LinkFit.of(SIZES_BYTES, seconds)
        ends = [self._described.devices[index].name for index in (a, b)]
        self.notes.append(
            f"{ends[0]} <-> {ends[1]}: {fit.latency_s * 1e6:.3g} us and "
            f"{fit.bytes_per_s / 1e9:.3g} GB/s fit the transfers within {fit.error:.0%} (spread of "
            f"the steps {max(spreads):.0%})"
        )
        return [
            Link(
                src=start,
                dst=end,
                channel=f"{start} -> {end}",
                latency_ns=round(1e9 * fit.latency_s),
                bytes_per_s=max(1, round(fit.bytes_per_s)),
            )
            for start, end in (ends, ends[::-1])
        ]

    def _work_s(self, src: str, dst: str, count: int, elements: int) -> float:
        """Of both ends, for a transfer: what it adds to a step in which both always compute."""
        crossing = [(src, dst), (dst, src)]
        staying = [(src, src), (dst, dst)]
        moved, stayed = (
            self._probes.transfers_amid_work(pairs, count, elements)
            for pairs in (crossing, staying)
        )
        return 2 * (moved.value_s - stayed.value_s) / count


def _describe_costs(found: OpCosts) -> str:
    return (
        f"{found.kind}: {found.ran:,} ops ran on {found.device} in a step of "
        f"{found.step.value_s * 1e3:.3g} ms (spread {found.step.spread:.0%}); "
        f"{found.attributed:.1%} of the traced time has an op"
    )
