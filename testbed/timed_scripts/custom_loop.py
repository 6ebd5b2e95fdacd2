"""A tf.function with a GradientTape."""

import tensorflow as tf
from stopwatch import Stopwatch, two_devices

two_devices()
inputs = tf.random.normal((256, 256))
weights = [tf.Variable(tf.random.normal((256, 256), stddev=0.05)) for _ in range(8)]


@tf.function
def train_step(values):
    with tf.GradientTape() as tape:
        for weight in weights:
            values = tf.tanh(values @ weight)
        loss = tf.reduce_mean(values**2)
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.01 * gradient)
    return loss


stopwatch = Stopwatch()
for _ in range(60):
    stopwatch()
    loss = train_step(inputs)
stopwatch.write()
