"""What the scripts with sessions train."""

import numpy as np
import tensorflow.compat.v1 as tf


def build():
    """The inputs, the loss, the training op, and a batch."""
    tf.disable_eager_execution()
    tf.enable_resource_variables()
    inputs = tf.placeholder(tf.float32, (256, 256), "inputs")
    values = inputs
    for layer in range(8):
        values = tf.tanh(values @ tf.get_variable(f"layer_{layer}", (256, 256)))
    loss = tf.reduce_mean(values**2)
    step = tf.train.get_or_create_global_step()
    train_op = tf.train.AdamOptimizer(0.001).minimize(loss, step, name="train_op")
    batch = np.random.default_rng(0).standard_normal((256, 256)).astype("float32")
    return loss, train_op, {inputs: batch}
