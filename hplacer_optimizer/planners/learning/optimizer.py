"""Adam with a limit on the norm of the gradient, as TensorFlow's fused kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


class Adam(tf.Module):  # type: ignore[misc]
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization" (ICLR 2015)."""

    def __init__(self, variables: Sequence[Any]) -> None:
        super().__init__(name="adam")
        self._of = list(variables)
        self._m = [tf.Variable(tf.zeros_like(variable)) for variable in variables]
        self._v = [tf.Variable(tf.zeros_like(variable)) for variable in variables]
        self._beta1_power = tf.Variable(_BETA1)
        self._beta2_power = tf.Variable(_BETA2)

    def apply(self, gradients: Sequence[Any], learning_rate: Any, clip_norm: float) -> Any:
        """One update; returns the norm of the gradient before it was clipped."""
        clipped, norm = tf.clip_by_global_norm(gradients, clip_norm)
        for variable, m, v, gradient in zip(self._of, self._m, self._v, clipped, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=self._beta1_power,
                beta2_power=self._beta2_power,
                lr=learning_rate,
                beta1=_BETA1,
                beta2=_BETA2,
                epsilon=_EPSILON,
                grad=gradient,
            )
        self._beta1_power.assign(self._beta1_power * _BETA1)
        self._beta2_power.assign(self._beta2_power * _BETA2)
        return norm
