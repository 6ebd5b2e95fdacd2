"""Measures a machine that is running, and the ops of a graph on it.

    description of the machine --probes--> Machine with measured rates and links
    graph --steps, traces--> CostTable

A machine is this host or a cluster of TensorFlow servers. Call it in a process where the optimizer
is off (HPLACER_DISABLE=1).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from hplacer_optimizer.calibration.fitting import LinkFit
from hplacer_optimizer.calibration.op_costs import OpCosts, measure_op_costs
from hplacer_optimizer.calibration.probes import FLOAT_BYTES, MATRIX, Probes
from hplacer_optimizer.costs import CostTable
from hplacer_optimizer.loaders import LoadedGraph, load_graph
from hplacer_optimizer.machines import DeviceKind, Link, Machine, full_device_name
from hplacer_optimizer.machines.describe import describe_cluster, describe_host
from hplacer_optimizer.measuring.step_runner import StepRunner
from hplacer_optimizer.measuring.target import Target, session_target

SIZES_BYTES = (64, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
_HOPS = {size: 8 if size >= 1 << 20 else 32 for size in SIZES_BYTES}
_FEW_OPS, _MANY_OPS = 100, 1100
_LARGE_ELEMENTS, _LARGE_OPS = 1 << 20, 8
_PRODUCTS = 8
_MOST_SLOTS = 1024
_GAIN = 1.3  # of throughput: below it, twice as many ops at once are no faster
_STREAM_ELEMENTS, _STREAM = 1 << 14, (4, 20)
_ONE_CHANNEL = 0.75

OnProgress = Callable[[int, int, str], None]  # steps done, of so many, what is next


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured."""

    machine: Machine
    costs: CostTable | None  # without a graph
    notes: list[str] = field(default_factory=list)
    """What was found, with its spread, one sentence each."""
    loaded: LoadedGraph | None = None


def calibrate(
    *,
    addresses: Sequence[str] | None = None,
    graph: object = None,
    graph_options: Mapping[str, Any] | None = None,
    steps: int = 8,
    timeout_s: float = 120.0,
    on_progress: OnProgress = lambda done, total, what: None,
) -> Calibration:
    """Measures a machine, and the costs of a graph's ops on it.

    Args:
        addresses: of the servers of a cluster, "host:port" each; None: this host.
        graph: as for `load_graph`; None: no op costs.
        graph_options: keywords of `load_graph` but for the machine and costs.
        steps: of the graph, traced and twice as many not, on a device of each kind.
        timeout_s: longest wait for TensorFlow and the servers.
        on_progress: called before every measurement.

    Raises:
        MachineError: a server does not answer.
        GraphError: the graph cannot be read, or not run outside of its program.
        tf.errors.OpError: what TensorFlow says of a step, such as that a server was lost.
    """
    if addresses is None:
        described = describe_host(timeout_s=timeout_s)
    else:
        described = describe_cluster(addresses, timeout_s=timeout_s)
    names = [full_device_name(name) for name in described.device_names]
    target = Target(session=session_target(addresses), device_names=names)
    progress = _Progress(described, graph is not None, on_progress)
    measured = _Machine(described, names, Probes(target), progress)
    machine = measured.run()
    if graph is None:
        return Calibration(machine=machine, costs=None, notes=measured.notes)
    progress("loading the graph")
    loaded = load_graph(graph, machine=machine, keep_graph=True, **(graph_options or {}))
    assert loaded.step is not None
    costs = CostTable()
    found = measure_op_costs(
        loaded, StepRunner(loaded.step, target), costs, steps=steps, on_step=progress
    )
    notes = [*measured.notes, *map(_describe_costs, found)]
    return Calibration(machine=machine, costs=costs, notes=notes, loaded=loaded)


class _Progress:
    """Counts measurements."""

    def __init__(self, machine: Machine, with_graph: bool, tell: OnProgress) -> None:
        devices, kinds = len(machine.devices), len(machine.kinds)
        pairs = devices * (devices - 1) // 2
        self._total = 3 * kinds + (len(SIZES_BYTES) + 1) * pairs
        self._total += (1 + 3 * kinds) if with_graph else 0
        self._done = 0
        self._tell = tell

    def __call__(self, what: str) -> None:
        self._tell(self._done, self._total, what)
        self._done += 1


class _Machine:
    """A described machine, on its way to a measured one."""

    def __init__(
        self, described: Machine, names: Sequence[str], probes: Probes, progress: _Progress
    ) -> None:
        self._described = described
        self._names = names
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
        """Both directions of a pair, which are taken to be equally fast."""
        src, dst = self._names[a], self._names[b]
        seconds, spreads = [], []
        for size in SIZES_BYTES:
            self._progress(f"{size:,} bytes between {src} and {dst}")
            hops, elements = _HOPS[size], size // FLOAT_BYTES
            moved = self._probes.chain([src, dst], hops, elements)
            stayed = self._probes.chain([src], hops, elements)
            seconds.append((moved.value_s - stayed.value_s) / hops)
            spreads.append(moved.spread)
        fit = LinkFit.of(SIZES_BYTES, seconds)
        self._progress(f"both ways between {src} and {dst}")
        shared = self._is_one_channel(src, dst)
        ends = [self._described.devices[index].name for index in (a, b)]
        self.notes.append(
            f"{ends[0]} <-> {ends[1]}: {fit.latency_s * 1e6:.3g} us and "
            f"{fit.bytes_per_s / 1e9:.3g} GB/s fit the transfers within {fit.error:.0%} (spread of "
            f"the steps {max(spreads):.0%}); "
            + ("both directions take turns" if shared else "each direction has its own channel")
        )
        return [
            Link(
                src=start,
                dst=end,
                channel=f"{ends[0]} <-> {ends[1]}" if shared else f"{start} -> {end}",
                latency_ns=round(1e9 * fit.latency_s),
                bytes_per_s=max(1, round(fit.bytes_per_s)),
            )
            for start, end in (ends, ends[::-1])
        ]

    def _is_one_channel(self, src: str, dst: str) -> bool:
        """Whether transfers in both directions at once take as long as in one after the other.

        Between CPUs they do: what limits them is the work of both ends.
        """

        def per_transfer_s(pairs: Sequence[tuple[str, str]]) -> float:
            few, many = (self._probes.transfers(pairs, n, _STREAM_ELEMENTS) for n in _STREAM)
            return max(many.value_s - few.value_s, 1e-9)

        both = per_transfer_s([(src, dst), (dst, src)])
        return both > _ONE_CHANNEL * per_transfer_s([(src, dst)])


def _describe_costs(found: OpCosts) -> str:
    return (
        f"{found.kind}: {found.ran:,} ops ran on {found.device} in a step of "
        f"{found.step.value_s * 1e3:.3g} ms (spread {found.step.spread:.0%}); "
        f"{found.attributed:.1%} of the traced time has an op"
    )
