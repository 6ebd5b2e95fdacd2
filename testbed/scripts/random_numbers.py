"""Random numbers in the step: a generator with state, stateless ops, and seeds of the graph."""

import json

import tensorflow as tf

tf.random.set_seed(7)
generator = tf.random.Generator.from_seed(8)
weights = tf.Variable(tf.random.stateless_normal([6, 6], (1, 0)) * 0.4)
x = tf.random.stateless_normal([10, 6], (2, 0))


@tf.function
def train_step(step):
    noise = generator.normal([10, 6])
    mask = tf.random.stateless_uniform([10, 6], tf.stack([step, 1])) < 0.8
    order = tf.random.shuffle(tf.range(10), seed=3)
    with tf.GradientTape() as tape:
        hidden = tf.nn.dropout(tf.tanh((x + 0.1 * noise) @ weights), 0.25, seed=4)
        rows = tf.gather(hidden * tf.cast(mask, tf.float32), order)
        loss = tf.reduce_mean((rows - x) ** 2)
    weights.assign_sub(0.2 * tape.gradient(loss, weights))
    return loss, order[0]


for step in range(4):
    loss, first = train_step(tf.constant(step))
    print(json.dumps({"loss": float(loss), "first": int(first)}))
