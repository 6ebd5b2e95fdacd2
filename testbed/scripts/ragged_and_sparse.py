"""Ragged batches of word ids, a sparse design matrix, and gradients of embeddings as slices."""

import json

import tensorflow as tf

words = tf.ragged.constant([[1, 2, 3], [4], [], [5, 6, 7, 8], [1, 8]])
design = tf.sparse.from_dense([[1.0, 0, 0, 2], [0, 0, 3, 0], [0, 1, 0, 0], [4, 0, 0, 1], [0] * 4])
target = tf.constant([[1.0], [0.0], [0.5], [1.0], [0.25]])
table = tf.Variable(tf.random.stateless_normal([10, 4], (1, 0)))
linear = tf.Variable(tf.random.stateless_normal([4, 1], (2, 0)))
top = tf.Variable(tf.random.stateless_normal([4, 1], (3, 0)))


@tf.function
def train_step(words, design):
    with tf.GradientTape() as tape:
        vectors = tf.ragged.map_flat_values(tf.nn.embedding_lookup, table, words)
        pooled = tf.math.divide_no_nan(
            tf.reduce_sum(vectors, axis=1),
            tf.cast(words.row_lengths(), tf.float32)[:, None],
        )
        predicted = tf.tanh(pooled) @ top + tf.sparse.sparse_dense_matmul(design, linear)
        loss = tf.reduce_mean((predicted - target) ** 2)
    slices, *rest = tape.gradient(loss, [table, linear, top])
    table.scatter_sub(tf.IndexedSlices(0.1 * slices.values, slices.indices))
    for variable, gradient in zip([linear, top], rest, strict=True):
        variable.assign_sub(0.05 * gradient)
    return loss


print(json.dumps({"losses": [float(train_step(words, design)) for _ in range(5)]}))
