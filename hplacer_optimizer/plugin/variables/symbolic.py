"""Builds a model without its variables: each has a handle, and no value.

    with building() as build:
        model = model_fn()          # initial values become nodes of a graph that never runs
    build.variables                 # what it created, in order

The graph is a FuncGraph, as inside of a tf.function, so that what Python computes eagerly in a
training script (`tf.Variable(tf.random.normal(...))`) is symbolic, too. What Keras and Python count
or draw on the way (names of layers, seeds) is put back, so that the real model gets the same names
and numbers as it would have without.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.plugin.variables.names import KeyMaker, name_in_creation


@dataclass(frozen=True, kw_only=True)
class SymbolicVariable:
    """A variable that was asked for in planning."""

    key: str
    variable: Any  # tf.Variable without a value
    requested_device: str  # by the user's tf.device; "": none
    beside: str | None  # key of the variable that it must be colocated with: a slot's


@dataclass
class Build:
    """What was created so far."""

    variables: list[SymbolicVariable] = field(default_factory=list)
    _keys: KeyMaker = field(default_factory=KeyMaker)
    _key_of: dict[int, str] = field(default_factory=dict)  # by id of the tf.Variable
    _beside: list[Any] = field(default_factory=list)  # stack of tf.Variable

    def create(self, _: Any, **arguments: Any) -> Any:
        """A variable creator, see `tf.variable_creator_scope`."""
        from tensorflow.python.ops import resource_variable_ops

        initial_value = arguments.get("initial_value")
        key = self._keys(name_in_creation(arguments.get("name"), initial_value))
        device = requested_device()
        shape, dtype = _type_of(key, initial_value, arguments.get("dtype"))
        kept = ("trainable", "name", "constraint", "synchronization", "aggregation")
        variable = resource_variable_ops.UninitializedVariable(
            shape=shape if arguments.get("shape") is None else arguments["shape"],
            dtype=dtype,
            **{name: arguments.get(name) for name in kept},
        )
        beside = self._key_of.get(id(self._beside[-1])) if self._beside else None
        self._key_of[id(variable)] = key
        self.variables.append(
            SymbolicVariable(
                key=key,
                variable=variable,
                requested_device="" if beside else device,
                beside=beside,
            )
        )
        return variable

    @contextlib.contextmanager
    def _noting_colocation(self) -> Iterator[None]:
        """Optimizers colocate slots by this method of the strategy, which knows devices only."""
        import tensorflow as tf

        extended = tf.distribute.get_strategy().extended
        original, own = extended.colocate_vars_with, dict(vars(extended))

        @contextlib.contextmanager
        def colocate(variable: Any) -> Iterator[None]:
            self._beside.append(variable)
            try:
                with original(variable):
                    yield
            finally:
                self._beside.pop()

        extended.colocate_vars_with = colocate
        try:
            yield
        finally:
            vars(extended).clear()
            vars(extended).update(own)


@contextlib.contextmanager
def building() -> Iterator[Build]:
    """Raises GraphError inside of a distribution strategy or of a graph."""
    import tensorflow as tf
    from tensorflow.python.framework import func_graph

    if tf.distribute.has_strategy():
        raise GraphError(
            "plan_model: a tf.distribute strategy places variables itself; plan outside of its "
            "scope, and train without it"
        )
    if not tf.executing_eagerly():
        raise GraphError("plan_model: plans TensorFlow 2 models, outside of any tf.Graph")
    build = Build()
    with (
        _undisturbed(),
        func_graph.FuncGraph("plan_model").as_default(),
        tf.variable_creator_scope(build.create),
        build._noting_colocation(),
    ):
        yield build


def requested_device() -> str:
    """The device that the user's program asks for here; "": none."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    if tf.executing_eagerly():
        return str(context.context().device_name or "")
    return str(tf.no_op().device)


def _type_of(key: str, initial_value: Any, dtype: Any) -> tuple[Any, Any]:
    import tensorflow as tf
    from tensorflow.python.framework import func_graph

    with func_graph.FuncGraph("initial_value").as_default():
        value = initial_value() if callable(initial_value) else initial_value
        if value is None:
            raise GraphError(f"variable '{key}': has no initial value, hence no known shape")
        tensor = tf.convert_to_tensor(value, dtype)
    return tensor.shape, tensor.dtype


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Puts back the random states of Python and NumPy, and the global state of Keras."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    trackers = _keras_state()
    kept = [_copy_state(tracker) for tracker in trackers]
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for tracker, state in zip(trackers, kept, strict=True):
            vars(tracker).clear()
            vars(tracker).update(state)


def _keras_state() -> list[Any]:
    if "keras" not in sys.modules:
        return []
    from keras.src.backend.common import global_state

    return [global_state.GLOBAL_STATE_TRACKER]


def _copy_state(tracker: Any) -> dict[str, Any]:
    """With containers copied: the counters of names are one."""
    return {
        name: value.copy() if isinstance(value, (dict, list, set)) else value
        for name, value in vars(tracker).items()
    }
