"""Does `hplacer advise` tell the best way? Real steps on two workers with a core each.

Each graph is trained in three ways, which take turns: on one worker, over both with a plan, and
data-parallel by hand (half the batch on each worker, which send each other their gradients). Beside
the measured steps stand those that `advise` predicts for the calibrated workers.

Goals: of the graphs whose best way is 10% faster than the others, at least five of six have their
ways in the measured order, and each step is predicted within 20%. Ways that are measured within 5%
of each other have no order. A plan that leaves all on one worker is no way of its own.

    python benchmarks/advise.py --output docs/results/advise
    python benchmarks/advise.py --graphs "two wide towers" --limit-s 10
    python benchmarks/advise.py --published      our figures beside published ones, without workers
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from hplacer_optimizer.bench.measured import Bench, calibrated_cluster
from hplacer_optimizer.bench.small_graphs import BATCHED, write, write_replicas
from hplacer_optimizer.capture.loading import LoadedGraph, load_graph
from hplacer_optimizer.costs.table import CostTable
from hplacer_optimizer.inspection.advice.advising import compare
from hplacer_optimizer.inspection.advice.replicas import equal_devices
from hplacer_optimizer.inspection.advice.subjects import Step, WorkloadSubject, step_of
from hplacer_optimizer.inspection.advice.ways import ONE, PLAN, REPLICAS, Way, Ways
from hplacer_optimizer.machines import Machine, load_machine
from hplacer_optimizer.measuring.calibration.calibrate import calibrate_graph
from hplacer_optimizer.measuring.measurer import Measurer
from hplacer_optimizer.measuring.turns import EFFORT, Turns, take_turns
from hplacer_optimizer.planners import Budget
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.support.formats import format_bytes

WAYS = (ONE, PLAN, REPLICAS)
NEAR, APART, SAME = 0.20, 1.10, 1.05


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way of one graph."""

    graph: str
    way: str
    batch_size: int
    predicted_s: float
    least_s: float
    most_s: float
    measured_s: float  # median
    spread_s: float  # interquartile range
    turns: int

    @property
    def error(self) -> float:
        """Of the prediction, as a share of the measured step."""
        return self.predicted_s / self.measured_s - 1


