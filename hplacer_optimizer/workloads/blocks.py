"""Layers of transformers: dense, layer normalization, multi-head attention, feed-forward.

Vaswani et al., "Attention Is All You Need", 2017. Tensors are float32[batch, length, width] unless
stated otherwise. Normalization follows the residual sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_NORM_EPSILON = 1e-6
_MASKED = -1e9


def dense(
    scope: str, inputs: Any, units: int, activation: Callable[[Any], Any] | None = None
) -> Any:
    """A dense layer over the last dimension."""
    import tensorflow as tf

    v1 = tf.compat.v1
    width = inputs.shape[-1]
    kernel = v1.get_variable(
        f"{scope}/kernel", [width, units], initializer=v1.glorot_uniform_initializer()
    )
    bias = v1.get_variable(f"{scope}/bias", [units], initializer=v1.zeros_initializer())
    with tf.name_scope(f"{scope}/"):
        rows = tf.nn.bias_add(tf.matmul(tf.reshape(inputs, [-1, width]), kernel), bias)
        rows = activation(rows) if activation else rows
        return tf.reshape(rows, [*inputs.shape[:-1], units])


def layer_norm(scope: str, inputs: Any) -> Any:
    """Normalizes the last dimension to a learned mean and deviation."""
    import tensorflow as tf

    v1 = tf.compat.v1
    width = inputs.shape[-1]
    gamma = v1.get_variable(f"{scope}/gamma", [width], initializer=v1.ones_initializer())
    beta = v1.get_variable(f"{scope}/beta", [width], initializer=v1.zeros_initializer())
    with tf.name_scope(f"{scope}/"):
        mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
        return (inputs - mean) * tf.math.rsqrt(variance + _NORM_EPSILON) * gamma + beta


def residual(scope: str, inputs: Any, change: Any, dropout: float) -> Any:
    """The normalized sum of the inputs and of the change after dropout."""
    import tensorflow as tf

    with tf.name_scope(f"{scope}/residual/"):
        total = inputs + _drop(change, dropout)
    return layer_norm(f"{scope}/norm", total)


def attention(
    scope: str, queries: Any, memory: Any, *, heads: int, dropout: float, causal: bool = False
) -> Any:
    """Multi-head attention; `causal`: a position sees itself and what precedes it."""
    import tensorflow as tf

    batch, length, width = queries.shape
    size = width // heads

    def split(name: str, values: Any) -> Any:
        projected = dense(f"{scope}/{name}", values, width)
        with tf.name_scope(f"{scope}/{name}/"):
            by_head = tf.reshape(projected, [batch, values.shape[1], heads, size])
            return tf.transpose(by_head, [0, 2, 1, 3])  # [batch, heads, length, size]

    query, key, value = split("query", queries), split("key", memory), split("value", memory)
    with tf.name_scope(f"{scope}/scores/"):
        scores = tf.matmul(query, key, transpose_b=True) * size**-0.5
        if causal:
            scores += _MASKED * (1 - tf.linalg.band_part(tf.ones([length, length]), -1, 0))
        weights = _drop(tf.nn.softmax(scores), dropout)
        context = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        context = tf.reshape(context, [batch, length, width])
    return dense(f"{scope}/output", context, width)


def feed_forward(scope: str, inputs: Any, units: int, activation: Callable[[Any], Any]) -> Any:
    """Two dense layers, the first of `units`."""
    inner = dense(f"{scope}/inner", inputs, units, activation)
    return dense(f"{scope}/outer", inner, inputs.shape[-1])


def encoder_layer(
    scope: str,
    inputs: Any,
    *,
    heads: int,
    units: int,
    dropout: float,
    activation: Callable[[Any], Any],
) -> Any:
    """Self-attention and feed-forward, each with a residual."""
    attended = attention(f"{scope}/self", inputs, inputs, heads=heads, dropout=dropout)
    inputs = residual(f"{scope}/self", inputs, attended, dropout)
    changed = feed_forward(f"{scope}/feed_forward", inputs, units, activation)
    return residual(f"{scope}/feed_forward", inputs, changed, dropout)


def _drop(values: Any, rate: float) -> Any:
    import tensorflow as tf

    return tf.nn.dropout(values, rate) if rate else values
