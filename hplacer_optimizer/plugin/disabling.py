"""Where the optimizer is off, whatever the options say: HPLACER_DISABLE=1, and `disabled()`."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from hplacer_optimizer.support.switched_off import is_switched_off


class _ThreadState(threading.local):
    disabled_depth = 0
    epoch: object = None  # of the options that this thread's function call options were made with


thread_state = _ThreadState()


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Within this block, and on this thread, nothing switches the optimizer on.

    Planners run in it, so that the TensorFlow they use never plans its own graphs. A session or a
    function call takes its config when it starts, so the block does not change earlier ones.

    Example:
        >>> import hplacer_optimizer as hp
        >>> import tensorflow as tf
        >>> double = tf.function(lambda x: 2.0 * x)
        >>> with hp.disabled():
        ...     float(double(3.0))  # is not planned, whatever the options say
        6.0
    """
    context = eager_context()
    kept = context._thread_local_data.function_call_options if context else None
    kept_epoch = thread_state.epoch
    thread_state.disabled_depth += 1
    thread_state.epoch = None
    try:
        yield
    finally:
        thread_state.disabled_depth -= 1
        thread_state.epoch = kept_epoch
        context = eager_context()
        if context:
            context._thread_local_data.function_call_options = kept


def is_disabled() -> bool:
    """Whether HPLACER_DISABLE=1 or `disabled()` is in force on this thread."""
    return thread_state.disabled_depth > 0 or is_switched_off()


def eager_context() -> Any:
    """TensorFlow's eager context, None while TensorFlow has not been imported."""
    module = sys.modules.get("tensorflow.python.eager.context")
    return module.context() if module and hasattr(module, "context") else None
