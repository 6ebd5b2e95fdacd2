"""What does a worker lose while its neighbour is busy? Ops of eight kinds, alone and beside others.

Two workers with a core each. The first one runs steps of one kind of op, in turn alone and while
the second one runs steps of some kind without a pause. The median step with the neighbour over the
one without it is one observation of what that kind loses.

    python -m benchmarks.busy_neighbour --output docs/results/neighbours
    python -m benchmarks.busy_neighbour --kinds "large products" convolutions --turns 3
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer.measuring.clusters import LocalCluster, local_cluster
from testbed.told_rows import keep

Step = Callable[[], object]
Ratios = dict[str, dict[str, list[float]]]  # by kind, by that of the neighbour: of each turn

_STEPS = 3  # in half a turn
_WARMUP = 2
_BEGINS_S = 0.02  # until the neighbour is busy


def _products(rows: int, size: int, count: int) -> Any:
    """A chain of [rows, size] x [size, size]."""
    import tensorflow as tf

    x = tf.raw_ops.Fill(dims=[rows, size], value=0.0)
    weights = tf.raw_ops.Fill(dims=[size, size], value=0.0)
    for _ in range(count):
        x = tf.raw_ops.MatMul(a=x, b=weights)
    return x.op


def _convolutions(count: int) -> Any:
    import tensorflow as tf

    x = tf.raw_ops.Fill(dims=[8, 32, 32, 64], value=0.0)
    weights = tf.raw_ops.Fill(dims=[3, 3, 64, 64], value=0.0)
    for _ in range(count):
        x = tf.raw_ops.Conv2D(input=x, filter=weights, strides=[1] * 4, padding="SAME")
    return x.op


def _elementwise(num_floats: int, count: int) -> Any:
    import tensorflow as tf

    x = tf.raw_ops.Fill(dims=[num_floats], value=1.0)
    for _ in range(count):
        x = tf.raw_ops.Neg(x=x)
    return x.op


# Steps of 5 to 60 ms on a core. The second and third products read 4 and 16 MB for each.
KINDS: Mapping[str, Callable[[], Any]] = {
    "large products": lambda: _products(1024, 1024, 1),
    "thin products": lambda: _products(64, 1024, 10),
    "vectors by matrices": lambda: _products(1, 2048, 12),
    "convolutions": lambda: _convolutions(4),
    "elementwise, 256 KB": lambda: _elementwise(1 << 16, 4000),
    "elementwise, 4 MB": lambda: _elementwise(1 << 20, 140),
    "elementwise, 64 MB": lambda: _elementwise(1 << 24, 1),
    "tiny ops": lambda: _elementwise(1, 6000),
}


@contextmanager
def _steps(cluster: LocalCluster, task: int, kinds: Sequence[str]) -> Iterator[dict[str, Step]]:
    """Of a worker, whose sessions are its own; without optimizations, so what was built runs."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, tf.device(cluster.device_names[task]):
        ops = {kind: KINDS[kind]() for kind in kinds}
    config = v1.ConfigProto(isolate_session_state=True)
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with v1.Session(f"grpc://{cluster.addresses[task]}", graph=graph, config=config) as session:
        yield {kind: session.make_callable(op) for kind, op in ops.items()}


@contextmanager
def _busy(step: Step) -> Iterator[None]:
    """Runs the step again and again."""
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            step()

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(_BEGINS_S)
    try:
        yield
    finally:
        ends.set()
        thread.join()


def _median_s(step: Step) -> float:
    seconds = []
    for _ in range(_STEPS):
        begin_s = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin_s)
    return statistics.median(seconds)


def measure(kinds: Sequence[str], turns: int) -> Ratios:
    """Steps beside a busy neighbour over steps alone."""
    found: Ratios = {kind: {} for kind in kinds}
    with (
        local_cluster(workers=2) as cluster,
        _steps(cluster, 0, kinds) as own,
        _steps(cluster, 1, kinds) as others,
    ):
        for step in [*own.values(), *others.values()] * _WARMUP:
            step()
        for kind in kinds:
            for other in kinds:
                ratios = found[kind][other] = []
                for turn in range(turns):
                    if turn % 2:
                        alone_s = _median_s(own[kind])
                    with _busy(others[other]):
                        beside_s = _median_s(own[kind])
                    if not turn % 2:
                        alone_s = _median_s(own[kind])
                    ratios.append(beside_s / alone_s)
            print(f"{kind}: {_range([r for many in found[kind].values() for r in many])}")
        cluster.check()
    return found


def _range(ratios: Sequence[float]) -> str:
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def table(found: Ratios) -> list[str]:
    """In Markdown: medians over the turns, and the middle half of them."""
    lines = [f"|  | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    for kind, row in found.items():
        lines.append(f"| {kind} | {' | '.join(_range(ratios) for ratios in row.values())} |")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints the table and writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS], metavar="KIND")
    parser.add_argument("--turns", type=int, default=12, help="of each pair, default: 12")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="for neighbours.json and neighbours.md"
    )
    options = parser.parse_args(argv)
    found = measure(options.kinds, options.turns)
    lines = table(found)
    keep(options.output and options.output / "neighbours.json", found, lines)
    print("\n".join(["", *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
