"""Two TensorFlow workers on this machine, one tf.function over both: python examples/cluster_tf2.py

Variables stay on the worker that the program creates them on; the optimizer plans the rest of the
step around them. Run it twice: the second start finds the plan of the first.
"""

import numpy as np
import tensorflow as tf

import hplacer_optimizer as hp

BATCH, ROWS, WIDTH = 512, 20_000, 64


def variables(device: str) -> list[tf.Variable]:
    """The table and the layers of a tower."""
    with tf.device(device):
        shapes = [(ROWS, WIDTH), (8 * WIDTH, 512), (512, 512), (512, 512)]
        return [
            tf.Variable(tf.random.stateless_normal(shape, (0, i), stddev=0.05))
            for i, shape in enumerate(shapes)
        ]


def tower(table: tf.Variable, layers: list[tf.Variable], ids: tf.Tensor) -> tf.Tensor:
    """float32[BATCH, 512] of length 1"""
    values = tf.reshape(tf.nn.embedding_lookup(table, ids), (BATCH, 8 * WIDTH))
    for weights in layers:
        values = tf.tanh(values @ weights)
    return tf.math.l2_normalize(values, 1)


with hp.local_cluster(workers=2) as cluster:
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(cluster.spec))
    hp.enable(devices=["/job:worker"])
    towers = [variables(device) for device in cluster.device_names]

    @tf.function
    def train_step(user_ids: tf.Tensor, item_ids: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            users, items = (
                tower(table, layers, ids)
                for (table, *layers), ids in zip(towers, (user_ids, item_ids), strict=True)
            )
            scores = tf.matmul(users, items, transpose_b=True) * 20.0
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(BATCH), scores)
            loss = tf.reduce_mean(losses)
        flat = [variable for one in towers for variable in one]
        for variable, gradient in zip(flat, tape.gradient(loss, flat), strict=True):
            variable.assign_sub(0.05 * tf.convert_to_tensor(gradient))
        return loss

    random = np.random.default_rng(0)
    batch = [tf.constant(random.integers(0, ROWS, (BATCH, 8))) for _ in range(2)]
    for step in range(1, 11):
        print(f"step {step}: loss {train_step(*batch):.6f}")
