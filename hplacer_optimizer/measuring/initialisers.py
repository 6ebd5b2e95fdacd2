"""What gives a step's variables their first values: the graph's own initialisers, else random ones.

Small positive numbers suit weights and an optimizer's slots alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from hplacer_optimizer.errors import GraphError

_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_ASSIGNS = ("AssignVariableOp", "Assign")
_TABLES = ("InitializeTable", "LookupTableImport")  # prefixes
_NEEDS_MORE = ("Placeholder", "PlaceholderV2", "Restore", "RestoreSlice", "RestoreV2")
_LARGEST = 0.1


def find_initialisers(graph: Any, step: Collection[str], initialised: Collection[str]) -> list[Any]:
    """Ops of a `tf.Graph` to run before the step; adds those that it lacks.

    Args:
        graph: not finalized.
        step: names of the step's ops.
        initialised: names of variables that have a value already.

    Raises GraphError for a variable that no value can be made for.
    """
    impure = _behind([op for op in graph.get_operations() if op.type in _NEEDS_MORE], step)
    found = []
    for name in sorted(step):
        op = graph.get_operation_by_name(name)
        if op.type in _VARIABLES and name not in initialised:
            own = [
                assign
                for assign in op.outputs[0].consumers()
                if assign.type in _ASSIGNS
                and assign.inputs[0] is op.outputs[0]
                and assign.name not in step
                and assign.name not in impure
            ]
            # TensorFlow's own first; a program may have further ones, such as to load weights.
            own.sort(key=lambda assign: (assign.name != f"{name}/Assign", assign.name))
            found.append(own[0] if own else _random(graph, op))
        elif "Table" in op.type and op.outputs:
            found += [
                fill
                for fill in op.outputs[0].consumers()
                if fill.type.startswith(_TABLES) and fill.name not in impure
            ]
    return found


def run_initialisers(run: Callable[[list[Any]], Any], initialisers: list[Any]) -> None:
    """All at once; those that read other variables after these, in as many rounds as it takes."""
    import tensorflow as tf

    try:
        run(initialisers)
        return
    except tf.errors.FailedPreconditionError:
        waiting = initialisers
    while waiting:
        failures = {op.name: _failure(run, op) for op in waiting}
        failed = [op for op in waiting if failures[op.name]]
        if len(failed) == len(waiting):
            name = failed[0].name
            raise GraphError(f"the initialiser '{name}' cannot run: {failures[name]}")
        waiting = failed


def _failure(run: Callable[[list[Any]], Any], op: Any) -> str | None:
    """What it lacked."""
    import tensorflow as tf

    try:
        run([op])
    except tf.errors.FailedPreconditionError as error:
        return str(error.message)
    return None


def _behind(sources: list[Any], step: Collection[str]) -> set[str]:
    """Names of the ops outside of the step that depend on the sources."""
    names: set[str] = set()
    waiting = sources
    while waiting:
        op = waiting.pop()
        if op.name in names or op.name in step:
            continue
        names.add(op.name)
        waiting += [consumer for output in op.outputs for consumer in output.consumers()]
        waiting += op._control_outputs
    return names


def _random(graph: Any, op: Any) -> Any:
    import tensorflow as tf

    dtype, shape = tf.as_dtype(op.get_attr("dtype")), tf.TensorShape(op.get_attr("shape"))
    if not shape.is_fully_defined():
        raise GraphError(f"variable '{op.name}' has no initialiser and no known shape")
    with graph.as_default():
        if dtype.is_floating:
            wide = dtype if dtype in (tf.float32, tf.float64) else tf.float32
            value = tf.cast(tf.random.uniform(shape, 0, _LARGEST, wide), dtype)
        elif dtype.is_integer or dtype.is_bool or dtype.is_complex:
            value = tf.zeros(shape, dtype)
        else:
            raise GraphError(f"variable '{op.name}' ({dtype.name}) has no initialiser")
        assign = tf.raw_ops.AssignVariableOp if op.type == "VarHandleOp" else tf.raw_ops.Assign
        handle = "resource" if op.type == "VarHandleOp" else "ref"
        result = assign(**{handle: op.outputs[0], "value": value})
    return result if op.type == "VarHandleOp" else result.op
