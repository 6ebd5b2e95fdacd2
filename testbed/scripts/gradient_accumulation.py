"""Sums the gradients of four small batches, with dropout, before tf.cond applies them clipped."""

import json

import tensorflow as tf

EVERY = 4
x = tf.random.stateless_normal([48, 8], (1, 0))
y = tf.sin(tf.reduce_sum(x, axis=1, keepdims=True))
shapes = ([8, 24], [24, 24], [24, 1])
weights = [
    tf.Variable(tf.random.stateless_normal(shape, (seed, 1)) * 0.3)
    for seed, shape in enumerate(shapes)
]
sums = [tf.Variable(tf.zeros(shape)) for shape in shapes]
averages = [tf.Variable(weight) for weight in weights]
applied = tf.Variable(0)


def predict(x, weights, seed=None):
    for number, weight in enumerate(weights[:-1]):
        x = tf.nn.leaky_relu(x @ weight)
        if seed is not None:
            x = tf.nn.experimental.stateless_dropout(x, 0.2, seed=tf.stack([seed, number]))
    return x @ weights[-1]


@tf.function
def train_step(step, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((predict(x, weights, seed=step) - y) ** 2) / EVERY
    for total, gradient in zip(sums, tape.gradient(loss, weights), strict=True):
        total.assign_add(gradient)

    def apply():
        gradients, norm = tf.clip_by_global_norm([total.read_value() for total in sums], 1.0)
        for weight, total, average, gradient in zip(
            weights, sums, averages, gradients, strict=True
        ):
            weight.assign_sub(0.3 * gradient)
            average.assign_add(0.5 * (weight - average))
            total.assign(tf.zeros_like(total))
        applied.assign_add(1)
        return norm

    norm = tf.cond((step + 1) % EVERY == 0, apply, lambda: -1.0)
    return loss, norm


for step in range(12):
    rows = slice(step % 6 * 8, step % 6 * 8 + 8)
    loss, norm = train_step(tf.constant(step), x[rows], y[rows])
    print(json.dumps({"loss": float(loss), "norm": float(norm)}))
errors = [float(tf.reduce_mean((predict(x, kept) - y) ** 2)) for kept in (weights, averages)]
print(json.dumps({"applied": int(applied), "errors": errors}))
