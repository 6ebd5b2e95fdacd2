"""Imports TensorFlow, forks before any op ran, and trains in the child and then in the parent."""

import json
import os

import tensorflow as tf


def train(who):
    weights = tf.Variable(tf.random.stateless_normal([6, 6], (1, 0)) * 0.4)
    x = tf.random.stateless_normal([10, 6], (2, 0))

    @tf.function
    def train_step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(x @ weights) @ tf.transpose(weights) - x) ** 2)
        weights.assign_sub(0.2 * tape.gradient(loss, weights))
        return loss

    print(json.dumps({who: [float(train_step()) for _ in range(4)]}), flush=True)


child = os.fork()
if child == 0:
    train("child")
    os._exit(0)
_, status = os.waitpid(child, 0)
print(json.dumps({"exit code of the child": os.waitstatus_to_exitcode(status)}), flush=True)
train("parent")
