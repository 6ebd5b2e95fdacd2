"""The Grouper and the Placer, the networks of the Hierarchical Planner.

Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR 2018), section 3. N items, G
groups, m devices, B groupings, R rows of which each places one of them. TensorFlow is
imported by the caller's wish only: this module does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from hplacer_optimizer.planners.learning.items import Items
from hplacer_optimizer.planners.learning.settings import Settings

_FORGET_BIAS = 1.0


class Grouper(tf.Module):  # type: ignore[misc]
    """A feed-forward network with a softmax over the groups, for each item by itself."""

    def __init__(self, items: Items, num_groups: int, settings: Settings, rng: Any) -> None:
        super().__init__(name="grouper")
        self._embedding = tf.constant(items.embedding)
        width = items.embedding.shape[1]
        hidden = settings.grouper_hidden
        self._w1 = _variable(rng, "w1", (width, hidden))
        self._b1 = tf.Variable(tf.zeros(hidden), name="b1")
        self._of_item = _own(settings, "of_item", (items.count, hidden))
        self._w2 = _variable(rng, "w2", (hidden, num_groups))
        self._b2 = tf.Variable(tf.zeros(num_groups), name="b2")

    def logits(self) -> Any:
        """float[N, G]."""
        hidden = tf.tanh(self._embedding @ self._w1 + self._of_item + self._b1)
        return hidden @ self._w2 + self._b2


class Encoded(NamedTuple):
    """What the decoder needs of the encoder's states, for B groupings or R rows."""

    keys: Any  # float[B, G, hidden], of the attention
    values: Any  # float[B, G, hidden]
    own: Any  # float[B, G, hidden], of the group that is placed; 0 unless the decoder is aligned
    start: Any  # float[B, hidden], the decoder's first state

    def rows(self, of_row: Any) -> Encoded:
        """Of the grouping of each row, int32[R]."""
        return Encoded(*(tf.gather(array, of_row) for array in self))


class Placer(tf.Module):  # type: ignore[misc]
    """A bidirectional LSTM over the groups, and an LSTM with attention that emits their devices."""

    def __init__(
        self, items: Items, num_groups: int, device_bias: Any, settings: Settings, rng: Any
    ) -> None:
        """`device_bias`: added to the logits, float[m]."""
        super().__init__(name="placer")
        size = self._size = settings.placer_hidden
        self._settings = settings
        self._bias = tf.constant(device_bias, tf.float32)
        num_devices = self._num_devices = len(device_bias)
        width = items.types.shape[1] + items.sizes.shape[1] + num_groups
        self._project = _variable(rng, "project", (width, size))
        self._of_group = _own(settings, "of_group", (num_groups, size))
        self._forward = _Lstm(rng, "forward", size)
        self._backward = _Lstm(rng, "backward", size)
        self._start = _variable(rng, "start", (2 * size, size))
        self._decoder = _Lstm(rng, "decoder", size)
        self._previous = _variable(rng, "previous", (num_devices + 1, size))  # the last: none yet
        self._own = _variable(rng, "own", (2 * size, size)) if settings.aligned_decoder else None
        self._key = _variable(rng, "key", (2 * size, size))
        self._value = _variable(rng, "value", (2 * size, size))
        self._query = _variable(rng, "query", (size, size))
        self._combine = _variable(rng, "combine", (2 * size, size))
        self._output = _variable(rng, "output", (size, num_devices))

    def encode(self, embedding: Any) -> Encoded:
        """Of group embeddings float[B, G, width]."""
        inputs = tf.transpose(tf.tanh(embedding @ self._project + self._of_group), (1, 0, 2))
        zeros = tf.zeros((tf.shape(inputs)[1], self._size))
        forward = self._forward.sequence(inputs, zeros, zeros)
        backward = self._backward.sequence(inputs[::-1], zeros, zeros)[::-1]
        states = tf.transpose(tf.concat([forward, backward], axis=2), (1, 0, 2))
        last = tf.concat([forward[-1], backward[0]], axis=1)
        keys = states @ self._key
        return Encoded(
            keys=keys,
            values=states @ self._value,
            own=tf.zeros_like(keys) if self._own is None else states @ self._own,
            start=tf.tanh(last @ self._start),
        )

    def decide(self, encoded: Encoded, gumbel: Any, may_run: Any) -> Any:
        """Draws a device per group, int32[R, G], in order.

        Args:
            encoded: R rows.
            gumbel: noise, float[R, G, m].
            may_run: bool[R, G, m].
        """
        num_rows, steps = tf.shape(gumbel)[0], tf.shape(gumbel)[1]
        by_step = [tf.transpose(array, (1, 0, 2)) for array in (encoded.own, gumbel, may_run)]
        own, gumbel, may_run = by_step

        def body(step: Any, previous: Any, h: Any, c: Any, chosen: Any) -> Any:
            inputs = tf.gather(self._previous, previous) + own[step]
            h, c = self._decoder.cell(inputs, h, c)
            logits = self._logits(h[:, None], encoded, may_run[step][:, None])[:, 0]
            device = tf.argmax(logits + gumbel[step], axis=1, output_type=tf.int32)
            return step + 1, device, h, c, chosen.write(step, device)

        none_yet = tf.fill([num_rows], self._num_devices)
        chosen = tf.TensorArray(tf.int32, size=steps)
        start = (0, none_yet, encoded.start, encoded.start, chosen)
        *_, chosen = tf.while_loop(lambda step, *_: step < steps, body, start)
        return tf.transpose(chosen.stack())

    def log_probabilities(self, encoded: Encoded, devices: Any, may_run: Any) -> Any:
        """float[R, G, m]: of every device, given the devices int32[R, G] of the groups before."""
        none_yet = tf.fill([tf.shape(devices)[0], 1], self._num_devices)
        previous = tf.gather(self._previous, tf.concat([none_yet, devices[:, :-1]], axis=1))
        inputs = tf.transpose(previous + encoded.own, (1, 0, 2))
        h = self._decoder.sequence(inputs, encoded.start, encoded.start)
        return tf.nn.log_softmax(self._logits(tf.transpose(h, (1, 0, 2)), encoded, may_run))

    def _logits(self, h: Any, encoded: Encoded, may_run: Any) -> Any:
        """float[R, S, m] of decoder states [R, S, hidden], by attention over the encoder's."""
        scores = tf.matmul(h @ self._query, encoded.keys, transpose_b=True) / np.sqrt(self._size)
        context = tf.nn.softmax(scores) @ encoded.values
        combined = tf.tanh(tf.concat([h, context], axis=2) @ self._combine)
        settings = self._settings
        squashed = tf.tanh((combined @ self._output) / settings.temperature)
        logits = settings.tanh_constant * squashed + self._bias
        return tf.where(may_run, logits, tf.float32.min)


