"""cond, switch_case, scan, map_fn and vectorized_map, each with gradients."""

import json

import tensorflow as tf

a = tf.Variable(tf.random.stateless_normal([6, 6], (1, 0)) * 0.4)
b = tf.Variable(tf.random.stateless_normal([6, 6], (2, 0)) * 0.4)
x = tf.random.stateless_normal([8, 6], (3, 0))


@tf.function
def train_step(step):
    with tf.GradientTape() as tape:
        if step % 2 == 0:
            hidden = tf.nn.relu(x @ a)
        else:
            hidden = tf.nn.softplus(x @ b)
            hidden *= 0.5
        branch = tf.switch_case(
            step % 3, [lambda: hidden @ b, lambda: hidden @ a, lambda: tf.sin(hidden)]
        )
        scanned = tf.scan(lambda state, row: tf.tanh(state + row), branch, tf.zeros([6]))
        mapped = tf.map_fn(lambda row: tf.reduce_sum(row * row), scanned)
        product = tf.vectorized_map(lambda row: tf.tensordot(row, row[::-1], 1), branch)
        loss = tf.reduce_mean(mapped) + 0.1 * tf.reduce_mean(product**2)
    gradients = tape.gradient(loss, [a, b], unconnected_gradients=tf.UnconnectedGradients.ZERO)
    a.assign_sub(0.1 * gradients[0])
    b.assign_sub(0.1 * gradients[1])
    return loss


print(json.dumps({"losses": [float(train_step(tf.constant(step))) for step in range(6)]}))
