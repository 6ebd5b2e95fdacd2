"""A recommender of two towers: users and items, each looked up in large tables of embeddings.

Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations", 2019
(without the correction): a user's own item is told from the other items of the batch, by the angle
between the towers' outputs. The tables are pinned to the CPU, whose memory they need; Adagrad
updates only the rows that were looked up.
"""

from __future__ import annotations

import contextlib
from typing import Any

from hplacer_optimizer.workloads import blocks
from hplacer_optimizer.workloads.training_graph import (
    TrainingGraph,
    input_batch,
    new_graph,
    training_graph,
)

_TOWERS = ("user", "item")
_TEMPERATURE = 0.05
_LEARNING_RATE = 0.05


def build(
    *,
    batch_size: int = 4096,
    features: int = 8,
    rows: int = 5_000_000,
    width: int = 64,
    hidden: int = 1024,
    layers: int = 3,
    pin_tables: bool = True,
    seed: int = 0,
) -> TrainingGraph:
    """The training graph; each tower has `features` tables of `rows` x `width` and `layers` layers.

    Without `pin_tables` the tables may go to any device.
    """
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    random = np.random.default_rng(seed)
    ids = random.integers(0, rows, (len(_TOWERS), features, batch_size), np.int32)
    with new_graph(seed):
        pinned = tf.device("/device:CPU:0") if pin_tables else contextlib.nullcontext()
        with pinned:
            embedded = [
                _look_up(tower, of_tower, rows, width)
                for tower, of_tower in zip(_TOWERS, ids, strict=True)
            ]
        users, items = (
            _tower(tower, values, hidden, layers)
            for tower, values in zip(_TOWERS, embedded, strict=True)
        )
        with tf.name_scope("two_tower/loss/"):
            users, items = tf.math.l2_normalize(users, 1), tf.math.l2_normalize(items, 1)
            scores = tf.matmul(users, items, transpose_b=True) / _TEMPERATURE
            own_item = tf.range(batch_size)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=own_item, logits=scores)
            )
        return training_graph(loss, v1.train.AdagradOptimizer(_LEARNING_RATE))


def _look_up(tower: str, ids: Any, rows: int, width: int) -> list[Any]:
    """A float32[batch, width] per feature."""
    import tensorflow as tf

    v1 = tf.compat.v1
    embedded = []
    for feature, of_feature in enumerate(ids):
        scope = f"two_tower/{tower}/tables/feature_{feature}"
        table = v1.get_variable(
            f"{scope}/table", [rows, width], initializer=v1.random_uniform_initializer(-0.05, 0.05)
        )
        with tf.name_scope(f"{scope}/"):
            embedded.append(tf.nn.embedding_lookup(table, input_batch(of_feature, "ids")))
    return embedded


def _tower(tower: str, embedded: list[Any], hidden: int, layers: int) -> Any:
    """Dense layers over all features, the last one without activation."""
    import tensorflow as tf

    with tf.name_scope(f"two_tower/{tower}/features/"):
        values = tf.concat(embedded, 1)
    for layer in range(layers):
        activation = tf.nn.relu if layer < layers - 1 else None
        values = blocks.dense(f"two_tower/{tower}/dense_{layer}", values, hidden, activation)
    return values