class _Lstm(tf.Module):  # type: ignore[misc]
    """An LSTM layer: TensorFlow's fused kernels, for a sequence and for one step of it."""

    def __init__(self, rng: Any, name: str, size: int) -> None:
        super().__init__(name=name)
        self._w = _variable(rng, "w", (2 * size, 4 * size))
        self._b = tf.Variable(tf.zeros(4 * size), name="b")
        self._zeros = tf.zeros(size)  # peepholes, which are off

    def sequence(self, inputs: Any, h: Any, c: Any) -> Any:
        """float[T, R, hidden] of as much."""
        length = tf.cast(tf.shape(inputs)[0], tf.int64)
        return tf.raw_ops.BlockLSTM(
            seq_len_max=length, x=inputs, cs_prev=c, h_prev=h, **self._weights()
        ).h

    def cell(self, inputs: Any, h: Any, c: Any) -> tuple[Any, Any]:
        """The next (h, c), each [R, hidden]."""
        step = tf.raw_ops.LSTMBlockCell(x=inputs, cs_prev=c, h_prev=h, **self._weights())
        return step.h, step.cs

    def _weights(self) -> dict[str, Any]:
        return {
            "w": self._w,
            "b": self._b,
            "wci": self._zeros,
            "wcf": self._zeros,
            "wco": self._zeros,
            "forget_bias": _FORGET_BIAS,
            "cell_clip": -1.0,
            "use_peephole": False,
        }


def embed_groups(items: Items, grouping: Any, num_groups: int) -> Any:
    """Group embeddings float[B, G, V + outputs + G] of groupings int32[B, N].

    The paper's three parts: ops of each type, output sizes, and whether a group has an edge to each
    other group.
    """
    batch = tf.shape(grouping)[0]
    row = tf.range(batch)[:, None]
    segments = tf.reshape(row * num_groups + grouping, [-1])
    own = tf.constant(np.concatenate([items.types, items.sizes], axis=1))
    width = own.shape[1]
    tiled = tf.reshape(tf.tile(own[None], (batch, 1, 1)), (-1, width))
    sums = tf.math.unsorted_segment_sum(tiled, segments, batch * num_groups)
    logs = tf.math.log1p(tf.reshape(sums, (batch, num_groups, width)))
    src = tf.gather(grouping, items.edges[:, 0], axis=1)
    dst = tf.gather(grouping, items.edges[:, 1], axis=1)
    flat = tf.reshape((row * num_groups + src) * num_groups + dst, [-1, 1])
    shape = [batch * num_groups * num_groups]
    counts = tf.scatter_nd(flat, tf.ones(tf.shape(flat)[0]), shape)
    adjacency = tf.reshape(tf.minimum(counts, 1.0), (batch, num_groups, num_groups))
    scale = tf.concat([tf.ones(items.types.shape[1]), tf.fill([items.sizes.shape[1]], 0.1)], axis=0)
    return tf.concat([logs * scale, adjacency], axis=2)


def _own(settings: Settings, name: str, shape: tuple[int, int]) -> Any:
    """An embedding that is learned, if there is to be one."""
    return tf.Variable(tf.zeros(shape), name=name) if settings.own_embeddings else 0.0


def _variable(rng: Any, name: str, shape: tuple[int, int]) -> Any:
    """Glorot-uniform values of a NumPy generator."""
    limit = np.sqrt(6 / sum(shape))
    return tf.Variable(rng.uniform(-limit, limit, shape).astype(np.float32), name=name)
