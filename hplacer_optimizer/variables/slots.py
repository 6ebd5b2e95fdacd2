"""Optimizer slots beside their variables, also where a function creates them.

Optimizers ask for it by `colocate_vars_with` of the (default) strategy. Eagerly that works. While a
function is traced, as in the first step of Keras `fit`, TensorFlow 2 drops the device, and all
slots are on the default device. So for variables that this package has placed, such a slot is
created outside of the function.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

_followed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by id


def follow(variable: Any) -> None:
    """From now on, slots of this tf.Variable are created on its device."""
    import tensorflow as tf

    _followed[id(variable)] = variable
    extended = tf.distribute.get_strategy().extended
    if not hasattr(extended, "_hplacer_original"):
        extended._hplacer_original = extended.colocate_vars_with
        extended.colocate_vars_with = _colocate_vars_with


@contextlib.contextmanager
def _colocate_vars_with(variable: Any) -> Iterator[None]:
    import tensorflow as tf

    def create(next_creator: Any, **arguments: Any) -> Any:
        if not callable(arguments.get("initial_value")):
            return next_creator(**arguments)  # a tensor of the function's graph, perhaps
        with tf.init_scope(), tf.device(variable.device):
            return next_creator(**arguments)

    with contextlib.ExitStack() as stack:
        extended = tf.distribute.get_strategy().extended
        stack.enter_context(extended._hplacer_original(variable))
        if _followed.get(id(variable)) is variable:
            stack.enter_context(tf.variable_creator_scope(create))
        yield
