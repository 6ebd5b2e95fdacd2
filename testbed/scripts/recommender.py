"""Two towers over embeddings: drawn negatives, and Adagrad on only the rows that a batch has."""

import json

import tensorflow as tf

USERS, ITEMS, WIDTH, BATCH = 50, 40, 8, 16


def weight(shape, seed):
    return tf.Variable(tf.random.stateless_normal(shape, (seed, 0)) * 0.3)


tables = [weight([USERS, WIDTH], 1), weight([ITEMS, WIDTH], 2)]
layers = [weight([WIDTH, WIDTH], 3), weight([WIDTH, WIDTH], 4)]
biases = weight([ITEMS], 5)
weights = [*tables, biases, *layers]
squares = [tf.Variable(tf.fill(weight.shape, 0.1)) for weight in weights]


def tower(number, ids):
    vectors = tf.nn.embedding_lookup(tables[number], ids)
    return tf.nn.elu(vectors @ layers[number]) + vectors


def apply(weight, square, gradient):
    if isinstance(gradient, tf.IndexedSlices):
        rows, places = tf.unique(gradient.indices)
        summed = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
        square.scatter_add(tf.IndexedSlices(summed**2, rows))
        scaled = summed * tf.math.rsqrt(tf.gather(square, rows))
        weight.scatter_sub(tf.IndexedSlices(0.2 * scaled, rows))
    else:
        square.assign_add(gradient**2)
        weight.assign_sub(0.2 * gradient * tf.math.rsqrt(square))


@tf.function
def train_step(users, items, seed):
    drawn = tf.random.stateless_uniform([BATCH], seed, 0, ITEMS, tf.int64)
    with tf.GradientTape() as tape:
        of_users = tower(0, users)
        liked, other = (
            tf.reduce_sum(of_users * tower(1, ids), axis=1) + tf.gather(biases, ids)
            for ids in (items, drawn)
        )
        loss = -tf.reduce_mean(tf.math.log_sigmoid(liked - other))
    for weight, square, gradient in zip(
        weights, squares, tape.gradient(loss, weights), strict=True
    ):
        apply(weight, square, gradient)
    return loss


@tf.function
def hits(users, items):
    scores = tf.matmul(tower(0, users), tower(1, tf.range(ITEMS)), transpose_b=True) + biases
    return tf.reduce_sum(tf.cast(tf.math.in_top_k(items, scores, 5), tf.int32))


for step in range(8):
    users = tf.random.stateless_uniform([BATCH], (step, 0), 0, USERS, tf.int64)
    items = users * 7 % ITEMS
    print(json.dumps({"loss": float(train_step(users, items, tf.constant([step, 1])))}))
print(json.dumps({"hits": int(hits(users, items))}))
