"""Moves the variables of an existing model to their planned devices.

A tf.Variable stays the object that it is, under every name and in every list, checkpoint and
optimizer; only its handle is another one. Functions that were traced with the old handle are found
and given the new one, so they need no new trace.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any

from hplacer_optimizer.errors import PlanError
from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.plugin.variables.model_plan import ModelPlan, check_devices, listed
from hplacer_optimizer.plugin.variables.names import KeyMaker, in_order_of_creation, name_of
from hplacer_optimizer.plugin.variables.scope import is_left_alone, publish
from hplacer_optimizer.plugin.variables.slots import follow


def migrate(model: Any, optimizer: Any, plan: ModelPlan) -> None:
    """Moves variables to the devices of the plan; their values do not change.

    They move one after the other, so you need free memory for one variable only. Nothing may train,
    save or read the model meanwhile. Nothing moves if HPLACER_DISABLE=1 switches the optimizer off.

    Args:
        model: a Keras model, a `tf.Module`, or variables in lists and dicts.
        optimizer: whose variables move, too; None: that of a compiled Keras model, if any.
        plan: of `plan_model`, for a model of the same names and shapes.

    Raises:
        PlanError: before anything is moved, if a variable is not in the plan, has another shape or
            dtype there, or this process lacks a device of the plan.

    Example, after that of `plan_model`:
        >>> weights = make_weights()  # on TensorFlow's default device
        >>> hp.migrate([weights], None, plan)
        >>> weights.device == plan.devices["weights"]
        True
    """
    import tensorflow as tf

    check_devices(plan)
    if not tf.executing_eagerly():
        raise PlanError("migrate: call it eagerly, outside of any tf.function or tf.Graph")
    optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
    moves = _moves(_variables_of(model) + _variables_of(optimizer), plan)
    if is_left_alone(plan):
        return
    publish(plan)
    holders = _holders_by_capture()
    left = [
        key
        for key, variable, device in moves
        if not _move(variable, device, holders.get(id(variable.handle), []))
    ]
    if left:
        LOGGER.warning(
            "something still holds the old memory of %s: it is not freed, and what uses it does "
            "not see the variable any more",
            listed(left),
        )


def _variables_of(owner: Any) -> list[Any]:
    """Keras variables and tf.Variables."""
    import tensorflow as tf

    if owner is None:
        return []
    if isinstance(owner, (list, tuple, Mapping)):
        return [variable for part in tf.nest.flatten(owner) for variable in _variables_of(part)]
    if isinstance(owner, tf.Variable):
        return [owner]
    variables = getattr(owner, "variables", None)
    if variables is None:
        if isinstance(getattr(owner, "value", None), tf.Variable):
            return [owner]
        raise PlanError(f"migrate: an object of type {type(owner).__name__} has no variables")
    variables = variables() if callable(variables) else variables
    return [*variables, *getattr(owner, "metrics_variables", ())]


def _value(variable: Any) -> Any:
    """The tf.Variable of a Keras variable, or itself."""
    import tensorflow as tf

    return variable if isinstance(variable, tf.Variable) else variable.value


def _moves(variables: list[Any], plan: ModelPlan) -> list[tuple[str, Any, str]]:
    """(key, tf.Variable, device) of those that are elsewhere; all fit the plan."""
    planned = {v.key: v for v in plan.variables}
    keys = KeyMaker()
    moves, unknown, different = [], [], []
    for variable in in_order_of_creation(variables, _value):
        key, value = keys(name_of(variable)), _value(variable)
        if key not in planned:
            unknown.append(key)
        elif difference := planned[key].difference(value):
            different.append(f"'{key}' {difference}")
        elif planned[key].device not in (None, value.device):
            moves.append((key, value, str(planned[key].device)))
    if unknown:
        raise PlanError(
            f"the plan of {plan.step.label} does not have the variables {listed(unknown)}; it has "
            f"{listed(list(planned))}. Plan the model that is to be moved"
        )
    if different:
        raise PlanError(
            f"variables are not as in the plan of {plan.step.label}: {'; '.join(different)}"
        )
    return moves


def _holders_by_capture() -> dict[int, list[Any]]:
    """What is alive and holds captured tensors, by the id of each tensor.

    A ConcreteFunction has a list of its own beside that of its graph; the graph of a branch inside
    of a function has only that.
    """
    from tensorflow.core.function.capture import capture_container
    from tensorflow.python.eager.polymorphic_function import concrete_function

    holders: dict[int, list[Any]] = {}
    for thing in gc.get_objects():
        # Not isinstance, which would load lazy modules.
        if issubclass(type(thing), concrete_function.ConcreteFunction):
            tensors = thing.captured_inputs
        elif issubclass(type(thing), capture_container.FunctionCaptures):
            tensors = thing.by_val_external.values()
        else:
            continue
        for captured in {id(tensor) for tensor in tensors}:
            holders.setdefault(captured, []).append(thing)
    return holders


def _move(variable: Any, device: str, holders: list[Any]) -> bool:
    """Gives the variable a new handle; returns whether the old one is gone."""
    import tensorflow as tf
    from tensorflow.python.ops import resource_variable_ops

    old = variable.handle
    with tf.device(device):
        new = resource_variable_ops.UninitializedVariable(
            shape=variable.shape, dtype=variable.dtype, name=variable.name.partition(":")[0]
        )
    if variable.is_initialized():
        new.assign(variable.value())
    handle = new.handle
    handle._parent_trackable = weakref.ref(variable)
    handle._name, handle._unique_id = old._name, old._unique_id
    variable._handle = handle
    follow(variable)
    for holder in holders:
        _replace_capture(holder, old, handle)
    gone = weakref.ref(old)
    del old
    return gone() is None


def _replace_capture(holder: Any, old: Any, new: Any) -> None:
    if hasattr(holder, "set_external_captures"):
        captured = holder.captured_inputs
        holder.set_external_captures([new if tensor is old else tensor for tensor in captured])
        return
    external = holder.by_val_external.values()
    holder.reset_captures(
        [new if tensor is old else tensor for tensor in external],
        list(holder.by_val_internal.values()),
    )
    _ = holder.by_val_capture_tuples  # made anew: the last ones hold the old handle
