"""Four models train at the same time, each in a thread of its own with a function of its own."""

import json
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf


def train(number):
    weights = tf.Variable(tf.random.stateless_normal([6, 6], (number % 2, 0)) * 0.4)
    x = tf.random.stateless_normal([10, 6], (number % 2, 1))

    @tf.function
    def train_step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(x @ weights) @ tf.transpose(weights) - x) ** 2)
        weights.assign_sub(0.2 * tape.gradient(loss, weights))
        return loss

    return [float(train_step()) for _ in range(5)]


with ThreadPoolExecutor(4) as pool:
    for number, losses in enumerate(pool.map(train, range(4))):
        print(json.dumps({"model": number, "losses": losses}))
