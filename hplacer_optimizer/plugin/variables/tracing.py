"""The training step of a model as a ConcreteFunction, as it will be traced in training."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.plugin.variables.symbolic import Build


def trace_step(built: Any, step_fn: Callable[..., Any] | None, specs: Any, build: Build) -> Any:
    """The step after its first call.

    Args:
        built: what the user's `model_fn` returned.
        step_fn: called with it and the `specs`; None: it is a compiled Keras model, and the step
            is that of `fit`.
        specs: of a batch, as `tf.TensorSpec`s; without a `step_fn` also a `tf.data.Dataset`.
        build: of the model.

    Raises GraphError if there is no such step.
    """
    trace = _trace_fit if step_fn is None else functools.partial(_trace_function, step_fn)
    known = len(build.variables)
    concrete = trace(built, specs)
    if len(build.variables) > known:
        # The step has created variables: training runs a trace of its own without that.
        concrete = trace(built, specs)
    return concrete


def _trace_function(step_fn: Any, built: Any, specs: Any) -> Any:
    import tensorflow as tf

    specs = specs if isinstance(specs, (tuple, list)) else (specs,)
    if isinstance(step_fn, tf.types.experimental.GenericFunction):
        return step_fn._clone(None).get_concrete_function(built, *specs)
    bound = functools.partial(step_fn, built)
    vars(bound)["__name__"] = getattr(step_fn, "__name__", "step")  # for the log
    return tf.function(bound).get_concrete_function(*specs)


def _trace_fit(model: Any, specs: Any) -> Any:
    import tensorflow as tf

    if not getattr(model, "compiled", False):
        raise GraphError(
            "plan_model: without a step_fn, model_fn must return a Keras 3 model with its "
            f"compile() called; it returned an object of type {type(model).__name__}"
        )
    if model.run_eagerly or model.jit_compile:
        option = "run_eagerly" if model.run_eagerly else "jit_compile"
        raise GraphError(f"plan_model: compile the model with {option}=False: its step is no graph")
    element_spec = specs.element_spec if isinstance(specs, tf.data.Dataset) else specs
    model.make_train_function(force=True)
    return _graph_function(model.train_function).get_concrete_function(
        tf.data.IteratorSpec(element_spec)
    )


def _graph_function(train_function: Any) -> Any:
    """The tf.function that a Keras train function is, or calls."""
    import tensorflow as tf

    inside = inspect.getclosurevars(inspect.unwrap(train_function)).nonlocals.values()
    for candidate in (train_function, *inside):
        if isinstance(candidate, tf.types.experimental.GenericFunction):
            return candidate
    raise GraphError("plan_model: this Keras has no tf.function in its fit; pass a step_fn")
