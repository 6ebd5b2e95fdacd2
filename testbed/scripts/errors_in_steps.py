"""Steps that fail in several ways, each caught; training goes on after each of them."""

import json

import tensorflow as tf

weights = tf.Variable(tf.random.stateless_normal([6, 6], (1, 0)) * 0.4)
x = tf.random.stateless_normal([10, 6], (2, 0))


def complain(loss):
    raise ValueError(f"the loss is {'positive' if loss > 0 else 'not positive'}")


@tf.function
def train_step(fault):
    with tf.GradientTape() as tape:
        hidden = tf.tanh(x @ weights)
        loss = tf.reduce_mean((hidden @ tf.transpose(weights) - x) ** 2)
    if fault == "python":
        loss = tf.py_function(complain, [loss], tf.float32)
    elif fault == "nan":
        loss = tf.debugging.check_numerics(loss / tf.zeros([]), "the loss")
    elif fault == "shape":
        loss = tf.reduce_sum(tf.reshape(hidden, tf.stack([6, tf.cast(loss, tf.int32) + 11])))
    elif fault == "index":
        loss = tf.gather(loss[None], tf.cast(loss, tf.int32) + 5)
    weights.assign_sub(0.2 * tape.gradient(loss, weights) if fault == "" else 0.0 * weights)
    return loss


for fault in ("", "python", "", "nan", "shape", "", "index", ""):
    try:
        print(json.dumps({"loss": float(train_step(fault))}))
    except tf.errors.OpError as error:
        print(json.dumps({"fault": fault, "error": type(error).__name__}))
