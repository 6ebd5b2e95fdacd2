"""Second derivatives: a gradient penalty, a Hessian-vector product and a jacobian."""

import json

import tensorflow as tf

first = tf.Variable(tf.random.stateless_normal([4, 8], (1, 0)) * 0.5)
second = tf.Variable(tf.random.stateless_normal([8, 1], (2, 0)) * 0.5)
x = tf.random.stateless_normal([6, 4], (3, 0))


def critic(x):
    return tf.tanh(x @ first) @ second


@tf.function
def train_step():
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            score = tf.reduce_mean(critic(x))
        slope = tf.norm(inner.gradient(score, x), axis=1)
        loss = score + 10.0 * tf.reduce_mean((slope - 1.0) ** 2)
    gradients = outer.gradient(loss, [first, second])
    first.assign_sub(0.02 * gradients[0])
    second.assign_sub(0.02 * gradients[1])
    return loss


@tf.function
def curvature(direction):
    with tf.autodiff.ForwardAccumulator(first, direction) as forward:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(critic(x) ** 2)
        gradient = tape.gradient(loss, first)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = critic(x)
    return tf.norm(forward.jvp(gradient)), tf.reduce_sum(tape.jacobian(y, x))


print(json.dumps({"losses": [float(train_step()) for _ in range(4)]}))
norm, jacobian = curvature(tf.ones([4, 8]))
print(json.dumps({"norm": float(norm), "jacobian": float(jacobian)}))
