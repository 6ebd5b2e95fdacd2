"""What does a worker lose while its neighbour is busy? Ops of eight kinds, beside the same kind.

Two workers with a core each. A step has a chain of one kind of op on one worker, on the other one,
or on both at once, in turn. What ops lose is the step of both over the longer one of the others. A
worker without the chain runs at most one op of it, so that its start is in all steps. All run in
one session: a second client would take time from the cores that it measures.

    python -m benchmarks.busy_neighbour --output docs/results/neighbours
    python -m benchmarks.busy_neighbour --kinds "large products" convolutions --turns 10
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer.measuring.calibration.probes import Build, Probes, chain
from hplacer_optimizer.measuring.clusters import LocalCluster, local_cluster
from hplacer_optimizer.measuring.target import Target
from testbed.told_rows import keep

OnDevice = Callable[[str, int], Build]  # so many ops on a device, each of the one before


def _products(rows: int, size: int) -> OnDevice:
    """Of [rows, size] x [size, size]."""

    def on_device(device: str, count: int) -> Build:
        def build() -> list[Any]:
            import tensorflow as tf

            with tf.device(device):
                x = tf.raw_ops.Fill(dims=[rows, size], value=0.0)
                weights = tf.raw_ops.Fill(dims=[size, size], value=0.0)
                for _ in range(count):
                    x = tf.raw_ops.MatMul(a=x, b=weights)
            return [x.op]

        return build

    return on_device


def _convolutions(device: str, count: int) -> Build:
    def build() -> list[Any]:
        import tensorflow as tf

        with tf.device(device):
            x = tf.raw_ops.Fill(dims=[8, 32, 32, 64], value=0.0)
            weights = tf.raw_ops.Fill(dims=[3, 3, 64, 64], value=0.0)
            for _ in range(count):
                x = tf.raw_ops.Conv2D(input=x, filter=weights, strides=[1] * 4, padding="SAME")
        return [x.op]

    return build


def _elementwise(num_floats: int) -> OnDevice:
    return lambda device, count: chain([device], count, num_floats)


# With the length of a chain, which takes 5 to 60 ms on a core. The second and the third products
# read 4 and 16 MB each.
KINDS: Mapping[str, tuple[OnDevice, int]] = {
    "large products": (_products(1024, 1024), 1),
    "thin products": (_products(64, 1024), 10),
    "vectors by matrices": (_products(1, 2048), 12),
    "convolutions": (_convolutions, 4),
    "elementwise, 256 KB": (_elementwise(1 << 16), 4000),
    "elementwise, 4 MB": (_elementwise(1 << 20), 140),
    "elementwise, 64 MB": (_elementwise(1 << 24), 2),
    "tiny ops": (_elementwise(1), 6000),
}


def _losses(cluster: LocalCluster, kind: str, turns: int) -> list[float]:
    """The step of both over the longer one of one worker each, by turn."""
    on_device, length = KINDS[kind]

    def step(*lengths: int) -> Build:
        builds = list(map(on_device, cluster.device_names, lengths))
        return lambda: [end for build in builds for end in build()]

    probes = Probes(Target(session=cluster.target, device_names=list(cluster.device_names)))
    short = min(1, length - 1)
    timings = probes.compare(
        step(length, short),
        step(short, length),
        step(length, length),
        repeats=turns,
    )
    seconds = zip(*(timing.seconds for timing in timings), strict=True)
    return [both_s / max(one_s, other_s) for one_s, other_s, both_s in seconds]


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and writes what each kind loses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS], metavar="KIND")
    parser.add_argument("--turns", type=int, default=100, help="of each kind, default: 100")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for neighbours.json")
    options = parser.parse_args(argv)
    found: dict[str, list[float]] = {}
    with local_cluster(workers=2) as cluster:
        for kind in options.kinds:
            found[kind] = _losses(cluster, kind, options.turns)
            low, middle, high = np.quantile(found[kind], (0.25, 0.5, 0.75))
            print(f"{kind}: {middle:.3f} times as long ({low:.3f} to {high:.3f})", flush=True)
    keep(options.output and options.output / "neighbours.json", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
