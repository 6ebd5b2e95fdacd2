"""A GRU that reads by tf.scan and one that writes by tf.while_loop learn to turn words around."""

import json

import tensorflow as tf

WORDS, WIDTH, BATCH, LENGTH = 8, 10, 6, 5
START = 0


def weight(shape, seed):
    return tf.Variable(tf.random.stateless_normal(shape, (seed, 0)) * 0.4)


table, out = weight([WORDS, WIDTH], 1), weight([WIDTH, WORDS], 2)
reading, writing = (
    [weight([2 * WIDTH, 2 * WIDTH], seed), weight([2 * WIDTH, WIDTH], seed + 1)] for seed in (3, 5)
)
weights = [table, out, *reading, *writing]
velocities = [tf.Variable(tf.zeros_like(weight)) for weight in weights]


def gru(cell, state, vectors):
    gates = tf.sigmoid(tf.concat([vectors, state], axis=1) @ cell[0])
    update, reset = tf.split(gates, 2, axis=1)
    candidate = tf.tanh(tf.concat([vectors, reset * state], axis=1) @ cell[1])
    return update * state + (1.0 - update) * candidate


def read(words):
    vectors = tf.gather(table, tf.transpose(words))
    states = tf.scan(lambda *args: gru(reading, *args), vectors, tf.zeros([BATCH, WIDTH]))
    return states[-1]


@tf.function
def train_step(words):
    wanted = tf.reverse(words, axis=[1])
    given = tf.pad(wanted, [[0, 0], [1, 0]], constant_values=START)[:, :-1]
    with tf.GradientTape() as tape:

        def step(time, state, logits):
            state = gru(writing, state, tf.gather(table, given[:, time]))
            return time + 1, state, logits.write(time, state @ out)

        *_, logits = tf.while_loop(
            lambda time, *_: time < tf.shape(words)[1],
            step,
            (0, read(words), tf.TensorArray(tf.float32, size=tf.shape(words)[1])),
        )
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.transpose(wanted), logits=logits.stack()
        )
        loss = tf.reduce_mean(losses)
    gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, weights), 1.0)
    for weight, velocity, gradient in zip(weights, velocities, gradients, strict=True):
        velocity.assign(0.8 * velocity + gradient)
        weight.assign_sub(0.3 * velocity)
    return loss, norm


@tf.function
def write(words):
    state, word = read(words), tf.fill([BATCH], START)
    written = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
    for time in tf.range(LENGTH):
        state = gru(writing, state, tf.gather(table, word))
        word = tf.argmax(state @ out, axis=1, output_type=tf.int32)
        written = written.write(time, word)
    return tf.transpose(written.stack())


for number in range(8):
    words = tf.random.stateless_uniform([BATCH, LENGTH], (number % 2, 9), 1, WORDS, tf.int32)
    loss, norm = train_step(words)
    print(json.dumps({"loss": float(loss), "norm": float(norm)}))
print(json.dumps({"written": write(words).numpy().tolist()}))
