"""An assertion in the step does not hold from the third step on, and nobody catches it."""

import json

import tensorflow as tf

weights = tf.Variable(tf.random.stateless_normal([6, 6], (1, 0)) * 0.4)
x = tf.random.stateless_normal([10, 6], (2, 0))


@tf.function
def train_step(step):
    with tf.GradientTape() as tape:
        hidden = tf.tanh(x @ weights)
        loss = tf.reduce_mean((hidden @ tf.transpose(weights) - x) ** 2)
    tf.debugging.assert_less(step, 2, message="too many steps")
    weights.assign_sub(0.2 * tape.gradient(loss, weights))
    return loss


for step in range(4):
    print(json.dumps({"loss": float(train_step(tf.constant(step)))}), flush=True)
