"""Optimizer slots beside their variables, also where a function creates them.

Optimizers ask for it by `colocate_vars_with` of the (default) strategy. Eagerly that works. While a
function is traced, as in the first step of Keras `fit`, TensorFlow 2 drops the device, and all
slots are on the default device. So for variables that this package has placed, such a slot is
created outside of the function.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

_followed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by id


def follow(variable: Any) -> None:
    """From now on, slots of this tf.Variable are created on its device."""
    import tensorflow as tf

    _followed[id(variable)] = variable
    extended = tf.distribute.get_strategy().extended
    original = extended.colocate_vars_with
    if getattr(original, "func", None) is not _colocate_vars_with:
        extended.colocate_vars_with = functools.partial(_colocate_vars_with, original)


@contextlib.contextmanager
def _colocate_vars_with(original: Callable[..., Any], variable: Any) -> Iterator[None]:
    import tensorflow as tf

    def create(next_creator: Any, **arguments: Any) -> Any:
        if not callable(arguments.get("initial_value")):
            return next_creator(**arguments)  # a tensor of the function's graph, perhaps
        with tf.init_scope(), tf.device(variable.device):
            return next_creator(**arguments)

    with contextlib.ExitStack() as stack:
        stack.enter_context(original(variable))
        if _followed.get(id(variable)) is variable:
            stack.enter_context(tf.variable_creator_scope(create))
        yield
