"""Functions whose kernels keep state, which two instantiations would have twice.

`RandomUniform` counts in its kernel what it has drawn. With two instantiations in turns it would
draw the same numbers once in each. State in a resource, such as a variable, an iterator, a table
or a `tf.random.Generator`, is the same for both.
"""

from __future__ import annotations

import re
from typing import Any

from hplacer_optimizer.capture.training_ops import called_functions

# Stateful ops without a handle as an input that keep nothing from step to step, or keep it outside
# of their kernel: in files, in Python, or behind the handle that they make.
_STATELESS_KERNELS = re.compile(
    r"_?(Arg|Retval)|Assert|Case|If|While|StatefulPartitionedCall|CheckNumerics(V2)?|Print(V2)?"
    r"|(Eager)?PyFunc|Empty|DeepCopy|GuaranteeConst|Timestamp|TensorArrayV3"
    r"|StatelessRandomGetAlg|IsTensorFloat32Enabled|GraphDefVersion|WriteFile|MergeV2Checkpoints"
    r"|(Save|Restore)(V2|Slices?)?|(Anonymous|Dummy)\w+|(?!\w*Random)\w*Dataset(V\d)?"
)


def op_with_state(context: Any, name: str) -> str | None:
    """The type of an op with state in its kernel, in a function or what it calls; None: none.

    Args:
        context: TensorFlow's eager context, which has the function.
        name: of the function.
    """
    todo, seen = [name], {name}
    while todo:
        for node in context.get_function_def(todo.pop()).node_def:
            if keeps_state(node.op) and not _draws_nothing(node):
                return str(node.op)
            for called in called_functions(node):
                if called not in seen:
                    seen.add(called)
                    todo.append(called)
    return None


def _draws_nothing(node: Any) -> bool:
    """CuDNN's recurrent layers have a state for dropout alone."""
    return str(node.op).startswith("CudnnRNN") and bool(node.attr["dropout"].f == 0.0)


def keeps_state(op_type: str) -> bool:
    """Whether kernels of this type keep state from step to step, as far as is known."""
    from tensorflow.core.framework import types_pb2
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op_type)
    if definition is None or not definition.is_stateful or _STATELESS_KERNELS.fullmatch(op_type):
        return False
    handles = (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
    return not any(argument.type in handles for argument in definition.input_arg)
