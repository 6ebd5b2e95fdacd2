"""BERT, trained to fill in masked tokens.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019: the base model without
the next-sentence task, with its share of masked tokens; the learning rate is a constant here.
"""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.workloads import blocks
from hplacer_optimizer.workloads.training_graph import (
    TrainingGraph,
    input_batch,
    new_graph,
    training_graph,
)

_DROPOUT = 0.1
_MASKED_SHARE = 0.15
_DEVIATION = 0.02
_LEARNING_RATE = 1e-4


def build(
    *,
    layers: int = 12,
    batch_size: int = 32,
    length: int = 128,
    width: int = 768,
    heads: int = 12,
    units: int = 3072,
    vocabulary: int = 30_522,
    seed: int = 0,
) -> TrainingGraph:
    """The training graph, updated with Adam; the text is random tokens.

    `units` is the inner width of the feed-forward layers. Raises OptionError if `width` is no
    multiple of `heads`.
    """
    import numpy as np
    import tensorflow as tf

    if width % heads:
        raise OptionError(f"bert_base: width: must be a multiple of heads, {heads}, got {width}")
    v1 = tf.compat.v1
    random = np.random.default_rng(seed)
    text = random.integers(0, vocabulary, (batch_size, length), np.int32)
    masked_per_row = max(1, round(_MASKED_SHARE * length))
    masked = random.permuted(np.tile(np.arange(length, dtype=np.int32), (batch_size, 1)), axis=1)
    masked = np.sort(masked[:, :masked_per_row], axis=1)
    labels = np.take_along_axis(text, masked, axis=1)
    np.put_along_axis(text, masked, 0, axis=1)  # token 0 is the mask
    with new_graph(seed):
        table = _variable("bert/embedding/table", [vocabulary, width])
        states = _embed(text, table)
        for layer in range(layers):
            states = blocks.encoder_layer(
                f"bert/encoder/layer_{layer}",
                states,
                heads=heads,
                units=units,
                dropout=_DROPOUT,
                activation=tf.nn.gelu,
            )
        loss = _masked_loss(states, masked, labels, table)
        return training_graph(loss, v1.train.AdamOptimizer(_LEARNING_RATE))


def _variable(name: str, shape: list[int]) -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    return v1.get_variable(
        name, shape, initializer=v1.truncated_normal_initializer(0.0, _DEVIATION)
    )


def _embed(text: Any, table: Any) -> Any:
    """int32[batch, length] -> float32[batch, length, width]."""
    import tensorflow as tf

    scope = "bert/embedding"
    positions = _variable(f"{scope}/positions", [text.shape[1], table.shape[1]])
    with tf.name_scope(f"{scope}/"):
        embedded = tf.nn.embedding_lookup(table, input_batch(text, "tokens")) + positions
    return tf.nn.dropout(blocks.layer_norm(f"{scope}/norm", embedded), _DROPOUT)


def _masked_loss(states: Any, masked: Any, labels: Any, table: Any) -> Any:
    """The mean cross-entropy per masked token, with the embeddings as softmax weights."""
    import tensorflow as tf

    v1 = tf.compat.v1
    vocabulary, width = table.shape
    scope = "bert/masked"
    with tf.name_scope(f"{scope}/gather/"):
        masked_states = tf.gather(states, input_batch(masked, "positions"), batch_dims=1)
        masked_states = tf.reshape(masked_states, [-1, width])
    changed = blocks.dense(f"{scope}/transform", masked_states, width, tf.nn.gelu)
    changed = blocks.layer_norm(f"{scope}/norm", changed)
    bias = v1.get_variable("bert/softmax/bias", [vocabulary], initializer=v1.zeros_initializer())
    with tf.name_scope("bert/softmax/"):
        logits = tf.nn.bias_add(tf.matmul(changed, table, transpose_b=True), bias)
        wanted = tf.reshape(input_batch(labels, "labels"), [-1])
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=logits)
        )
