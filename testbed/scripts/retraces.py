"""One function, many shapes and Python arguments: each is another graph."""

import json

import tensorflow as tf

weight = tf.Variable(tf.random.stateless_normal([5, 5], (1, 0)) * 0.4)
traces = []


@tf.function
def train_step(x, depth, shift=0.1):
    traces.append((x.shape[0], depth))
    with tf.GradientTape() as tape:
        for _ in range(depth):
            x = tf.tanh(x @ weight) + shift
        loss = tf.reduce_mean(x**2)
    weight.assign_sub(0.3 * tape.gradient(loss, weight))
    return loss


for rows in (2, 3, 2, 5, 3):
    for depth in (1, 2):
        x = tf.random.stateless_normal([rows, 5], (rows, depth))
        print(json.dumps({"rows": rows, "depth": depth, "loss": float(train_step(x, depth))}))
print(json.dumps({"traces": traces}))
