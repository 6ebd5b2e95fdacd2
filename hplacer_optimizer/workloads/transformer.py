"""The transformer for translation: encoder, decoder, one table of embeddings for all three uses.

Vaswani et al., "Attention Is All You Need", 2017: the base model, its dropout, label smoothing and
Adam constants; the learning rate is a constant here.
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
_LABEL_SMOOTHING = 0.1
_ADAM = {"learning_rate": 0.0005, "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9}


def build(
    *,
    layers: int = 6,
    batch_size: int = 64,
    length: int = 64,
    width: int = 512,
    heads: int = 8,
    units: int = 2048,
    vocabulary: int = 32_000,
    seed: int = 0,
) -> TrainingGraph:
    """The training graph, updated with Adam; sentences are random tokens, all of `length`.

    `layers` holds for each of the two sides, `units` is the inner width of the feed-forward layers.
    Raises OptionError if `width` is no multiple of `heads`.
    """
    import numpy as np
    import tensorflow as tf

    if width % heads:
        raise OptionError(f"transformer: width: must be a multiple of heads, {heads}, got {width}")
    v1 = tf.compat.v1
    random = np.random.default_rng(seed)
    source, target = random.integers(0, vocabulary, (2, batch_size, length), np.int32)
    shifted = np.pad(target[:, :-1], ((0, 0), (1, 0)))
    with new_graph(seed):
        table = v1.get_variable(
            "transformer/embedding/table",
            [vocabulary, width],
            initializer=v1.random_normal_initializer(stddev=width**-0.5),
        )
        sizes: dict[str, Any] = {"heads": heads, "dropout": _DROPOUT}
        memory = _embed("source", source, table)
        for layer in range(layers):
            scope = f"transformer/encoder/layer_{layer}"
            memory = blocks.encoder_layer(
                scope, memory, units=units, activation=tf.nn.relu, **sizes
            )
        outputs = _embed("target", shifted, table)
        for layer in range(layers):
            scope = f"transformer/decoder/layer_{layer}"
            outputs = _decoder_layer(scope, outputs, memory, units, sizes)
        loss = _loss(outputs, target, table)
        return training_graph(loss, v1.train.AdamOptimizer(**_ADAM))


def _embed(side: str, tokens: Any, table: Any) -> Any:
    """int32[batch, length] -> float32[batch, length, width], with the sinusoidal positions."""
    import numpy as np
    import tensorflow as tf

    width = table.shape[1]
    rates = 10_000.0 ** -(np.arange(width) // 2 * 2 / width)
    angles = np.arange(tokens.shape[1])[:, None] * rates
    positions = np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles)).astype(np.float32)
    with tf.name_scope(f"transformer/embedding/{side}/"):
        embedded = tf.nn.embedding_lookup(table, input_batch(tokens, "tokens"))
        return tf.nn.dropout(embedded * width**0.5 + positions, _DROPOUT)


def _decoder_layer(scope: str, inputs: Any, memory: Any, units: int, sizes: dict[str, Any]) -> Any:
    import tensorflow as tf

    attended = blocks.attention(f"{scope}/self", inputs, inputs, causal=True, **sizes)
    inputs = blocks.residual(f"{scope}/self", inputs, attended, _DROPOUT)
    attended = blocks.attention(f"{scope}/cross", inputs, memory, **sizes)
    inputs = blocks.residual(f"{scope}/cross", inputs, attended, _DROPOUT)
    changed = blocks.feed_forward(f"{scope}/feed_forward", inputs, units, tf.nn.relu)
    return blocks.residual(f"{scope}/feed_forward", inputs, changed, _DROPOUT)


def _loss(outputs: Any, target: Any, table: Any) -> Any:
    """The mean cross-entropy per token, with the embeddings as softmax weights."""
    import tensorflow as tf

    vocabulary, width = table.shape
    with tf.name_scope("transformer/softmax/"):
        logits = tf.matmul(tf.reshape(outputs, [-1, width]), table, transpose_b=True)
        wanted = tf.one_hot(
            tf.reshape(input_batch(target, "labels"), [-1]),
            vocabulary,
            on_value=1 - _LABEL_SMOOTHING,
            off_value=_LABEL_SMOOTHING / (vocabulary - 1),
        )
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(wanted, logits))
