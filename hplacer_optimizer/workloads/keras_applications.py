"""Networks of Keras applications, their training step captured from a tf.function.

EfficientNet-B0 (Tan and Le, 2019) and MobileNetV2 (Sandler et al., 2018), both with RMSProp as in
their papers; the learning rate is a constant here. `capture` gives the ConcreteFunction itself,
`efficientnet_b0` and `mobilenet_v2` the same step as a graph for a session.

Both set Keras' and TensorFlow's random seeds and clear Keras' session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hplacer_optimizer.workloads.training_graph import (
    TRAIN_OP,
    TrainingGraph,
    finished_graph,
    input_batch,
    new_graph,
)

_APPLICATIONS = {"efficientnet_b0": "EfficientNetB0", "mobilenet_v2": "MobileNetV2"}
_RMSPROP = {"learning_rate": 0.001, "rho": 0.9, "momentum": 0.9, "epsilon": 0.001}
_EXACT_VALUES = 1024  # larger initial values are drawn in the graph, to keep its file small


class CapturedTraining(NamedTuple):
    """`function(images, labels)` -> loss updates the model; it lives as long as the other two."""

    function: Any
    model: Any
    optimizer: Any


def efficientnet_b0(
    *, batch_size: int = 32, pixels: int = 224, classes: int = 1000, seed: int = 0
) -> TrainingGraph:
    """The training graph of EfficientNet-B0; the images are noise."""
    return _graph(capture("efficientnet_b0", batch_size, pixels, classes, seed), classes, seed)


def mobilenet_v2(
    *, batch_size: int = 32, pixels: int = 224, classes: int = 1000, seed: int = 0
) -> TrainingGraph:
    """The training graph of MobileNetV2; the images are noise."""
    return _graph(capture("mobilenet_v2", batch_size, pixels, classes, seed), classes, seed)


def capture(
    network: str, batch_size: int, pixels: int, classes: int, seed: int = 0
) -> CapturedTraining:
    """Traces one step for float32[batch_size, pixels, pixels, 3] and int32[batch_size]."""
    import keras
    import tensorflow as tf

    keras.backend.clear_session()  # names would count on from models built before
    keras.utils.set_random_seed(seed)
    model = getattr(keras.applications, _APPLICATIONS[network])(
        weights=None, classes=classes, input_shape=(pixels, pixels, 3), name=network
    )
    optimizer = keras.optimizers.RMSprop(**_RMSPROP)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy()

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def train_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    function = train_step.get_concrete_function(
        tf.TensorSpec((batch_size, pixels, pixels, 3), tf.float32, "images"),
        tf.TensorSpec((batch_size,), tf.int32, "labels"),
    )
    return CapturedTraining(function, model, optimizer)


def _graph(training: CapturedTraining, classes: int, seed: int) -> TrainingGraph:
    """The function's body with variables of its own, under the scope `train_step`."""
    import numpy as np
    import tensorflow as tf

    body = training.function.graph
    owner = {id(variable.handle): variable for variable in body.variables}
    captures = [(inner.name, owner.get(id(outer), outer)) for outer, inner in body.captures]
    values = {name: source.numpy() for name, source in captures}
    images, labels = body.inputs[:2]
    random = np.random.default_rng(seed)
    with new_graph(seed):
        noise = random.standard_normal(images.shape, np.float32)
        chosen = random.integers(0, classes, labels.shape, np.int32)
        replaced = {
            images.name: input_batch(noise, "images"),
            labels.name: input_batch(chosen, "labels"),
        }
        for name, source in captures:
            if isinstance(source, tf.Variable):
                replaced[name] = _copy(source, values[name]).handle
            else:
                replaced[name] = tf.constant(values[name])
        inputs = {name.partition(":")[0] for name in replaced}
        definition = body.as_graph_def()
        kept = [node for node in definition.node if node.name not in inputs]
        del definition.node[:]
        definition.node.extend(_without_identity_n(kept))
        updates = [op.name for op in body.control_outputs if op.type.startswith("Assign")]
        loss, *updates = tf.graph_util.import_graph_def(
            definition,
            input_map=replaced,
            return_elements=[body.outputs[0].name, *updates],
            name="train_step",
        )
        return finished_graph(loss, tf.group(updates, name=TRAIN_OP))


def _without_identity_n(nodes: Sequence[Any]) -> list[Any]:
    """The nodes without ops IdentityN, as the optimizer's pass has a function's.

    In a session's graph they would stay, because their outputs could be fed.
    """
    handed_on = {
        f"{node.name}:{k}".removesuffix(":0"): source
        for node in nodes
        if node.op == "IdentityN"
        for k, source in enumerate(node.input)
    }
    left = [node for node in nodes if node.op != "IdentityN"]
    for node in left:
        for i, source in enumerate(node.input):
            while source in handed_on:
                source = handed_on[source]
            node.input[i] = source
    return left


def _copy(variable: Any, values: Any) -> Any:
    """A variable of the default graph, like this one; large initial values only in distribution."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    if values.size and np.all(values == values.flat[0]):
        initializer = v1.constant_initializer(values.flat[0])
    elif values.size <= _EXACT_VALUES:
        initializer = v1.constant_initializer(values)
    else:
        initializer = v1.random_normal_initializer(float(values.mean()), float(values.std()))
    return v1.get_variable(
        variable.name.partition(":")[0],
        values.shape,
        values.dtype,
        initializer=initializer,
        trainable=variable.trainable,
    )
