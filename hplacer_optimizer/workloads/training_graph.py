"""What the workloads build: the graph of one training step, in TensorFlow 1's graph mode.

The input batch is part of the graph, as the default of a placeholder: a session runs `train_op`
without feeding anything, and may feed the placeholder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

TRAIN_OP, INIT_OP = "train_op", "init"


class TrainingGraph(NamedTuple):
    """A graph and what to run in it: `init` once, then `train_op` for every step."""

    graph: Any
    init: Any
    loss: Any
    train_op: Any


@contextlib.contextmanager
def new_graph(seed: int) -> Iterator[Any]:
    """A fresh default graph with resource variables and a graph-level seed."""
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # each old-style initializer warns once
    tf.compat.v1.enable_resource_variables()
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.set_random_seed(seed)
        yield graph


def input_batch(values: Any, name: str) -> Any:
    """A tensor of the values; TensorFlow folds no constants through it, and it can be fed."""
    import tensorflow as tf

    return tf.compat.v1.placeholder_with_default(values, values.shape, name)


def training_graph(
    loss: Any, optimizer: Any, *, aggregation_method: int | None = None
) -> TrainingGraph:
    """Completes the default graph with the gradients, the updates and the initialization.

    Ops that the UPDATE_OPS collection holds (moving averages) belong to the step.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    graph = v1.get_default_graph()
    with tf.control_dependencies(graph.get_collection(v1.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, aggregation_method=aggregation_method, name=TRAIN_OP)
    return finished_graph(loss, train_op)


def finished_graph(loss: Any, train_op: Any) -> TrainingGraph:
    """Adds the initialization, and notes what to run in the collections that a file keeps."""
    import tensorflow as tf

    v1 = tf.compat.v1
    graph = v1.get_default_graph()
    init = v1.variables_initializer(v1.global_variables(), INIT_OP)
    for collection, value in (
        (v1.GraphKeys.INIT_OP, init),
        (v1.GraphKeys.TRAIN_OP, train_op),
        ("loss", loss),
    ):
        graph.add_to_collection(collection, value)
    return TrainingGraph(graph, init, loss, train_op)
