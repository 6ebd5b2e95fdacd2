"""A loop of one's own: a function computes and applies the gradients of two towers."""

import json

import tensorflow as tf

tf.random.set_seed(1)
data = tf.random.stateless_normal([64, 8], (1, 0))
target = tf.reduce_sum(data**2, axis=1, keepdims=True)
left, right = (tf.Variable(tf.random.stateless_normal([8, 16], (s, 0)) * 0.3) for s in (2, 3))
out = tf.Variable(tf.random.stateless_normal([16, 1], (4, 0)) * 0.3)
weights = [left, right, out]
velocities = [tf.Variable(tf.zeros_like(weight)) for weight in weights]


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(x @ left) + tf.nn.tanh(x @ right)
        loss = tf.reduce_mean((hidden @ out - y) ** 2)
    for weight, velocity, gradient in zip(
        weights, velocities, tape.gradient(loss, weights), strict=True
    ):
        velocity.assign(0.9 * velocity + gradient)
        weight.assign_sub(0.01 * velocity)
    return loss


for step in range(6):
    rows = slice(step % 4 * 16, step % 4 * 16 + 16)
    print(json.dumps({"step": step, "loss": float(train_step(data[rows], target[rows]))}))
