"""A language model of LSTM layers, unrolled over all steps of a text window.

Jozefowicz et al., "Exploring the Limits of Language Modeling", 2016, from which Adagrad and its
learning rate are. Every step has its own embedding lookup and softmax.
"""

from __future__ import annotations

from hplacer_optimizer.workloads.lstm import lstm_layer
from hplacer_optimizer.workloads.tokens import embed_steps, softmax_loss
from hplacer_optimizer.workloads.training_graph import TrainingGraph, new_graph, training_graph

_LEARNING_RATE = 0.2


def build(
    *,
    layers: int = 2,
    batch_size: int = 64,
    hidden: int = 2048,
    steps: int = 40,
    vocabulary: int = 10_000,
    seed: int = 0,
) -> TrainingGraph:
    """The training graph, updated with Adagrad; the text is random tokens.

    The gradients of a weight are summed in pairs as they appear: 40 of them at once, 134 MB each
    for a layer, would not fit the 12 GB of the papers' GPUs, which held this model.
    """
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    text = np.random.default_rng(seed).integers(0, vocabulary, (batch_size, steps + 1), np.int32)
    with new_graph(seed):
        outputs = embed_steps("embedding", text[:, :-1], vocabulary, hidden)
        for layer in range(layers):
            outputs, _ = lstm_layer(f"rnnlm/layer_{layer}", outputs, hidden)
        loss = softmax_loss(outputs, text[:, 1:], vocabulary)
        return training_graph(
            loss,
            v1.train.AdagradOptimizer(_LEARNING_RATE),
            aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE,
        )
