"""A slim network: arg scopes, regularisers, batch norm, its training op."""

import json
import sys

import numpy as np
import tensorflow.compat.v1 as tf
import tf_keras.src.legacy_tf_layers

sys.modules.setdefault("tf_keras.legacy_tf_layers", tf_keras.src.legacy_tf_layers)
import tf_slim as slim  # noqa: E402  (looks for the module above)

tf.disable_eager_execution()
tf.set_random_seed(1)
numbers = np.random.RandomState(0)
images = tf.constant(numbers.rand(8, 10, 10, 3), tf.float32)
labels = tf.constant(numbers.randint(0, 4, 8))
with slim.arg_scope(
    [slim.conv2d, slim.fully_connected],
    normalizer_fn=slim.batch_norm,
    normalizer_params={"fused": False},
    weights_initializer=tf.truncated_normal_initializer(stddev=0.2, seed=2),
    weights_regularizer=slim.l2_regularizer(0.001),
):
    net = slim.conv2d(images, 6, [3, 3], scope="first")
    net = slim.max_pool2d(net, [2, 2])
    net = slim.repeat(net, 2, slim.conv2d, 8, [3, 3], scope="more")
    logits = slim.fully_connected(slim.flatten(net), 4, activation_fn=None, scope="logits")
tf.losses.sparse_softmax_cross_entropy(labels, logits)
total_loss = tf.losses.get_total_loss()
train_op = slim.learning.create_train_op(total_loss, tf.train.AdagradOptimizer(0.05))
with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
    session.run(tf.global_variables_initializer())
    for _ in range(4):
        print(json.dumps({"loss": float(session.run(train_op))}))