class Calibrated:
    """A small graph at any batch size, with measured costs: a `Subject`."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.name, self._bench = name, bench
        self.own_batch_size: int | None = BATCHED[name].args[-1]
        self._loaded: dict[int, LoadedGraph] = {}

    def load(self, batch_size: int) -> LoadedGraph:
        """The graph on both workers."""
        if batch_size not in self._loaded:
            path = self._bench.directory / f"batch{batch_size}.meta"
            write(self.name, path, batch_size)
            machine, addresses = self._bench.machine, self._bench.cluster.addresses
            costs: CostTable = calibrate_graph(path, machine, addresses=addresses).costs
            self._loaded[batch_size] = load_graph(
                path, machine=machine, cost_table=costs, keep_graph=True, logs=False
            )
        return self._loaded[batch_size]

    def step(self, machine: Machine | str | None, batch_size: int | None) -> Step:
        """On both workers, whatever the machine."""
        size = batch_size or self.own_batch_size
        assert size is not None
        return step_of(self.load(size), size)


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts, measures, prints the table and writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--graphs", nargs="+", choices=BATCHED, default=list(BATCHED), metavar="NAME"
    )
    parser.add_argument("--planning-s", type=float, default=5.0, help="default: 5")
    parser.add_argument("--limit-s", type=float, default=40.0, help="of turns a graph, default: 40")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for measured.yaml and table.md")
    parser.add_argument("--published", action="store_true", help="measure nothing")
    options = parser.parse_args(argv)
    if options.published:
        print("\n".join(published()))
        return 0

    def tell(what: str) -> None:
        print(f"  {what}", file=sys.stderr, flush=True)

    rows: list[Row] = []
    with calibrated_cluster(tell) as bench:
        for name in options.graphs:
            tell(name)
            rows += measure(bench, name, options.planning_s, options.limit_s)
            print("\n".join(map(_line, rows[-len(WAYS) :])), flush=True)
            if options.output:
                save(rows, bench.notes, options.output)
    print("\n".join(["", *summary(rows)]))
    return 0


def measure(bench: Bench, name: str, planning_s: float, limit_s: float) -> list[Row]:
    """The three ways of a graph."""
    subject = Calibrated(bench, name)
    size = subject.own_batch_size
    assert size is not None
    budget = Budget(seconds=planning_s)
    advice = compare(subject, [bench.machine], [size], budget=budget).machines[0]
    predicted = {way.kind: way for way in advice.ways}
    loaded = subject.load(size)
    if advice.placement is None:
        raise SystemExit(f"{name}: has no plan")
    turns = _turns(bench, name, size, loaded, advice.placement, limit_s)
    return [_row(name, size, predicted[kind], turns[kind]) for kind in WAYS]


def _turns(
    bench: Bench,
    name: str,
    size: int,
    loaded: LoadedGraph,
    plan: NDArray[np.int32],
    limit_s: float,
) -> dict[str, Turns]:
    """One worker, the plan and the replicas, which are another graph, in turn."""
    path = bench.directory / "replicas.meta"
    write_replicas(name, path, size, bench.cluster.device_names)
    replicas = load_graph(path, machine=bench.machine, keep_graph=True, logs=False)
    default = replicas.problem.default_device
    assert default is not None
    with ExitStack() as open_now:
        graphs = (loaded, replicas)
        measurers = [open_now.enter_context(bench.measurer(one, EFFORT)) for one in graphs]
        tried: dict[str, tuple[Measurer, NDArray[np.int32]]] = {
            ONE: (measurers[0], on_device(loaded.problem, 0)),
            PLAN: (measurers[0], plan),
            REPLICAS: (measurers[1], default),
        }

        def one_turn(kind: str, number: int) -> Sequence[float]:
            bench.on_start(f"{name}: {kind}, turn {number}")
            measurer, placement = tried[kind]
            found = measurer.measure(placement)
            if found.error is not None:
                raise SystemExit(f"{name}: {kind}: {found.error}")
            return found.times_s

        is_one = np.array_equal(plan, tried[ONE][1])
        found = take_turns((ONE, REPLICAS) if is_one else WAYS, one_turn, limit_s=limit_s)
        return {PLAN: found[ONE]} | found


def _row(name: str, size: int, way: Way, turns: Turns) -> Row:
    return Row(
        graph=name,
        way=way.kind,
        batch_size=size,
        predicted_s=(way.step_time_ns or 0) / 1e9,
        least_s=(way.least_ns or 0) / 1e9,
        most_s=(way.most_ns or 0) / 1e9,
        measured_s=turns.step_s,
        spread_s=turns.spread_s,
        turns=max(len(turns.logarithms), 1),
    )


# ---- what is written ----


def _line(row: Row) -> str:
    return (
        f"| {row.graph} | {row.way} | {row.batch_size} | {row.measured_s * 1e3:.2f} | "
        f"{row.predicted_s * 1e3:.2f} | {row.least_s * 1e3:.2f} to {row.most_s * 1e3:.2f} | "
        f"{row.error:+.0%} |"
    )


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """The goals."""
    graphs: dict[str, list[Row]] = {}
    for row in rows:
        graphs.setdefault(row.graph, []).append(row)
    apart = {name: found for name, found in graphs.items() if _is_apart(found)}
    ranked = sum(map(_is_ranked, apart.values()))
    best = sum(
        _first(found, "predicted_s") == _first(found, "measured_s") for found in apart.values()
    )
    near = sum(abs(row.error) <= NEAR for row in rows)
    yield f"{len(apart)} of {len(graphs)} graphs have a best way that is {APART - 1:.0%} faster"
    yield f"  of these in the measured order: {ranked} (goal: 5 of 6), with the same best: {best}"
    yield f"steps predicted within {NEAR:.0%}: {near} of {len(rows)} (goal: all)"


def _first(rows: Sequence[Row], field: str) -> str:
    return min(rows, key=lambda row: getattr(row, field)).way


def _is_ranked(rows: Sequence[Row]) -> bool:
    """Whether what was measured faster was predicted faster, for every two ways."""
    return all(
        slow.predicted_s > fast.predicted_s
        for slow in rows
        for fast in rows
        if slow.measured_s > SAME * fast.measured_s
    )


def _is_apart(rows: Sequence[Row]) -> bool:
    """Whether the best way is far from the others; ways with one measurement are one."""
    first, *others = sorted({row.measured_s for row in rows})
    return bool(others) and others[0] >= APART * first


def save(rows: Sequence[Row], notes: Sequence[str], directory: Path) -> None:
    """The rows for programs, and the table for people."""
    directory.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"rows": [asdict(row) for row in rows], "calibration": list(notes)}
    (directory / "measured.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    head = "| graph | way | batch | measured, ms | predicted, ms | range, ms | error |\n"
    lines = "\n".join(map(_line, rows))
    text = f"{head}|---|---|---|---|---|---|---|\n{lines}\n\n" + "\n".join(summary(rows)) + "\n"
    (directory / "table.md").write_text(text)


# ---- published figures ----

SCALING = (
    # workload, machine, samples of each GPU, how many times one GPU eight are, published as
    ("resnet_50", "8xv100", 128, 7.69, "NVIDIA, ResNet-50 v1.5, float32 with XLA, DGX-1"),
    ("resnet_50", "1cpu-8xk40", 64, 7.46, "TensorFlow, ResNet-50, 8 K80"),
    ("inception_v3", "1cpu-8xk40", 64, 7.44, "TensorFlow, InceptionV3, 8 K80"),
    ("resnet_152", "1cpu-8xk40", 32, 7.40, "TensorFlow, ResNet-152, 8 K80"),
)
MEMORY = ((64, 64), (128, 32), (256, 16), (512, 6))  # length, largest batch
TITAN_BYTES = 12 << 30


def published() -> Iterator[str]:
    """Lines of two tables: eight GPUs against one, and the batch of BERT-Base that fits."""
    yield "| workload | machine | batch of a GPU | published | ours | from |"
    yield "|---|---|---|---|---|---|"
    for workload, machine, size, times, source in SCALING:
        one, way = _replicated(workload, load_machine(machine), size)
        ours = [8 * one / (ns or 1) for ns in (way.most_ns, way.step_time_ns, way.least_ns)]
        shown = f"{ours[1]:.2f} ({ours[0]:.2f} to {ours[2]:.2f})"
        yield f"| {workload} | {machine} | {size} | {times:.2f} | {shown} | {source} |"
    yield ""
    yield "| length | published batch that fits 12 GiB | by ours | needs at the published batch |"
    yield "|---|---|---|---|"
    for length, size in MEMORY:
        one, two = (_needed(length, batch_size) for batch_size in (size, 2 * size))
        fits = [size + (TITAN_BYTES - a) * size // (b - a) for a, b in zip(one, two, strict=True)]
        needs = " to ".join(map(format_bytes, one))
        yield f"| {length} | {size} | {fits[1]} to {fits[0]} | {needs} |"


def _needed(length: int, batch_size: int) -> tuple[int, int]:
    """Bytes of BERT-Base on one GPU, without and with what frameworks add."""
    subject = WorkloadSubject(f"bert_base:length={length}", {})
    step = subject.step(load_machine("8xv100"), batch_size)
    (way,) = Ways(step=step, singles={"GPU": on_device(step.problem, 1)}).rows()
    assert way.memory is not None
    return way.memory.least_bytes, way.memory.most_bytes


def _replicated(workload: str, machine: Machine, size: int) -> tuple[int, Way]:
    """One GPU's step, and that of eight of them which have as many samples each."""
    step = WorkloadSubject(workload, {}).step(machine, size)
    devices = equal_devices(step.problem)
    ways = Ways(step=step, singles={"GPU": on_device(step.problem, devices[0])})
    ways.replica, ways.replicas = step, devices
    single, way = ways.rows()
    assert single.step_time_ns is not None
    return single.step_time_ns, way


if __name__ == "__main__":
    sys.exit(main())
