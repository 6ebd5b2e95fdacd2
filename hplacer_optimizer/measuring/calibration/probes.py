"""Small graphs that show one property of devices each, timed in sessions.

What is compared runs in one session, step by step in turn, so that a machine that is slow for a
while is slow for all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hplacer_optimizer import emulation
from hplacer_optimizer.measuring.calibration.fitting import Timing
from hplacer_optimizer.measuring.target import Target

FLOAT_BYTES = 4
MATRIX = 256  # rows and columns: 0.4 ms on a core of 80 GFLOP/s
_WARMUP = 3
_REPEATS = 25
_BUSY_PRODUCTS = 64
_BEFORE_PRODUCTS = 4  # until the busy device is busy

Build = Callable[[], list[Any]]  # makes ops, returns those that a step fetches


class Probes:
    """Timed steps on the devices of a target."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def compare(self, *builds: Build, repeats: int = _REPEATS) -> list[Timing]:
        """The steps of each of these graphs, in turn."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            fetches = [build() for build in builds]
        seconds: list[list[float]] = [[] for _ in builds]
        clock = emulation.step_clock()
        with self._session(graph) as session:
            steps = [session.make_callable(ends) for ends in fetches]
            for step in steps * _WARMUP:
                step()
            for _ in range(repeats):
                for step, times in zip(steps, seconds, strict=True):
                    start = clock()
                    step()
                    times.append(clock() - start)
        return [Timing(seconds=tuple(times)) for times in seconds]

    def _session(self, graph: Any) -> Any:
        """Without optimizations: what was built is what runs."""
        import tensorflow as tf

        v1 = tf.compat.v1
        config = self._target.config()
        config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        return v1.Session(self._target.session, graph=graph, config=config)


def chain(devices: Sequence[str], ops: int, elements: int) -> Build:
    """`ops` negations of a float32[elements], each of the one before, the devices taking turns.

    Nothing overlaps: such a chain on two devices, less the mean of the same chain on each of them,
    is the time of its transfers.
    """

    def build() -> list[Any]:
        import tensorflow as tf

        value = _zeros(devices[0], [elements])
        for index in range(ops):
            with tf.device(devices[(index + 1) % len(devices)]):
                value = tf.raw_ops.Neg(x=value)
        return [value.op]

    return build


def products(device: str, chains: int, length: int) -> Build:
    """So many independent chains of products of square matrices."""
    return lambda: [_products(_matrix(device), device, length).op for _ in range(chains)]


def products_on(lengths: Mapping[str, int]) -> Build:
    """One such chain on each of these devices, as long as it says."""
    return lambda: [
        _products(_matrix(device), device, length).op for device, length in lengths.items()
    ]


def rated_products(device: str, length: int, size: int, dtype: str) -> Build:
    """A chain of products of random square matrices, whose values stay as large as they are."""

    def build() -> list[Any]:
        import tensorflow as tf

        with tf.device(device):
            value, other = (
                tf.cast(tf.random.stateless_normal([size, size], [1, seed]), dtype)
                for seed in range(2)
            )
            other /= tf.cast(size**0.5, dtype)
            for _ in range(length):
                value = tf.raw_ops.MatMul(a=value, b=other)
        return [value.op]

    return build


def transfers(src: str, dst: str, count: int, elements: int) -> Build:
    """So many float32[elements], sent at once.

    `src` and `dst` may be one device: then nothing is transferred, and all else is the same.
    """

    def build() -> list[Any]:
        import tensorflow as tf

        ends = []
        for _ in range(count):
            value = _zeros(src, [elements])
            with tf.device(dst):
                ends.append(tf.raw_ops.Size(input=value).op)
        return ends

    return build


def products_in_turn(devices: Sequence[str], hops: int, length: int) -> Build:
    """Chains of `length` products, each told of the one before by a signal, the devices in turn."""

    def build() -> list[Any]:
        import tensorflow as tf

        before: list[Any] = []
        for index in range(hops + 1):
            device = devices[index % len(devices)]
            with tf.control_dependencies(before):
                before = [_products(_matrix(device), device, length).op]
        return before

    return build


def transfers_amid_work(busy: str, src: str, dst: str, count: int, elements: int) -> Build:
    """The same while a device, one of the two, is busy with products."""

    def build() -> list[Any]:
        work = _products(_matrix(busy), busy, _BUSY_PRODUCTS).op
        return [work, *transfers(src, dst, count, elements)()]

    return build


def round_trip_amid_work(home: str, busy: str, length: int, after: int) -> Build:
    """A message to a device that computes `length` products, the reply, and `after` products.

    The message waits at `busy` until it is received, and its reply until it is sent.
    """

    def build() -> list[Any]:
        asked = _products(_matrix(home), home, _BEFORE_PRODUCTS)
        reply = _products(asked, busy, 1)
        ends = [_products(reply, home, after).op]
        if length:
            ends.append(_products(_matrix(busy), busy, length).op)
        return ends

    return build


def _zeros(device: str, shape: list[int]) -> Any:
    import tensorflow as tf

    with tf.device(device):
        return tf.raw_ops.Fill(dims=shape, value=0.0)


def _matrix(device: str) -> Any:
    return _zeros(device, [MATRIX, MATRIX])


def _products(value: Any, device: str, length: int) -> Any:
    import tensorflow as tf

    with tf.device(device):
        for _ in range(length):
            value = tf.raw_ops.MatMul(a=value, b=value)
    return value
