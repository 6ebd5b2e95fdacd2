"""Gradients of one's own, stopped, reversed, recomputed and clipped on the way back."""

import json

import tensorflow as tf

weights = [tf.Variable(tf.random.stateless_normal([7, 7], (s, 0)) * 0.4) for s in range(3)]
x = tf.random.stateless_normal([9, 7], (9, 0))


@tf.custom_gradient
def reverse(value):
    return tf.identity(value), lambda upstream: -0.5 * upstream


@tf.custom_gradient
def clipped(value):
    return tf.exp(value), lambda upstream: tf.clip_by_value(upstream * tf.exp(value), -0.1, 0.1)


@tf.recompute_grad
def block(value, weight):
    return tf.nn.relu(value @ weight) + tf.sin(value)


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        hidden = block(x, weights[0])
        hidden = hidden + reverse(tf.tanh(hidden @ weights[1]))
        hidden = clipped(0.1 * hidden @ weights[2]) - tf.stop_gradient(hidden)
        loss = tf.reduce_mean(hidden**2)
    gradients = tape.gradient(loss, weights)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.assign_sub(0.2 * gradient)
    return loss, tf.linalg.global_norm(gradients)


for _ in range(5):
    loss, norm = train_step()
    print(json.dumps({"loss": float(loss), "norm": float(norm)}))
