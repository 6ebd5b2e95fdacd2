"""Text in, labels out: string ops, lookup tables and a classifier in one function."""

import json

import tensorflow as tf

lines = tf.constant(["the cat sat", "a dog ran far", "the dog sat", "a cat ran"])
labels = tf.constant([0, 1, 0, 1])
vocabulary = tf.lookup.StaticVocabularyTable(
    tf.lookup.KeyValueTensorInitializer(
        ["the", "a", "cat", "dog", "sat", "ran"], tf.range(6, dtype=tf.int64)
    ),
    num_oov_buckets=2,
)
counts = tf.lookup.experimental.DenseHashTable(
    tf.string, tf.int64, default_value=0, empty_key="", deleted_key="?"
)
table = tf.Variable(tf.random.stateless_normal([8, 5], (1, 0)))
out = tf.Variable(tf.random.stateless_normal([5, 2], (2, 0)))


@tf.function
def train_step(lines, labels):
    words = tf.strings.split(tf.strings.upper(lines))
    words = words.with_flat_values(tf.strings.lower(words.flat_values))
    ids = vocabulary.lookup(words)
    first = words[:, :1].values
    counts.insert(first, counts.lookup(first) + 1)
    with tf.GradientTape() as tape:
        vectors = tf.gather(table, ids.to_tensor(default_value=7))
        logits = tf.reduce_mean(tf.tanh(vectors), axis=1) @ out
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
    gradients = tape.gradient(loss, [table, out])
    table.assign_sub(0.5 * tf.convert_to_tensor(gradients[0]))
    out.assign_sub(0.5 * gradients[1])
    named = tf.strings.join([lines, tf.strings.as_string(tf.argmax(logits, axis=1))], " -> ")
    return loss, named


for _ in range(4):
    loss, named = train_step(lines, labels)
    print(json.dumps({"loss": float(loss), "named": [text.decode() for text in named.numpy()]}))
print(json.dumps({"the": int(counts.lookup(tf.constant("the"))), "size": int(counts.size())}))
