"""From tokens to vectors and back to a loss, with ops of their own for every time step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hplacer_optimizer.workloads.training_graph import input_batch


def embed_steps(scope: str, tokens: Any, vocabulary: int, width: int) -> list[Any]:
    """A table of embeddings: int32[batch, steps] -> float32[batch, width] for every step."""
    import tensorflow as tf

    v1 = tf.compat.v1
    initializer = v1.random_uniform_initializer(-0.1, 0.1)
    table = v1.get_variable(f"{scope}/table", [vocabulary, width], initializer=initializer)
    with tf.name_scope(f"{scope}/"):
        per_step = tf.unstack(input_batch(tokens, "tokens"), axis=1)
    embedded = []
    for step, ids in enumerate(per_step):
        with tf.name_scope(f"{scope}/step_{step}/"):
            embedded.append(tf.nn.embedding_lookup(table, ids))
    return embedded


def softmax_loss(outputs: Sequence[Any], labels: Any, vocabulary: int) -> Any:
    """The mean cross-entropy per token of a softmax layer, named `softmax`.

    `outputs` are float32[batch, width] per step, `labels` int32[batch, steps].
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    shape = [outputs[0].shape[1], vocabulary]
    kernel = v1.get_variable("softmax/kernel", shape, initializer=v1.glorot_uniform_initializer())
    bias = v1.get_variable("softmax/bias", [vocabulary], initializer=v1.zeros_initializer())
    with tf.name_scope("softmax/"):
        per_step = tf.unstack(input_batch(labels, "labels"), axis=1)
    losses = []
    for step, (output, label) in enumerate(zip(outputs, per_step, strict=True)):
        with tf.name_scope(f"softmax/step_{step}/"):
            logits = tf.nn.bias_add(tf.matmul(output, kernel), bias)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
            losses.append(tf.reduce_mean(loss))
    with tf.name_scope("softmax/loss/"):
        return tf.add_n(losses) / len(losses)
