"""tf-slim's Inception-V3, trained in a TF1 session with resource variables.

Every step sees the same small batch. Batch normalization over so few pixels multiplies a rounding
error from layer to layer, and with the usual epsilon and learning rate two runs that differ in the
order of a sum part after three steps. With the ones below they agree to 1e-5 for 20 steps.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from hplacer_optimizer.workloads.setup import Setup, Training, train_in_session

_CLASSES = 10
_MIN_PIXELS_WITH_AUXILIARY = 139
_LEARNING_RATE = 0.0005
_BATCH_NORM_EPSILON = 1.0


class TrainingGraph(NamedTuple):
    """A graph and the ops to run in it."""

    graph: Any
    init: Any
    loss: Any
    train_op: Any


def train(setup: Setup) -> Training:
    """Trains on one batch of noise."""
    return train_in_session(setup, *build())


def build(batch: int = 2, pixels: int = 107, seed: int = 0) -> TrainingGraph:
    """The training graph; its images and labels are constants drawn with the seed."""
    import numpy as np
    import tensorflow as tf

    inception = _import_inception()
    tf.get_logger().setLevel("ERROR")  # each old-style initializer warns once
    v1 = tf.compat.v1
    random = np.random.default_rng(seed)
    graph = tf.Graph()
    with graph.as_default():
        v1.enable_resource_variables()
        v1.set_random_seed(seed)
        images = random.standard_normal((batch, pixels, pixels, 3), np.float32)
        labels = random.integers(0, _CLASSES, batch)
        scope = inception.inception_v3_arg_scope(batch_norm_epsilon=_BATCH_NORM_EPSILON)
        with _slim().arg_scope(scope):
            logits, _ = inception.inception_v3(
                v1.placeholder_with_default(images, images.shape, "images"),
                num_classes=_CLASSES,
                create_aux_logits=pixels >= _MIN_PIXELS_WITH_AUXILIARY,
                dropout_keep_prob=1.0,
            )
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            optimizer = v1.train.MomentumOptimizer(_LEARNING_RATE, momentum=0.9)
            train_op = optimizer.minimize(loss, name="train_op")
        return TrainingGraph(graph, v1.global_variables_initializer(), loss, train_op)


def _import_inception() -> Any:
    _slim()
    from tf_slim.nets import inception_v3

    return inception_v3


def _slim() -> Any:
    """tf_slim 1.1.0 asks for layers that tf_keras has moved: give them their old name."""
    import tf_keras.src.legacy_tf_layers as layers

    sys.modules.setdefault("tf_keras.legacy_tf_layers", layers)
    import tf_slim

    return tf_slim
