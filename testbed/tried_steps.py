"""Ten small training steps with what a trial must not change: `python -m testbed.tried_steps NAME`.

Each prints its loss of every step as JSON. Two of them keep state in kernels.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

STEPS = 300
Step = Callable[[], Any]


def normal(shape: list[int], seed: int) -> Any:
    """The same numbers in each process."""
    return tf.random.stateless_normal(shape, (seed, 0)) * 0.3


def network(seed: int = 0) -> list[tf.Variable]:
    """Weights of two towers and what joins them."""
    shapes = ([8, 16], [8, 16], [16, 1])
    return [tf.Variable(normal(shape, 10 * seed + i)) for i, shape in enumerate(shapes)]


def predict(x: Any, weights: list[tf.Variable]) -> Any:
    """Of rows of eight."""
    return (tf.nn.relu(x @ weights[0]) * 0.5 + tf.nn.tanh(x @ weights[1])) @ weights[2]


def updates(loss: Callable[[], Any], weights: list[tf.Variable]) -> Any:
    """One step of gradient descent; the loss before it."""
    with tf.GradientTape() as tape:
        value = loss()
    for weight, gradient in zip(weights, tape.gradient(value, weights), strict=True):
        weight.assign_sub(0.05 * gradient)
    return value


def dropout() -> Step:
    """`tf.nn.dropout` draws with a kernel that counts."""
    tf.random.set_seed(1)
    weights, x = network(), normal([12, 8], 99)
    return tf.function(
        lambda: updates(
            lambda: tf.reduce_mean((tf.nn.dropout(predict(x, weights), 0.3) - 1) ** 2), weights
        )
    )


def random_numbers() -> Step:
    """`tf.random` in the step."""
    tf.random.set_seed(2)
    weights = network()

    def loss() -> Any:
        x = tf.random.normal([12, 8])
        return tf.reduce_mean((predict(x, weights) - tf.reduce_sum(x, 1, keepdims=True)) ** 2)

    return tf.function(lambda: updates(loss, weights))


def keras_seeds() -> Step:
    """Layers of Keras 3 with seeds of their own, which are variables."""
    import keras

    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(16, "relu"), keras.layers.GaussianNoise(0.1, seed=5)]
    layers += [keras.layers.Dropout(0.4, seed=6), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    x = normal([12, 8], 99)
    model(x)
    weights = model.trainable_variables
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(weights)

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - 1) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    return tf.function(step)


def dataset_inside() -> Step:
    """The step takes its batch from an iterator, which is shuffled."""
    weights = network()
    rows = tf.data.Dataset.from_tensor_slices(normal([96, 8], 4)).shuffle(32, seed=7).repeat()
    iterator = iter(rows.batch(12, drop_remainder=True))

    def loss() -> Any:
        x = next(iterator)
        return tf.reduce_mean((predict(x, weights) - tf.sin(x[:, :1])) ** 2)

    return tf.function(lambda: updates(loss, weights))


def lookup_tables() -> Step:
    """A static table, and one that the step writes to."""
    weights = network()
    numbers = tf.range(12)
    static = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(numbers, tf.cast(numbers, tf.float32) / 7), -1.0
    )
    seen = tf.lookup.experimental.MutableHashTable(tf.int32, tf.float32, 0.0)
    x = normal([12, 8], 99)

    def loss() -> Any:
        seen.insert(numbers, seen.lookup(numbers) * 0.9 + 0.1)
        target = (static.lookup(numbers) * seen.lookup(numbers))[:, None]
        return tf.reduce_mean((predict(x, weights) - target) ** 2)

    return tf.function(lambda: updates(loss, weights))


def tensor_arrays() -> Step:
    """A recurrent loop that writes what it computes."""
    weights, start = network(), normal([4, 8], 99)

    def loss() -> Any:
        x, rows = start, tf.TensorArray(tf.float32, 5)
        for i in tf.range(5):
            x = tf.tanh(x + 0.1 * predict(x, weights))
            rows = rows.write(i, x)
        return tf.reduce_mean((rows.stack() - 0.5) ** 2)

    return tf.function(lambda: updates(loss, weights))


def python_function() -> Step:
    """Part of the step is Python, with state of its own."""
    weights, x, calls = network(), normal([12, 8], 99), []

    def target(rows: Any) -> Any:
        calls.append(1)
        return np.float32(np.sin(rows.numpy().sum(1, keepdims=True) + len(calls) / 50))

    def loss() -> Any:
        wanted = tf.ensure_shape(tf.py_function(target, [x], tf.float32), [12, 1])
        return tf.reduce_mean((predict(x, weights) - wanted) ** 2)

    return tf.function(lambda: updates(loss, weights))


def metrics() -> Step:
    """Metrics of Keras, updated in the step; what they say counts as well."""
    import keras

    weights, x = network(), normal([12, 8], 99)
    mean, error = keras.metrics.Mean(), keras.metrics.MeanAbsoluteError()
    error.update_state(tf.zeros([1, 1]), tf.zeros([1, 1]))  # which makes its variables

    def step() -> Any:
        loss = updates(lambda: tf.reduce_mean((predict(x, weights) - 1) ** 2), weights)
        mean.update_state(loss)
        error.update_state(tf.ones([12, 1]), predict(x, weights))
        return loss + mean.result() + error.result()

    return tf.function(step)


def mixed_precision() -> Step:
    """Products in bfloat16, variables in float32, and a loss that is scaled."""
    weights, x = network(), tf.cast(normal([12, 8], 99), tf.bfloat16)

    def step() -> Any:
        with tf.GradientTape() as tape:
            low = [tf.cast(weight, tf.bfloat16) for weight in weights]
            loss = tf.reduce_mean((tf.cast(predict(x, low), tf.float32) - 1) ** 2)
            scaled = loss * 128
        for weight, gradient in zip(weights, tape.gradient(scaled, weights), strict=True):
            weight.assign_sub(0.05 * tf.cast(gradient, tf.float32) / 128)
        return loss

    return tf.function(step)


def accumulation() -> Step:
    """Gradients of four calls are summed before they are applied."""
    weights, sums, calls = network(), network(), tf.Variable(0)
    for total in sums:
        total.assign(tf.zeros_like(total))
    rows = normal([48, 8], 99)

    def apply() -> Any:
        for weight, total in zip(weights, sums, strict=True):
            weight.assign_sub(0.02 * total)
            total.assign(tf.zeros_like(total))
        return 1.0

    def step() -> Any:
        x = rows[calls % 4 * 12 : calls % 4 * 12 + 12]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((predict(x, weights) - tf.cos(x[:, :1])) ** 2)
        for total, gradient in zip(sums, tape.gradient(loss, weights), strict=True):
            total.assign_add(gradient)
        calls.assign_add(1)
        return loss + 0.0 * tf.cond(calls % 4 == 0, apply, lambda: 0.0)

    return tf.function(step)


TRIED_STEPS: dict[str, Callable[[], Step]] = {
    "dropout": dropout,
    "random numbers": random_numbers,
    "Keras seeds": keras_seeds,
    "dataset inside": dataset_inside,
    "lookup tables": lookup_tables,
    "tensor arrays": tensor_arrays,
    "Python function": python_function,
    "metrics": metrics,
    "mixed precision": mixed_precision,
    "accumulation": accumulation,
}
KEEP_STATE = {"dropout", "random numbers"}


def main() -> None:
    """Trains and prints."""
    step = TRIED_STEPS[sys.argv[1]]()
    for _ in range(STEPS):
        print(json.dumps({"loss": float(step())}))


if __name__ == "__main__":
    main()
