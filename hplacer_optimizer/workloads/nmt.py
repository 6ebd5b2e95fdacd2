"""Neural machine translation: an encoder-decoder LSTM with attention, unrolled over all steps.

Sutskever et al., "Sequence to Sequence Learning with Neural Networks", 2014, with the attention of
Luong et al., "Effective Approaches to Attention-based Neural Machine Translation", 2015 (general
score, no input feeding). Decoder layer i starts from the last state of encoder layer i. Every step
has its own embedding lookup, attention and softmax, so that a step of a layer can be placed apart.
"""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.workloads.lstm import LstmState, lstm_layer
from hplacer_optimizer.workloads.tokens import embed_steps, softmax_loss
from hplacer_optimizer.workloads.training_graph import TrainingGraph, new_graph, training_graph

_LEARNING_RATE = 0.001


def build(
    *,
    layers: int = 2,
    batch_size: int = 64,
    hidden: int = 1024,
    steps: int = 40,
    vocabulary: int = 30_000,
    seed: int = 0,
) -> TrainingGraph:
    """The training graph, updated with Adam; `layers` and `steps` hold for each of the two sides.

    All sentences of the batch are random tokens and have `steps` of them.
    """
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(seed)
    source, target = random.integers(0, vocabulary, (2, batch_size, steps), np.int32)
    with new_graph(seed):
        encoded = embed_steps("embedding/source", source, vocabulary, hidden)
        states = []
        for layer in range(layers):
            encoded, state = lstm_layer(f"encoder/layer_{layer}", encoded, hidden)
            states.append(state)
        # Teacher forcing: the decoder sees the target behind by one, token 0 begins a sentence.
        shifted = np.pad(target[:, :-1], ((0, 0), (1, 0)))
        decoded = embed_steps("embedding/target", shifted, vocabulary, hidden)
        decoded = _decode(decoded, states, hidden)
        attended = _attend(encoded, decoded, hidden)
        loss = softmax_loss(attended, target, vocabulary)
        return training_graph(loss, tf.compat.v1.train.AdamOptimizer(_LEARNING_RATE))


def _decode(inputs: list[Any], states: list[LstmState], hidden: int) -> list[Any]:
    for layer, state in enumerate(states):
        inputs, _ = lstm_layer(f"decoder/layer_{layer}", inputs, hidden, state)
    return inputs


def _attend(encoded: list[Any], decoded: list[Any], hidden: int) -> list[Any]:
    """For each decoder step a tanh layer of its output and of a weighted sum of the encoder's."""
    import tensorflow as tf

    v1 = tf.compat.v1
    initializer = v1.glorot_uniform_initializer()
    score = v1.get_variable("attention/score", [hidden, hidden], initializer=initializer)
    combine = v1.get_variable("attention/combine", [2 * hidden, hidden], initializer=initializer)
    with tf.name_scope("attention/memory/"):
        memory = tf.stack(encoded, axis=1)  # [batch, source steps, hidden]
        keys = tf.reshape(tf.matmul(tf.reshape(memory, [-1, hidden]), score), memory.shape)
    attended = []
    for step, query in enumerate(decoded):
        with tf.name_scope(f"attention/step_{step}/"):
            scores = tf.squeeze(tf.matmul(keys, tf.expand_dims(query, 2)), 2)
            weights = tf.expand_dims(tf.nn.softmax(scores), 1)
            context = tf.squeeze(tf.matmul(weights, memory), 1)
            attended.append(tf.tanh(tf.matmul(tf.concat([context, query], 1), combine)))
    return attended
