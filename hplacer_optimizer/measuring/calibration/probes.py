"""Small graphs that show one property of devices each, timed in sessions.

Chains: each op reads the one before it, so that nothing overlaps. A chain from device to device,
less the same chain on one of them, is the time of its transfers, the cost of the call cancelled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from hplacer_optimizer.measuring.calibration.fitting import Timing
from hplacer_optimizer.measuring.target import Target

FLOAT_BYTES = 4
MATRIX = 256  # rows and columns: 0.4 ms on a core of 80 GFLOP/s
_WARMUP = 3
_REPEATS = 25
_WORK_LENGTH = 64


class Probes:
    """Timed steps on the devices of a target."""

    def __init__(self, target: Target, *, repeats: int = _REPEATS) -> None:
        self._target = target
        self._repeats = repeats

    def chain(self, devices: Sequence[str], ops: int, elements: int) -> Timing:
        """`ops` negations of a float32[elements], the devices taking turns."""

        def build() -> list[Any]:
            import tensorflow as tf

            value = _zeros(devices[0], [elements])
            for index in range(ops):
                with tf.device(devices[(index + 1) % len(devices)]):
                    value = tf.raw_ops.Neg(x=value)
            return [value.op]

        return self._time(build)

    def transfers_amid_work(
        self, pairs: Sequence[tuple[str, str]], count: int, elements: int
    ) -> Timing:
        """`count` transfers of a float32[elements], while all their devices compute.

        The pairs of source and destination take turns; they may be one device.
        """

        def build() -> list[Any]:
            import tensorflow as tf

            devices = dict.fromkeys(device for pair in pairs for device in pair)
            ends = [_product_chain(device, _WORK_LENGTH) for device in devices]
            for index in range(count):
                src, dst = pairs[index % len(pairs)]
                value = _zeros(src, [elements])
                with tf.device(dst):
                    ends.append(tf.raw_ops.Neg(x=value).op)
            return ends

        return self._time(build)

    def products(self, device: str, chains: int, length: int) -> Timing:
        """So many independent chains of products of square matrices."""
        return self._time(lambda: [_product_chain(device, length) for _ in range(chains)])

    def _session(self, graph: Any) -> Any:
        """Without optimizations: what was built is what runs."""
        import tensorflow as tf

        v1 = tf.compat.v1
        config = self._target.config()
        config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        return v1.Session(self._target.session, graph=graph, config=config)

    def _time(self, build: Callable[[], list[Any]]) -> Timing:
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            ends = build()
        seconds = []
        with self._session(graph) as session:
            step = session.make_callable(ends)
            for _ in range(_WARMUP):
                step()
            for _ in range(self._repeats):
                start = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - start)
        return Timing(seconds=tuple(seconds))


def _zeros(device: str, shape: list[int]) -> Any:
    import tensorflow as tf

    with tf.device(device):
        return tf.raw_ops.Fill(dims=shape, value=0.0)


def _product_chain(device: str, length: int) -> Any:
    import tensorflow as tf

    value = _zeros(device, [MATRIX, MATRIX])
    with tf.device(device):
        for _ in range(length):
            value = tf.raw_ops.MatMul(a=value, b=value)
    return value.op
