"""Two training functions that take turns; a step is a round of both."""

import tensorflow as tf
from stopwatch import Stopwatch, two_devices

two_devices()
noise, real = tf.random.normal((256, 128)), tf.random.normal((256, 128))
generator = [tf.Variable(tf.random.normal((128, 128), stddev=0.1)) for _ in range(6)]
critic = [tf.Variable(tf.random.normal((128, 128), stddev=0.1)) for _ in range(9)]


def run(values, weights):
    for weight in weights:
        values = tf.tanh(values @ weight)
    return values


def update(tape, loss, weights):
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.01 * gradient)


@tf.function
def train_critic():
    with tf.GradientTape() as tape:
        fake, genuine = run(run(noise, generator), critic), run(real, critic)
        loss = tf.reduce_mean(fake) - tf.reduce_mean(genuine)
    update(tape, loss, critic)
    return loss


@tf.function
def train_generator():
    with tf.GradientTape() as tape:
        loss = -tf.reduce_mean(run(run(noise, generator), critic))
    update(tape, loss, generator)
    return loss


stopwatch = Stopwatch()
for _ in range(60):
    stopwatch()
    train_critic()
    train_generator()
stopwatch.write()
