"""A function returns loss and gradients, which are applied eagerly, with clipping."""

import json

import tensorflow as tf

weights = [
    tf.Variable(tf.random.stateless_normal([6, 12], (1, 0)) * 0.4),
    tf.Variable(tf.zeros([12])),
    tf.Variable(tf.random.stateless_normal([12, 3], (2, 0)) * 0.4),
]
x = tf.random.stateless_normal([30, 6], (3, 0))
labels = tf.argmax(x[:, :3], axis=1)


@tf.function
def loss_and_gradients():
    with tf.GradientTape() as tape:
        logits = tf.nn.elu(x @ weights[0] + weights[1]) @ weights[2]
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
    gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, weights), 0.5)
    return loss, norm, gradients


for _ in range(5):
    loss, norm, gradients = loss_and_gradients()
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.assign_sub(0.5 * gradient)
    print(json.dumps({"loss": float(loss), "norm": float(norm)}))
