"""Contrastive learning: two views of a row agree against a queue of keys from a slower encoder."""

import json

import tensorflow as tf

ROWS, WIDTH, OUT, QUEUE = 8, 10, 6, 24
data = tf.random.stateless_normal([32, WIDTH], (1, 0))
shapes = ([WIDTH, 16], [16, OUT])
encoder = [
    tf.Variable(tf.random.stateless_normal(shape, (seed, 0)) * 0.4)
    for seed, shape in enumerate(shapes, start=2)
]
slow = [tf.Variable(weight) for weight in encoder]
queue = tf.Variable(tf.math.l2_normalize(tf.random.stateless_normal([QUEUE, OUT], (4, 0)), axis=1))
temperature = tf.Variable(0.0)


def view(rows, seed):
    noise = tf.random.stateless_normal(tf.shape(rows), seed)
    mask = tf.random.stateless_uniform(tf.shape(rows), seed + 1) < 0.8
    return tf.where(mask, rows + 0.1 * noise, 0.0)


def encode(rows, weights):
    hidden = tf.nn.relu(rows @ weights[0])
    hidden -= tf.reduce_mean(hidden, axis=0)
    return tf.math.l2_normalize(hidden @ weights[1], axis=1)


@tf.function
def train_step(rows, seed):
    keys = encode(view(rows, seed), slow)
    with tf.GradientTape() as tape:
        queries = encode(view(rows, seed + 2), encoder)
        alike = tf.reduce_sum(queries * keys, axis=1, keepdims=True)
        others = tf.matmul(queries, queue, transpose_b=True)
        logits = tf.concat([alike, others], axis=1) * 5.0 * tf.exp(temperature)
        loss = tf.reduce_mean(tf.reduce_logsumexp(logits, axis=1) - logits[:, 0])
    variables = [*encoder, temperature]
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.1 * gradient)
    for mine, other in zip(slow, encoder, strict=True):
        mine.assign(0.8 * mine + 0.2 * other)
    queue.assign(tf.concat([keys, queue[:-ROWS]], axis=0))
    rank = tf.reduce_sum(tf.cast(others > alike, tf.int32), axis=1)
    return loss, tf.sort(rank)


for step in range(8):
    rows = data[step % 4 * ROWS : step % 4 * ROWS + ROWS]
    loss, rank = train_step(rows, tf.constant([step, 5]))
    print(json.dumps({"loss": float(loss), "rank": rank.numpy().tolist()}))
