"""A residual network of plain ops: convolutions, fused batch norm, pooling, and Adam by hand."""

import json

import tensorflow as tf

CLASSES = 4
images = tf.random.stateless_uniform([24, 12, 12, 3], (1, 0))
labels = tf.random.stateless_uniform([24], (2, 0), 0, CLASSES, tf.int32)
images += 0.3 * tf.one_hot(labels, CLASSES)[:, None, None, :3]


def weight(shape, seed):
    return tf.Variable(tf.random.stateless_normal(shape, (seed, 0)) * 0.2)


filters = [weight(shape, 3) for shape in ([3, 3, 3, 8], [3, 3, 8, 8], [3, 3, 8, 12], [1, 1, 8, 12])]
depthwise, out, bias = weight([3, 3, 12, 1], 4), weight([12, CLASSES], 5), weight([CLASSES], 6)
scales, shifts = ([tf.Variable(tf.fill([8], value)) for _ in range(2)] for value in (1.0, 0.0))
means, variances = ([tf.Variable(tf.fill([8], value)) for _ in range(2)] for value in (0.0, 1.0))
weights = [*filters, depthwise, out, bias, *scales, *shifts]
firsts, seconds = ([tf.Variable(tf.zeros_like(weight)) for weight in weights] for _ in range(2))
steps = tf.Variable(0.0)


def batch_norm(values, number, training):
    values, mean, variance = tf.compat.v1.nn.fused_batch_norm(
        values,
        scales[number],
        shifts[number],
        None if training else means[number],
        None if training else variances[number],
        is_training=training,
    )
    if training:
        means[number].assign(0.8 * means[number] + 0.2 * mean)
        variances[number].assign(0.8 * variances[number] + 0.2 * variance)
    return tf.nn.relu(values)


def classify(images, training):
    hidden = batch_norm(tf.nn.conv2d(images, filters[0], 1, "SAME"), 0, training)
    hidden += batch_norm(tf.nn.conv2d(hidden, filters[1], 1, "SAME"), 1, training)
    hidden = tf.nn.max_pool2d(hidden, 2, 2, "VALID")
    hidden = tf.nn.conv2d(hidden, filters[2], 2, "SAME") + tf.nn.conv2d(
        hidden, filters[3], 2, "SAME"
    )
    hidden = tf.nn.depthwise_conv2d(tf.nn.relu6(hidden), depthwise, [1, 1, 1, 1], "SAME")
    pooled = tf.reduce_mean(tf.nn.avg_pool2d(hidden, 2, 1, "SAME"), axis=[1, 2])
    return tf.nn.bias_add(pooled @ out, bias)


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        logits = classify(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses) + 0.001 * sum(map(tf.nn.l2_loss, filters))
    steps.assign_add(1.0)
    rate = 0.02 * tf.sqrt(1 - 0.99**steps) / (1 - 0.9**steps)
    for weight, first, second, gradient in zip(
        weights, firsts, seconds, tape.gradient(loss, weights), strict=True
    ):
        first.assign_add(0.1 * (gradient - first))
        second.assign_add(0.01 * (gradient**2 - second))
        weight.assign_sub(rate * first / (tf.sqrt(second) + 1e-4))
    return loss


@tf.function
def accuracy(images, labels):
    found = tf.argmax(classify(images, training=False), axis=1, output_type=tf.int32)
    return tf.reduce_mean(tf.cast(found == labels, tf.float32))


for step in range(6):
    rows = slice(step % 3 * 8, step % 3 * 8 + 8)
    print(json.dumps({"loss": float(train_step(images[rows], labels[rows]))}))
print(json.dumps({"accuracy": float(accuracy(images, labels)), "mean": means[1].numpy().tolist()}))
