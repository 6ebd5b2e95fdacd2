"""A graph network: nodes get messages along edges, as sums, means, maxima and by attention."""

import json

import tensorflow as tf

NODES, EDGES, WIDTH, CLASSES = 20, 60, 8, 3
features = tf.random.stateless_normal([NODES, 5], (1, 0))
edges = tf.random.stateless_uniform([EDGES, 2], (2, 0), 0, NODES, tf.int32)
edges = tf.concat([edges, tf.stack([tf.range(NODES)] * 2, axis=1)], axis=0)
labels = tf.argmax(features[:, :CLASSES], axis=1)
is_known = tf.cast(tf.range(NODES) % 3 > 0, tf.float32)


def weight(shape, seed):
    return tf.Variable(tf.random.stateless_normal(shape, (seed, 0)) * 0.3)


enter, out = weight([5, WIDTH], 3), weight([WIDTH, CLASSES], 4)
messages = [weight([2 * WIDTH, WIDTH], seed) for seed in (5, 6)]
attention = [weight([WIDTH, 1], seed) for seed in (7, 8)]
updates = [weight([4 * WIDTH, WIDTH], seed) for seed in (9, 10)]
weights = [enter, out, *messages, *attention, *updates]


def pass_messages(nodes, edges, layer):
    sources, targets = tf.unstack(edges, axis=1)
    ends = tf.concat([tf.gather(nodes, sources), tf.gather(nodes, targets)], axis=1)
    sent = tf.nn.selu(ends @ messages[layer])
    scores = tf.exp(tf.tanh(sent @ attention[layer]))
    total = tf.math.unsorted_segment_sum(scores, targets, NODES)
    attended = tf.math.unsorted_segment_sum(
        sent * scores / tf.gather(total, targets), targets, NODES
    )
    received = [
        attended,
        tf.math.unsorted_segment_mean(sent, targets, NODES),
        tf.math.unsorted_segment_max(sent, targets, NODES),
    ]
    return nodes + tf.tanh(tf.concat([nodes, *received], axis=1) @ updates[layer])


@tf.function
def train_step(step, labels):
    is_kept = tf.random.stateless_uniform([EDGES + NODES], tf.stack([step, 11])) < 0.9
    kept = tf.boolean_mask(edges, is_kept | (tf.range(EDGES + NODES) >= EDGES))
    with tf.GradientTape() as tape:
        nodes = features @ enter
        for layer in range(2):
            nodes = pass_messages(nodes, kept, layer)
        logits = nodes @ out
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_sum(losses * is_known) / tf.reduce_sum(is_known)
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.1 * tf.clip_by_value(gradient, -0.5, 0.5))
    found = tf.argmax(logits, axis=1)
    return loss, tf.math.confusion_matrix(labels, found, CLASSES)


for step in range(6):
    loss, confusion = train_step(tf.constant(step), labels)
    print(json.dumps({"loss": float(loss), "confusion": confusion.numpy().tolist()}))
