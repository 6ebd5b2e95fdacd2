"""A training loop inside a tf.function, around a recurrent network that is a while loop as well.

The outer loop holds the GradientTape and the variable updates; the inner one runs two independent
recurrent cells over a sequence.
"""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.workloads.setup import Setup, Training, eager_session

_BATCH = 16
_LENGTH = 6
_WIDTH = 32
_LEARNING_RATE = 0.1


def train(setup: Setup) -> Training:
    """All steps are one call."""
    with eager_session(setup) as graphs:
        import tensorflow as tf

        sequence = _noise(1, (_LENGTH, _BATCH, _WIDTH), 1.0)
        wanted = _noise(2, (_BATCH, _WIDTH), 0.5)
        weights = [tf.Variable(_noise(seed, (_WIDTH, _WIDTH), 0.2)) for seed in range(3, 7)]

        @tf.function  # type: ignore[untyped-decorator]
        def train_all(steps: tf.Tensor) -> tf.Tensor:
            losses = tf.TensorArray(tf.float32, size=steps)
            for step in tf.range(steps):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((recurrent(sequence, weights) - wanted) ** 2)
                for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                    weight.assign_sub(_LEARNING_RATE * gradient)
                losses = losses.write(step, loss)
            return losses.stack()

        def recurrent(sequence: tf.Tensor, weights: list[tf.Variable]) -> tf.Tensor:
            left = right = tf.zeros((_BATCH, _WIDTH))
            for index in tf.range(_LENGTH):
                left = tf.tanh(sequence[index] @ weights[0] + left @ weights[1])
                right = tf.tanh(sequence[index] @ weights[2] + right @ weights[3])
            return left * right

        losses = train_all(tf.constant(setup.steps)).numpy().tolist()
    return Training(losses, graphs)


def _noise(seed: int, shape: tuple[int, ...], deviation: float) -> Any:
    import tensorflow as tf

    return tf.random.stateless_normal(shape, (seed, seed), stddev=deviation)
