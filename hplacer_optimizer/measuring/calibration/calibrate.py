"""Measures a machine that is running, and the ops of a graph on it.

    description of the machine --probes--> Machine with measured rates and links
    graph --steps, traces--> CostTable

A machine is this host or a cluster of TensorFlow servers. Call it in a process where the optimizer
is off (HPLACER_DISABLE=1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np

from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.costs.table import CostTable
from hplacer_optimizer.machines import (
    Device,
    DeviceKind,
    Link,
    Machine,
    full_device_name,
    shipped_kinds,
)
from hplacer_optimizer.machines.describe import describe_cluster, describe_host
from hplacer_optimizer.machines.detect import match_model
from hplacer_optimizer.measuring.calibration.fitting import BytesFit
from hplacer_optimizer.measuring.calibration.op_costs import OpCosts, measure_op_costs
from hplacer_optimizer.measuring.calibration.probes import (
    FLOAT_BYTES,
    MATRIX,
    Build,
    Probes,
    chain,
    products,
    products_in_turn,
    products_on,
    rated_products,
    round_trip_amid_work,
    transfers,
    transfers_amid_work,
)
from hplacer_optimizer.measuring.step_runner import StepRunner
from hplacer_optimizer.measuring.target import Target, session_target

SIZES_BYTES = (64, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
LARGE_BYTES = (1 << 24, 1 << 26)  # of links of GPUs, which small copies do not fill
_LARGE_COPIES = (4, 1)
_ROUNDS = 2  # over all sizes: what disturbs for a while disturbs a part of the points of each fit
_HOPS = {size: 8 if size >= 1 << 20 else 32 for size in SIZES_BYTES}
_FEW_OPS, _MANY_OPS = 100, 1100
_LARGE_ELEMENTS, _LARGE_OPS = 1 << 20, 32
_MOST_ELEMENTS = 1 << 28
_PRODUCTS = 8
_PRODUCT_TURNS = 50  # a turn that is disturbed must not look like a second slot
# That MatMul has kernels for. TensorFlow computes those of float32 in TF32 on a GPU that has it.
_PRODUCT_TYPES = ("float32", "float64", "tf32", "bfloat16", "float16")
_MOST_MATRIX = 8192
_LAUNCHES = 10  # that an op of a probe lasts at least, so that launches do not hide it
_MOST_SLOTS = 1024
_GAIN = 1.3  # of throughput: below it, twice as many ops at once are no faster
_BUSY_S = 0.018  # longer than two turns
_FILLING_S = 0.004  # of ops, that fill the caches
_COLD_HOPS = 12
_TURNS = 100  # they differ much

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
    machine: Machine
    """With the launch overheads of this graph, which has its own mix of ops."""
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
    sizes = len(SIZES_BYTES)
    if any(kind.launches_ahead for kind in described.kinds):
        sizes += len(LARGE_BYTES)
    total = 1 + 5 * kinds + _ROUNDS * sizes * (devices * (devices - 1) // 2)
    running = _MachineCalibration(described, Probes(target), _ProgressCount(total, on_progress))
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
    """Measures the ops of a graph, on one device of each kind of CPU and GPU of the machine.

    Args:
        graph: as for `load_graph`.
        machine: whose devices are those at `addresses`, with measured overheads.
        addresses: of the servers of a cluster; None: this host.
        steps: so many with a trace and twice as many without, on each of these devices.
        on_progress: called before every measurement.
        graph_options: keywords of `load_graph`.

    Raises:
        GraphError: the graph cannot be read, or not run outside of its program.
        MeasuringError: no kernel is traced on a GPU.
        tf.errors.OpError: what TensorFlow says of a step, such as that a server was lost.
    """
    progress = _ProgressCount(1 + 3 * len(machine.kinds), on_progress)
    progress("loading the graph")
    loaded = load_graph(graph, machine=machine, keep_graph=True, **graph_options)
    assert loaded.step is not None
    costs = CostTable()
    runner = StepRunner(loaded.step, _target(machine, addresses))
    found = measure_op_costs(loaded, runner, costs, steps=steps, on_step=progress)
    return MeasuredGraph(
        costs=costs,
        machine=with_launches(machine, found),
        notes=[_describe_costs(of_kind) for of_kind in found],
    )


def with_launches(machine: Machine, found: Iterable[OpCosts]) -> Machine:
    """With the launch overheads that were found."""
    launch_ns = {of_kind.kind: of_kind.launch_ns for of_kind in found if of_kind.launch_ns}
    kinds = [
        replace(kind, launch_overhead_ns=launch_ns.get(kind.name, kind.launch_overhead_ns))
        for kind in machine.kinds
    ]
    return replace(machine, kinds=tuple(kinds))


def _target(machine: Machine, addresses: Sequence[str] | None) -> Target:
    names = [full_device_name(name) for name in machine.device_names]
    return Target(session=session_target(addresses), device_names=names)


class _ProgressCount:
    """Counts measurements."""

    def __init__(self, total: int, tell: OnProgress) -> None:
        self._total = total
        self._done = 0
        self._tell = tell

    def __call__(self, what: str) -> None:
        self._tell(self._done, self._total, what)
        self._done += 1


class _MachineCalibration:
    """A described machine, on its way to a measured one."""

    def __init__(self, described: Machine, probes: Probes, progress: _ProgressCount) -> None:
        self._described = described
        self._names = [full_device_name(name) for name in described.device_names]
        self._probes = probes
        self._progress = progress
        self._product_s: list[float] = []  # of each kind; 0: it launches ahead
        self.notes: list[str] = []

    def run(self) -> Machine:
        """With measured kinds, starts and links, which its assumptions say."""
        first = {kind: self._described.device_kind.index(kind) for kind in range(self._num_kinds)}
        kinds = [self._kind(kind, self._names[first[kind]]) for kind in range(self._num_kinds)]
        devices = self._starts()
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
            devices=tuple(devices),
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
        few, many = self._probes.compare(*(chain([device], n, 1) for n in (_FEW_OPS, _MANY_OPS)))
        launch_s = (many.median_s - few.median_s) / (_MANY_OPS - _FEW_OPS)
        launch_ns = max(1, round(1e9 * launch_s))
        self._progress(f"memory bandwidth of {kind.name}")
        bytes_per_s = self._bytes_per_s(kind, device, launch_s)
        self._progress(f"slots of {kind.name}")
        if kind.launches_ahead:  # TensorFlow launches all of its kernels on one stream
            slots, product_s = 1, 0.0
            flops_per_s = self._rates(kind, device, launch_s)
        else:
            slots, product_s = self._slots(device)
            rate = 2 * MATRIX**3 / max(product_s - launch_s, 1e-9)
            share = rate / kind.flops_per_s["float32"]
            flops_per_s = {dtype: peak * share for dtype, peak in kind.flops_per_s.items()}
        self.notes.append(
            f"{kind.name}: {slots} slots of {flops_per_s['float32'] / 1e9:.3g} GFLOP/s and "
            f"{bytes_per_s / 1e9:.3g} GB/s, an op costs {launch_ns / 1e3:.3g} us beside them "
            f"(spread of the steps {many.spread:.0%})"
        )
        self._product_s.append(product_s)
        home = self._other_host(device)
        self._progress(f"cold caches of {kind.name}")
        cold_s = self._cold_s(kind, device, home, product_s) if home else 0.0
        self._progress(f"turns of {kind.name}")
        turn_s = self._turn_s(kind, device, home, product_s, cold_s) if home else 0.0
        return replace(
            kind,
            flops_per_s={dtype: float(f"{rate:.4g}") for dtype, rate in flops_per_s.items()},
            memory_bytes_per_s=bytes_per_s,
            launch_overhead_ns=launch_ns,
            executor_overhead_ns=min(kind.executor_overhead_ns, launch_ns),
            slots=slots,
            turn_ns=round(1e9 * turn_s),
            cold_ns=round(1e9 * cold_s),
        )

    def _bytes_per_s(self, kind: DeviceKind, device: str, launch_s: float) -> int:
        """Of memory, by arrays that are large enough to be no launch, and in no cache."""
        elements, hidden_s = _LARGE_ELEMENTS, 0.0 if kind.launches_ahead else launch_s
        most = min(_MOST_ELEMENTS, (kind.memory_bytes or _MOST_ELEMENTS) // 32)
        while True:
            short, long = self._probes.compare(
                chain([device], 1, elements), chain([device], 1 + _LARGE_OPS, elements)
            )
            op_s = max((long.median_s - short.median_s) / _LARGE_OPS - hidden_s, 1e-7)
            if op_s >= _LAUNCHES * launch_s or 4 * elements > most:
                break
            elements *= 4
        bytes_per_s = round(2 * FLOAT_BYTES * elements / op_s)
        sheet = _data_sheet(kind)
        if sheet is not None and bytes_per_s > sheet.memory_bytes_per_s:
            self.notes.append(
                f"{kind.name}: {bytes_per_s / 1e9:.4g} GB/s were measured, more than its data "
                f"sheet has, which stays"
            )
            return sheet.memory_bytes_per_s
        return bytes_per_s

    def _rates(self, kind: DeviceKind, device: str, launch_s: float) -> dict[str, float]:
        """Of products in each type; what TensorFlow has no product for is as far from its peak."""
        sheet = _data_sheet(kind)
        found: dict[str, float] = {}
        for dtype in kind.flops_per_s:
            if dtype not in _PRODUCT_TYPES or (dtype == "float32" and "tf32" in kind.flops_per_s):
                continue
            tensor = "float32" if dtype == "tf32" else dtype
            size = MATRIX
            while True:
                few, many = self._probes.compare(
                    *(rated_products(device, n, size, tensor) for n in (1, 1 + _PRODUCTS))
                )
                product_s = max((many.median_s - few.median_s) / _PRODUCTS, 1e-9)
                if product_s >= _LAUNCHES * launch_s or size >= _MOST_MATRIX:
                    break
                size *= 2
            rate = 2 * size**3 / product_s
            peak = math.inf if sheet is None else sheet.flops_per_s.get(dtype, math.inf)
            if rate > peak:
                self.notes.append(
                    f"{kind.name}: {rate / 1e12:.4g} TFLOP/s in {dtype} were measured, more than "
                    "its data sheet has, which stays"
                )
            found[dtype] = min(rate, peak)
        share = min(rate / kind.flops_per_s[dtype] for dtype, rate in found.items())
        return {
            dtype: found.get(dtype, min(share, 1.0) * peak)
            for dtype, peak in kind.flops_per_s.items()
        }

    def _slots(self, device: str) -> tuple[int, float]:
        """How many products run at once, and how long one takes alone."""
        chains, rate, product_s = 1, 1.0, 0.0  # products at once, in units of one alone
        while chains < _MOST_SLOTS:
            alone_s, together_s = self._products_s(device, 1, 2 * chains)
            product_s = product_s or float(np.median(alone_s))
            faster = 2 * chains * float(np.median(alone_s / together_s))
            if faster < _GAIN * rate:
                break
            chains, rate = 2 * chains, faster
        return max(1, round(rate)), product_s

    def _products_s(self, device: str, *chains: int) -> list[np.ndarray]:
        """In each turn, what a product more of so many chains at once adds to the step."""
        lengths = (1, 1 + _PRODUCTS)
        built = [products(device, count, length) for count in chains for length in lengths]
        steps = self._probes.compare(*built, repeats=_PRODUCT_TURNS)
        return [
            np.maximum(np.subtract(long.seconds, short.seconds), 1e-9) / _PRODUCTS
            for short, long in zip(steps[::2], steps[1::2], strict=True)
        ]

    def _other_host(self, device: str) -> str | None:
        """A device that it gets messages from by software, if there is one."""
        here = self._names.index(device)
        others = (name for i, name in enumerate(self._names) if self._are_hosts(here, i))
        return next(others, None)

    def _cold_s(self, kind: DeviceKind, device: str, home: str, product_s: float) -> float:
        """How much longer each end of a message takes after products than after next to nothing."""
        length = _filling_length(product_s)
        moved, stayed, moved_warm, stayed_warm = self._probes.compare(
            products_in_turn([home, device], _COLD_HOPS, length),
            products_in_turn([device], _COLD_HOPS, length),
            chain([home, device], _COLD_HOPS, 1),
            chain([device], _COLD_HOPS, 1),
        )
        hops_s = np.subtract(moved.seconds, stayed.seconds) / _COLD_HOPS
        warm_s = (moved_warm.median_s - stayed_warm.median_s) / _COLD_HOPS
        low, cold_s, high = np.maximum(np.quantile(hops_s, (0.25, 0.5, 0.75)) - warm_s, 0.0) / 2
        self.notes.append(
            f"{kind.name}: each end of a message takes {cold_s * 1e6:.3g} us longer after ops "
            f"({low * 1e6:.3g} to {high * 1e6:.3g} in half of the steps)"
        )
        return float(cold_s)

    def _turn_s(
        self, kind: DeviceKind, device: str, home: str, product_s: float, cold_s: float
    ) -> float:
        """How long a busy device makes a message wait, beside what its caches cost."""
        length = max(1, round(_BUSY_S / product_s))
        waited, at_once = self._probes.compare(
            round_trip_amid_work(home, device, length, length),
            round_trip_amid_work(home, device, 0, length),
            repeats=_TURNS,
        )
        turns_s = np.subtract(waited.seconds, at_once.seconds) / 2 - cold_s
        low, high = np.maximum(np.quantile(turns_s, (0.25, 0.75)), 0.0)
        # A step has many of them. None is longer than the device is busy.
        turn_s = max(0.0, float(np.clip(turns_s, -_BUSY_S, _BUSY_S).mean()))
        self.notes.append(
            f"{kind.name}: a message waits {turn_s * 1e3:.3g} ms for a busy device in the mean "
            f"({low * 1e3:.3g} to {high * 1e3:.3g} in half of the steps)"
        )
        return turn_s

    def _starts(self) -> list[Device]:
        """The devices, with the time of a step that does nothing on them.

        Between hosts it is one of a training, which finds the caches as its ops left them.
        """
        self._progress("start of a step")
        steps = [chain([name], 1, 1) for name in self._names]
        if filling := self._filling():
            in_turn = (each for step in steps for each in (filling, step))
            found = self._probes.compare(*in_turn)[1::2]
        else:
            found = self._probes.compare(*steps)
        devices = []
        for device, timing in zip(self._described.devices, found, strict=True):
            self.notes.append(
                f"{device.name}: a step of one op takes {timing.median_s * 1e6:.3g} us (spread "
                f"{timing.spread:.0%})"
            )
            devices.append(replace(device, start_ns=round(1e9 * timing.median_s)))
        return devices

    def _filling(self) -> Build | None:
        """Products that fill the caches of all hosts; None if there is no second one."""
        products_s = {
            name: self._product_s[self._described.device_kind[index]]
            for index, name in enumerate(self._names)
            if self._other_host(name) is not None
        }
        if not products_s:
            return None
        return products_on({name: _filling_length(each) for name, each in products_s.items()})

    def _kind_of(self, index: int) -> DeviceKind:
        return self._described.kinds[self._described.device_kind[index]]

    def _are_hosts(self, a: int, b: int) -> bool:
        """Whether software moves what one sends to the other: CPU devices of two processes."""
        devices = self._described.devices
        return devices[a].type == devices[b].type == "CPU" and devices[a].task != devices[b].task

    def _links(self, a: int, b: int) -> list[Link]:
        """Both directions of a pair, which are taken to be equally fast."""
        src, dst = self._names[a], self._names[b]
        is_work = self._are_hosts(a, b)
        is_alike = self._described.device_kind[a] == self._described.device_kind[b]
        ends_alone = [src] if is_alike else [src, dst]
        alone_s, send_s, receive_s, spreads = [], [], [], []
        launches = any(self._kind_of(index).launches_ahead for index in (a, b))
        sizes = (*SIZES_BYTES, *LARGE_BYTES) * _ROUNDS if launches else SIZES_BYTES * _ROUNDS
        for size in sizes:
            self._progress(f"{size:,} bytes between {src} and {dst}")
            elements = size // FLOAT_BYTES
            if size in LARGE_BYTES:
                alone_s.append(self._copy_s(src, dst, elements))
                continue
            hops = _HOPS[size]
            moved, *stayed = self._probes.compare(
                chain([src, dst], hops, elements),
                *(chain([end], hops, elements) for end in ends_alone),
            )
            stayed_s = sum(timing.median_s for timing in stayed) / len(stayed)
            alone_s.append((moved.median_s - stayed_s) / hops)
            spreads.append(moved.spread)
            if is_work:
                send_s.append(self._work_s(src, src, dst, hops, elements))
                received_s = self._work_s(dst, src, dst, hops, elements)
                receive_s.append(max(received_s, self._interval_s(src, dst, hops, elements)))
        ends = [self._described.devices[index].name for index in (a, b)]
        work: dict[str, int] = {}
        known = np.zeros(len(sizes))
        if is_work:
            for part, seconds in (("send", send_s), ("receive", receive_s)):
                fit = BytesFit.of(sizes, seconds)
                known += fit.seconds(sizes)
                work |= {f"{part}_ns": fit.fixed_ns, f"{part}_bytes_per_s": fit.bytes_per_s}
                self.notes.append(f"{ends[0]} <-> {ends[1]}: to {part} takes {_describe_fit(fit)}")
        fit = BytesFit.of(sizes, alone_s, known)
        self.notes.append(
            f"{ends[0]} <-> {ends[1]}: a transfer takes {_describe_fit(fit)}"
            f"{' beside that' if is_work else ''} (spread of the steps {max(spreads):.0%})"
        )
        return [
            Link(
                src=start,
                dst=end,
                channel=f"{start} -> {end}",
                latency_ns=fit.fixed_ns,
                bytes_per_s=fit.bytes_per_s,
                **work,
            )
            for start, end in (ends, ends[::-1])
        ]

    def _copy_s(self, src: str, dst: str, elements: int) -> float:
        """Of one of many large copies that are under way at once, the mean of both directions.

        Nobody reads what was copied: that would take longer than the copy where it is in no cache.
        """
        each_s = []
        for start, end in ((src, dst), (dst, src)):
            many, few, many_stay, few_stay = self._probes.compare(
                *(transfers(start, to, n, elements) for to in (end, start) for n in _LARGE_COPIES)
            )
            moved_s = (many.median_s - few.median_s) - (many_stay.median_s - few_stay.median_s)
            each_s.append(max(moved_s, 0.0) / (_LARGE_COPIES[0] - _LARGE_COPIES[1]))
        return sum(each_s) / 2

    def _work_s(self, busy: str, src: str, dst: str, count: int, elements: int) -> float:
        """Of one end, for a transfer: by how much it lengthens a step in which that end computes.

        Never less than nothing. What the other end does meanwhile takes no time from it.
        """
        moved, stayed = self._probes.compare(
            transfers_amid_work(busy, src, dst, count, elements),
            transfers_amid_work(busy, src, src, count, elements),
        )
        return max(0.0, moved.median_s - stayed.median_s) / count

    def _interval_s(self, src: str, dst: str, count: int, elements: int) -> float:
        """Between two of many transfers that are sent at once, while nothing else is done.

        What limits them is the receiver: a tensor that has just been sent was in a cache.
        """
        many, few = self._probes.compare(
            transfers(src, dst, 2 * count, elements), transfers(src, dst, count, elements)
        )
        return max(0.0, many.median_s - few.median_s) / count


def _filling_length(product_s: float) -> int:
    """So many products fill the caches."""
    return max(1, round(_FILLING_S / product_s))


def _data_sheet(kind: DeviceKind) -> DeviceKind | None:
    """Of an accelerator that is known."""
    return match_model(kind.name, shipped_kinds()) if kind.launches_ahead else None


def _describe_fit(fit: BytesFit) -> str:
    return (
        f"{fit.fixed_s * 1e6:.3g} us and {fit.s_per_byte * 1e9:.3g} ns per byte (median error "
        f"{fit.error:.0%})"
    )


def _describe_costs(found: OpCosts) -> str:
    return (
        f"{found.kind}: {found.ran:,} ops ran on {found.device} in a step of "
        f"{found.step.median_s * 1e3:.3g} ms (spread {found.step.spread:.0%}); "
        f"{found.attributed:.1%} of the traced time has an op"
        + (f"; to launch one takes {found.launch_ns / 1e3:.3g} us" if found.launch_ns else "")
    )
