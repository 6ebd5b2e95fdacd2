"""A transformer's encoder in plain ops, with padding, learns hidden words as its rate warms up."""

import json
import math

import tensorflow as tf

WORDS, WIDTH, HEADS, LENGTH = 20, 12, 3, 7


def weight(shape, seed):
    return tf.Variable(tf.random.stateless_normal(shape, (seed, 0)) * 0.3)


table = weight([WORDS, WIDTH], 1)
query, key, value = (weight([WIDTH, HEADS, WIDTH // HEADS], seed) for seed in (2, 3, 4))
joined = weight([HEADS, WIDTH // HEADS, WIDTH], 5)
wide, narrow = weight([WIDTH, 4 * WIDTH], 6), weight([4 * WIDTH, WIDTH], 7)
scales = [tf.Variable(tf.ones([WIDTH])) for _ in range(2)]
shifts = [tf.Variable(tf.zeros([WIDTH])) for _ in range(2)]
weights = [table, query, key, value, joined, wide, narrow, *scales, *shifts]

words = tf.random.stateless_uniform([6, LENGTH], (8, 0), 1, WORDS, tf.int32)
is_word = tf.sequence_mask([7, 5, 6, 7, 3, 4], LENGTH)
angles = tf.range(LENGTH, dtype=tf.float32)[:, None] / 10.0 ** tf.linspace(0.0, 2.0, WIDTH // 2)
positions = tf.concat([tf.sin(angles), tf.cos(angles)], axis=1)


def normalized(values, number):
    mean, variance = tf.nn.moments(values, axes=[-1], keepdims=True)
    values = (values - mean) * tf.math.rsqrt(variance + 1e-6)
    return values * scales[number] + shifts[number]


def encode(words):
    hidden = tf.gather(table, words) + positions
    values = normalized(hidden, 0)
    queries, keys, answers = (
        tf.einsum("btw,whd->bhtd", values, weights) for weights in (query, key, value)
    )
    scores = tf.matmul(queries, keys, transpose_b=True) / math.sqrt(WIDTH // HEADS)
    scores = tf.where(is_word[:, None, None, :], scores, -1e9)
    hidden += tf.einsum("bhtd,hdw->btw", tf.nn.softmax(scores) @ answers, joined)
    return hidden + tf.nn.gelu(normalized(hidden, 1) @ wide) @ narrow


@tf.function
def train_step(step):
    is_hidden = (tf.range(LENGTH) + step) % 3 == 0
    with tf.GradientTape() as tape:
        encoded = encode(tf.where(is_hidden, 0, words))
        logits = tf.matmul(encoded, table, transpose_b=True) / math.sqrt(WIDTH)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=words, logits=logits)
        counts = tf.cast(is_word & is_hidden, tf.float32)
        loss = tf.reduce_sum(losses * counts) / tf.reduce_sum(counts)
    rate = 0.1 * tf.minimum(1.0, tf.cast(step + 1, tf.float32) / 4.0)
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(rate * tf.convert_to_tensor(gradient))
    return loss, rate


for step in range(6):
    loss, rate = train_step(tf.constant(step))
    print(json.dumps({"loss": float(loss), "rate": float(rate)}))
