"""A two-layer LSTM, unrolled, trained by a tf.function with a GradientTape.

The task is to continue the parity of a random bit sequence. Cell k of layer two and cell k+1 of
layer one can run at the same time: the shape that device placement is best known for.
"""

from __future__ import annotations

from hplacer_optimizer.workloads.setup import Setup, Training, eager_session

_BATCH = 32
_LENGTH = 8
_WIDTH = 64


def train(setup: Setup) -> Training:
    """Trains on one batch."""
    with eager_session(setup) as graphs:
        import keras
        import numpy as np
        import tensorflow as tf

        keras.utils.set_random_seed(0)
        bits = np.random.default_rng(0).integers(0, 2, (_BATCH, _LENGTH, 1))
        inputs = tf.constant(bits, tf.float32)
        labels = tf.constant(bits.cumsum(axis=1) % 2, tf.float32)
        layers = [
            keras.layers.LSTM(_WIDTH, return_sequences=True, unroll=True),
            keras.layers.LSTM(_WIDTH, return_sequences=True, unroll=True),
            keras.layers.Dense(1),
        ]
        model = keras.Sequential([keras.Input((_LENGTH, 1)), *layers])
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

        @tf.function  # type: ignore[untyped-decorator]
        def step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                logits = model(inputs, training=True)
                losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        losses = [float(step()) for _ in range(setup.steps)]
    return Training(losses, graphs)
