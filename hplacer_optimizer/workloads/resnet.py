"""tf-slim's residual networks of bottleneck blocks, version 1.

He et al., "Deep Residual Learning for Image Recognition", 2016, from which the momentum and the
learning rate are: 0.1 for 256 images, here in proportion to the batch.
"""

from __future__ import annotations

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.workloads.slim import image_batch, import_slim
from hplacer_optimizer.workloads.training_graph import (
    TrainingGraph,
    input_batch,
    new_graph,
    training_graph,
)

_DEPTHS = (50, 101, 152, 200)
_LEARNING_RATE_PER_IMAGE = 0.1 / 256


def build(
    *,
    depth: int = 152,
    batch_size: int = 32,
    pixels: int = 224,
    classes: int = 1000,
    seed: int = 0,
) -> TrainingGraph:
    """The training graph, updated with momentum; `depth` is 50, 101, 152 or 200.

    The images are noise. Raises OptionError for another depth.
    """
    import tensorflow as tf

    if depth not in _DEPTHS:
        raise OptionError(f"depth: must be one of {', '.join(map(str, _DEPTHS))}, got {depth}")
    v1 = tf.compat.v1
    slim, resnet = import_slim("resnet_v1")
    network = getattr(resnet, f"resnet_v1_{depth}")
    images, labels = image_batch(batch_size, pixels, classes, seed)
    with new_graph(seed):
        with slim.arg_scope(resnet.resnet_arg_scope()):
            logits, _ = network(input_batch(images, "images"), num_classes=classes)
        v1.losses.sparse_softmax_cross_entropy(
            input_batch(labels, "labels"), tf.squeeze(logits, [1, 2])
        )
        learning_rate = _LEARNING_RATE_PER_IMAGE * batch_size
        optimizer = v1.train.MomentumOptimizer(learning_rate, momentum=0.9)
        return training_graph(v1.losses.get_total_loss(), optimizer)
