"""Annotates devices by hand: whole devices, types only, one that is not there, and inside calls."""

import json

import tensorflow as tf

tf.config.set_soft_device_placement(True)
with tf.device("/CPU:1"):
    far = tf.Variable(tf.random.stateless_normal([6, 6], (1, 0)) * 0.4)
near = tf.Variable(tf.random.stateless_normal([6, 6], (2, 0)) * 0.4)
x = tf.random.stateless_normal([10, 6], (3, 0))


@tf.function(experimental_attributes={"_noinline": True})
def called(value):
    with tf.device("/CPU:1"):
        return tf.sin(value) + 1.0


@tf.function
def train_step(rate):
    with tf.GradientTape() as tape:
        with tf.device("/CPU:1"):
            a = tf.tanh(x @ far)
        with tf.device("/device:GPU:0"):  # there is none: TensorFlow takes another device
            b = tf.tanh(x @ near)
        with tf.device("/job:localhost/task:0/device:CPU:*"):
            c = called(a * b)
        with tf.device("/CPU:1"), tf.device(None):
            loss = tf.reduce_mean((c + a - x) ** 2)
    for weights, gradient in zip([far, near], tape.gradient(loss, [far, near]), strict=True):
        weights.assign_sub(rate * gradient)
    return loss


print(json.dumps({"losses": [float(train_step(tf.constant(0.2))) for _ in range(4)]}))
tf.config.set_soft_device_placement(False)


@tf.function
def strict_step():
    with tf.GradientTape() as tape:
        with tf.device("/CPU:1"):
            hidden = tf.tanh(x @ far)
        loss = tf.reduce_mean((hidden @ near - x) ** 2)
    for weights, gradient in zip([far, near], tape.gradient(loss, [far, near]), strict=True):
        weights.assign_sub(0.1 * gradient)
    return loss


print(json.dumps({"losses": [float(strict_step()) for _ in range(4)]}))
