"""tf-slim's Inception-V3, trained in a TF1 session with resource variables.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2016, from which the
auxiliary classifier, the label smoothing and RMSProp with its constants are.
"""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.workloads.setup import Setup, Training, train_in_session
from hplacer_optimizer.workloads.slim import image_batch, import_slim
from hplacer_optimizer.workloads.training_graph import (
    TrainingGraph,
    input_batch,
    new_graph,
    training_graph,
)

_MIN_PIXELS_WITH_AUXILIARY = 139  # the auxiliary classifier pools 5 x 5 pixels of its input
_AUXILIARY_WEIGHT = 0.4
_LABEL_SMOOTHING = 0.1
_RMSPROP = {"learning_rate": 0.045, "decay": 0.9, "epsilon": 1.0}

# Every step of the small run sees the same small batch. Batch normalization over so few pixels
# multiplies a rounding error from layer to layer, and with the usual epsilon and learning rate two
# runs that differ in the order of a sum part after three steps. With these they agree to 1e-5 for
# 20 steps.
_SMALL_EPSILON = 1.0
_SMALL_LEARNING_RATE = 0.0005


def train(setup: Setup) -> Training:
    """Trains a small version on one batch of noise."""
    return train_in_session(setup, *_small())


def build(
    *,
    batch_size: int = 1,
    pixels: int = 299,
    classes: int = 1001,
    batch_norm_epsilon: float = 0.001,
    seed: int = 0,
) -> TrainingGraph:
    """The training graph, updated with RMSProp; images of less than 139 pixels have no auxiliary.

    The images are noise. Class 0 is the background, as in the published network.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    images, labels = image_batch(batch_size, pixels, classes, seed)
    with new_graph(seed):
        logits, auxiliary = _network(images, classes, 0.8, batch_norm_epsilon)
        wanted = tf.one_hot(input_batch(labels, "labels"), classes)
        for values, weight in ((logits, 1.0), (auxiliary, _AUXILIARY_WEIGHT)):
            if values is not None:
                v1.losses.softmax_cross_entropy(
                    wanted, values, weights=weight, label_smoothing=_LABEL_SMOOTHING
                )
        return training_graph(v1.losses.get_total_loss(), v1.train.RMSPropOptimizer(**_RMSPROP))


def _small() -> TrainingGraph:
    import tensorflow as tf

    v1 = tf.compat.v1
    images, labels = image_batch(batch_size=2, pixels=107, classes=10, seed=0)
    with new_graph(seed=0):
        logits, _ = _network(images, 10, 1.0, _SMALL_EPSILON)
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        return training_graph(loss, v1.train.MomentumOptimizer(_SMALL_LEARNING_RATE, momentum=0.9))


def _network(images: Any, classes: int, keep: float, epsilon: float) -> tuple[Any, Any]:
    """Logits and, for large images, those of the auxiliary classifier, else None."""
    slim, inception = import_slim("inception_v3")
    with slim.arg_scope(inception.inception_v3_arg_scope(batch_norm_epsilon=epsilon)):
        logits, end_points = inception.inception_v3(
            input_batch(images, "images"),
            num_classes=classes,
            create_aux_logits=images.shape[1] >= _MIN_PIXELS_WITH_AUXILIARY,
            dropout_keep_prob=keep,
        )
    return logits, end_points.get("AuxLogits")
