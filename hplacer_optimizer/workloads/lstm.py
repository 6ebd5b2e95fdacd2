"""LSTM layers, unrolled: one set of ops per time step, under `SCOPE/step_T/`.

Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997, with one matrix product for the four
gates and a forget bias of 1, as TensorFlow's BasicLSTMCell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_FORGET_BIAS = 1.0


class LstmState(NamedTuple):
    """Both float32[batch, units]."""

    cell: Any
    hidden: Any


def lstm_layer(
    scope: str, inputs: Sequence[Any], units: int, state: LstmState | None = None
) -> tuple[list[Any], LstmState]:
    """Adds a layer with variables of its own over `inputs`, float32[batch, width] per step.

    Returns the hidden state after every step, float32[batch, units], and the last state. Without
    `state` the layer starts from zeros.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    batch, width = inputs[0].shape
    kernel = v1.get_variable(
        f"{scope}/kernel", [width + units, 4 * units], initializer=v1.glorot_uniform_initializer()
    )
    bias = v1.get_variable(f"{scope}/bias", [4 * units], initializer=v1.zeros_initializer())
    with tf.name_scope(f"{scope}/"):
        state = state or LstmState(tf.zeros([batch, units]), tf.zeros([batch, units]))
    outputs = []
    for step, value in enumerate(inputs):
        with tf.name_scope(f"{scope}/step_{step}/"):
            state = _cell(value, state, kernel, bias)
        outputs.append(state.hidden)
    return outputs, state


def _cell(value: Any, state: LstmState, kernel: Any, bias: Any) -> LstmState:
    import tensorflow as tf

    gates = tf.nn.bias_add(tf.matmul(tf.concat([value, state.hidden], 1), kernel), bias)
    update, candidate, forget, output = tf.split(gates, 4, axis=1)
    cell = state.cell * tf.sigmoid(forget + _FORGET_BIAS) + tf.sigmoid(update) * tf.tanh(candidate)
    return LstmState(cell, tf.tanh(cell) * tf.sigmoid(output))
