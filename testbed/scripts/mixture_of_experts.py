"""A mixture of experts: each row goes to its two best ones, as long as these have room for it."""

import json

import tensorflow as tf

ROWS, WIDTH, EXPERTS, ROOM, BEST = 16, 6, 4, 8, 2
x = tf.random.stateless_normal([ROWS, WIDTH], (1, 0))
y = tf.where(x[:, :1] > 0.0, tf.sin(x), tf.cos(x))


def weight(shape, seed):
    return tf.Variable(tf.random.stateless_normal(shape, (seed, 0)) * 0.4)


router = weight([WIDTH, EXPERTS], 2)
wide, narrow = weight([EXPERTS, WIDTH, 12], 3), weight([EXPERTS, 12, WIDTH], 4)
weights = [router, wide, narrow]


def mix(x):
    shares = tf.nn.softmax(x @ router)
    best, experts = tf.math.top_k(shares, BEST)
    chosen = tf.reshape(tf.transpose(experts), [-1])  # the first choices of all rows come first
    rows = tf.tile(tf.range(ROWS), [BEST])
    is_chosen = tf.one_hot(chosen, EXPERTS, dtype=tf.int32)
    place = tf.reduce_sum(tf.cumsum(is_chosen, axis=0, exclusive=True) * is_chosen, axis=1)
    fits = tf.where(place < ROOM)[:, 0]
    where = tf.gather(tf.stack([chosen, place], axis=1), fits)
    rows = tf.gather(rows, fits)
    sent = tf.scatter_nd(where, tf.gather(x, rows), [EXPERTS, ROOM, WIDTH])
    answers = tf.gather_nd(tf.nn.silu(sent @ wide) @ narrow, where)
    gates = tf.gather(tf.reshape(tf.transpose(best), [-1]), fits)
    mixed = tf.scatter_nd(rows[:, None], answers * gates[:, None], [ROWS, WIDTH])
    load = tf.reduce_mean(tf.one_hot(experts[:, 0], EXPERTS), axis=0)
    balance = EXPERTS * tf.reduce_sum(load * tf.reduce_mean(shares, axis=0))
    return mixed, balance, ROWS * BEST - tf.size(fits)


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        mixed, balance, dropped = mix(x)
        loss = tf.reduce_mean((mixed - y) ** 2) + 0.01 * balance
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.5 * gradient)
    return loss, balance, dropped


for _ in range(6):
    loss, balance, dropped = train_step()
    found = {"loss": float(loss), "balance": float(balance), "dropped": int(dropped)}
    print(json.dumps(found))
