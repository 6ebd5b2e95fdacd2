"""Small training graphs that differ in kind, for two workers with a core each.

Every builder returns a loss in the default graph; `write` completes it with gradients and updates.
Those of BATCHED can have another batch size, and be trained data-parallel: `write_replicas`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hplacer_optimizer.workloads import graphs
from hplacer_optimizer.workloads.training_graph import (
    TRAIN_OP,
    finished_graph,
    input_batch,
    new_graph,
    training_graph,
)


def write(name: str, path: Path, batch_size: int | None = None) -> None:
    """Writes a graph as a binary MetaGraphDef file; a batch size is for one of BATCHED."""
    import tensorflow as tf

    build = GRAPHS[name] if batch_size is None else resized(name, batch_size)
    if isinstance(build, tuple):
        workload, parameters = build
        graphs.write_graph(workload, path, **parameters)
        return
    with new_graph(seed=1):
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1e-3)
        built = training_graph(build(), optimizer)
        meta_graph = tf.compat.v1.train.export_meta_graph()
    assert built
    path.write_bytes(meta_graph.SerializeToString(deterministic=True))


def resized(name: str, batch_size: int) -> Callable[[], Any]:
    """The builder of one of BATCHED, with another batch size."""
    build = BATCHED[name]
    return partial(build.func, *build.args[:-1], batch_size)


def write_replicas(name: str, path: Path, batch_size: int, devices: Sequence[str]) -> None:
    """Writes data parallelism by hand: on each device the whole graph, with its share of the batch.

    Every device sends its gradients to all others, averages what it has got and updates variables
    of its own. Only a dense gradient is averaged; rows of tables are put one after the other.
    """
    import tensorflow as tf

    share = batch_size // len(devices)
    with new_graph(seed=1) as graph:
        losses, gradients = [], []
        for replica, device in enumerate(devices):
            scope = f"replica{replica}"
            with tf.device(device), tf.compat.v1.variable_scope(scope):
                losses.append(resized(name, share)())
                variables = tf.compat.v1.trainable_variables(f"{scope}/")
                found = tf.gradients(losses[-1], variables)
                gradients.append(list(zip(found, variables, strict=True)))
        updates = []
        for replica, device in enumerate(devices):
            with tf.device(device), tf.name_scope(f"update{replica}"):
                for of_variable in zip(*gradients, strict=True):
                    updates.append(_update(of_variable, of_variable[replica][1]))
        train_op = tf.group(*updates, name=TRAIN_OP)
        finished_graph(tf.add_n(losses), train_op)
        meta_graph = tf.compat.v1.train.export_meta_graph(graph=graph)
    path.write_bytes(meta_graph.SerializeToString(deterministic=True))


def _update(of_variable: Sequence[tuple[Any, Any]], variable: Any) -> Any:
    """By gradient descent, with the gradients of all replicas."""
    import tensorflow as tf

    gradients, rate = [gradient for gradient, _ in of_variable], 1e-3 / len(of_variable)
    if isinstance(gradients[0], tf.IndexedSlices):
        values = tf.concat([gradient.values for gradient in gradients], 0)
        indices = tf.concat([gradient.indices for gradient in gradients], 0)
        return variable.scatter_sub(tf.IndexedSlices(rate * values, indices))
    total = tf.add_n(gradients)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(rate)
    return optimizer.apply_gradients([(total, variable)])


def _input(*shape: int, seed: int = 0) -> Any:
    import numpy as np

    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return input_batch(values, f"input{seed}")


def _weights(name: str, *shape: int) -> Any:
    import tensorflow as tf

    scale = 1.0 / float(shape[-2]) ** 0.5
    initial = tf.compat.v1.random_normal_initializer(stddev=scale, seed=1)
    return tf.compat.v1.get_variable(name, shape, initializer=initial)


def _dense(x: Any, name: str, width: int) -> Any:
    import tensorflow as tf

    with tf.name_scope(name):
        return tf.tanh(x @ _weights(name, int(x.shape[-1]), width))


def _mean(values: list[Any]) -> Any:
    import tensorflow as tf

    return tf.add_n([tf.reduce_mean(tf.square(value)) for value in values])


def _normal(x: Any) -> Any:
    """Each row with mean 0 and variance 1."""
    import tensorflow as tf

    mean, variance = tf.nn.moments(x, axes=-1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def _chain(layers: int, width: int, batch: int) -> Any:
    x = _input(batch, width)
    for layer in range(layers):
        x = _dense(x, f"layer{layer}", width)
    return _mean([x])


def _towers(towers: int, layers: int, width: int, batch: int) -> Any:
    ends = []
    for tower in range(towers):
        x = _input(batch, width, seed=tower)
        for layer in range(layers):
            x = _dense(x, f"tower{tower}/layer{layer}", width)
        ends.append(x)
    return _mean(ends)


def _unequal_towers(width: int, batch: int) -> Any:
    ends = []
    for tower, layers in enumerate((2, 6)):
        x = _input(batch, width, seed=tower)
        for layer in range(layers):
            x = _dense(x, f"tower{tower}/layer{layer}", width)
        ends.append(x)
    return _mean(ends)


def _experts(experts: int, width: int, batch: int) -> Any:
    import tensorflow as tf

    x = _dense(_input(batch, width), "shared", width)
    gates = tf.nn.softmax(x @ _weights("gate", width, experts))
    outputs = []
    for expert in range(experts):
        hidden = _dense(x, f"expert{expert}/in", 4 * width)
        hidden = _dense(hidden, f"expert{expert}/out", width)
        outputs.append(hidden * gates[:, expert : expert + 1])
    return _mean([tf.add_n(outputs)])


def _exchange(layers: int, width: int, batch: int) -> Any:
    """Two towers that need each other's whole output in every layer."""
    import tensorflow as tf

    a, b = _input(batch, width, seed=0), _input(batch, width, seed=1)
    for layer in range(layers):
        both = tf.concat([a, b], axis=1)
        a, b = _dense(both, f"a{layer}", width), _dense(both, f"b{layer}", width)
    return _mean([a, b])


def _elementwise(chains: int, length: int, size: int) -> Any:
    """Ops that do little on much: moving an input costs more than computing it."""
    import tensorflow as tf

    ends = []
    for chain in range(chains):
        x = tf.reshape(_weights(f"w{chain}", size, 64), [size, 64])
        for _ in range(length):
            x = tf.tanh(x)
        ends.append(x)
    return _mean(ends)


def _tiny(chains: int, length: int) -> Any:
    import tensorflow as tf

    ends = []
    for chain in range(chains):
        x = _weights(f"w{chain}", 2, 4)
        for step in range(length):
            x = tf.tanh(x * (1.0 + 0.01 * step))
        ends.append(x)
    return _mean(ends)


def _convolution(x: Any, name: str, width: int, filters: int, stride: int = 1) -> Any:
    import tensorflow as tf

    with tf.name_scope(name):
        kernel = _weights(name, width, width, int(x.shape[-1]), filters) / width
        return tf.nn.relu(tf.nn.conv2d(x, kernel, stride, "SAME"))


def _convolutions(towers: int, layers: int, filters: int, size: int) -> Any:
    ends = []
    for tower in range(towers):
        x = _input(4, size, size, filters, seed=tower)
        for layer in range(layers):
            x = _convolution(x, f"tower{tower}/conv{layer}", 3, filters)
        ends.append(x)
    return _mean(ends)


def _inception(blocks: int, filters: int, size: int) -> Any:
    import tensorflow as tf

    x = _input(4, size, size, filters)
    for block in range(blocks):
        branches = []
        for branch, width in enumerate((1, 3, 3, 5)):
            branches.append(_convolution(x, f"block{block}/branch{branch}", width, filters // 4))
        x = tf.concat(branches, axis=3)
    return _mean([x])


def _recurrent(lengths: tuple[int, ...], width: int, batch: int) -> Any:
    import tensorflow as tf

    ends = []
    for encoder, length in enumerate(lengths):
        inputs = _input(length, batch, width, seed=encoder)
        with tf.name_scope(f"encoder{encoder}"):
            kernel = _weights(f"encoder{encoder}/kernel", 2 * width, width)
            state = tf.zeros([batch, width])
            for step in range(length):
                state = tf.tanh(tf.concat([inputs[step], state], axis=1) @ kernel)
            ends.append(state)
    return _mean(ends)


def _two_directions(length: int, width: int, batch: int) -> Any:
    """A sequence read forwards and backwards, then once more from both."""
    import tensorflow as tf

    inputs = tf.unstack(_input(length, batch, width))
    for layer in range(2):
        read = {}
        for direction in ("forwards", "backwards"):
            name = f"layer{layer}/{direction}"
            with tf.name_scope(name):
                kernel = _weights(f"{name}/kernel", int(inputs[0].shape[-1]) + width, width)
                state, states = tf.zeros([batch, width]), []
                for x in inputs if direction == "forwards" else inputs[::-1]:
                    state = tf.tanh(tf.concat([x, state], axis=1) @ kernel)
                    states.append(state)
            read[direction] = states if direction == "forwards" else states[::-1]
        inputs = [tf.concat(pair, axis=1) for pair in zip(*read.values(), strict=True)]
    return _mean([inputs[-1]])


def _down_and_up(levels: int, filters: int, size: int) -> Any:
    """Convolutions on ever smaller images and back, with what each size had before."""
    import tensorflow as tf

    x = _input(4, size, size, filters)
    before = []
    for level in range(levels):
        x = _convolution(x, f"down{level}/a", 3, filters)
        before.append(x)
        x = _convolution(x, f"down{level}/b", 3, filters, stride=2)
    for level in reversed(range(levels)):
        x = tf.image.resize(x, before[level].shape[1:3], method="nearest")
        x = tf.concat([x, before[level]], axis=3)
        x = _convolution(x, f"up{level}", 3, filters)
    return _mean([x])


def _layers_of_experts(layers: int, experts: int, width: int, batch: int) -> Any:
    import tensorflow as tf

    x = _input(batch, width)
    for layer in range(layers):
        gates = tf.nn.softmax(x @ _weights(f"layer{layer}/gate", width, experts))
        outputs = []
        for expert in range(experts):
            name = f"layer{layer}/expert{expert}"
            hidden = _dense(x, f"{name}/in", 2 * width)
            outputs.append(_dense(hidden, f"{name}/out", width) * gates[:, expert : expert + 1])
        x = tf.add_n(outputs)
    return _mean([x])


def _encoder_decoder(length: int, width: int, batch: int) -> Any:
    import tensorflow as tf

    inputs = _input(length, batch, width)
    encoder = _weights("encoder/kernel", 2 * width, width)
    decoder = _weights("decoder/kernel", 2 * width, width)
    state, states = tf.zeros([batch, width]), []
    with tf.name_scope("encoder"):
        for step in range(length):
            state = tf.tanh(tf.concat([inputs[step], state], axis=1) @ encoder)
            states.append(state)
    with tf.name_scope("decoder"):
        for step in range(length):
            state = tf.tanh(tf.concat([states[step], state], axis=1) @ decoder)
    return _mean([state])


def _embeddings(tables: int, rows: int, width: int, batch: int) -> Any:
    import numpy as np
    import tensorflow as tf

    found = []
    for table in range(tables):
        ids = np.random.default_rng(table).integers(0, rows, batch).astype(np.int32)
        found.append(
            tf.gather(_weights(f"table{table}", rows, width), input_batch(ids, f"ids{table}"))
        )
    x = tf.concat(found, axis=1)
    return _mean([_dense(_dense(x, "hidden", 256), "out", 16)])


def _attention(heads: int, length: int, width: int) -> Any:
    import tensorflow as tf

    x = _input(length, width)
    outputs = []
    for head in range(heads):
        with tf.name_scope(f"head{head}"):
            q, k, v = (x @ _weights(f"head{head}/{name}", width, width // 2) for name in "qkv")
            outputs.append(tf.nn.softmax(q @ tf.transpose(k)) @ v)
    return _mean([_dense(tf.concat(outputs, axis=1), "out", width)])


def _shared_convolutions(layers: int, filters: int, size: int) -> Any:
    """Two images through the same kernels, and how far apart they end."""
    import tensorflow as tf

    ends = []
    for image in range(2):
        x = _input(4, size, size, filters, seed=image)
        with tf.compat.v1.variable_scope("shared", reuse=image > 0):
            for layer in range(layers):
                x = _convolution(x, f"conv{layer}", 3, filters)
        ends.append(x)
    return _mean([ends[0] - ends[1]])


def _image_and_text(layers: int, filters: int, size: int, length: int, width: int) -> Any:
    """Convolutions beside a recurrent network, joined in the end."""
    import tensorflow as tf

    x = _input(4, size, size, filters)
    for layer in range(layers):
        x = _convolution(x, f"image{layer}", 3, filters)
    image = _dense(tf.reduce_mean(x, axis=(1, 2)), "image/out", width)
    words, kernel = _input(length, 64, width, seed=1), _weights("text", 2 * width, width)
    state = tf.zeros([64, width])
    for step in range(length):
        state = tf.tanh(tf.concat([words[step], state], axis=1) @ kernel)
    text = _dense(tf.reduce_mean(state, axis=0, keepdims=True), "text/out", width)
    return _mean([image * text])


def _tasks(tasks: int, layers: int, width: int, batch: int) -> Any:
    """What all tasks share, then layers of each task's own."""
    x = _input(batch, width)
    for layer in range(2):
        x = _dense(x, f"shared{layer}", width)
    ends = []
    for task in range(tasks):
        head = x
        for layer in range(layers):
            head = _dense(head, f"task{task}/layer{layer}", width)
        ends.append(head)
    return _mean(ends)


def _residuals(networks: int, blocks: int, width: int, batch: int) -> Any:
    """Networks of blocks that add to their input, normalised, whose outputs are averaged."""
    import tensorflow as tf

    outputs = []
    for network in range(networks):
        x = _input(batch, width)
        for block in range(blocks):
            name = f"network{network}/block{block}"
            x = x + _dense(_dense(_normal(x), f"{name}/in", 2 * width), f"{name}/out", width)
        outputs.append(x)
    return _mean([tf.add_n(outputs)])


def _mixer(blocks: int, patches: int, width: int, batch: int) -> Any:
    """Layers over patches and over channels, in turn."""
    import tensorflow as tf

    x = _input(batch * patches, width)
    for block in range(blocks):
        across = tf.transpose(tf.reshape(x, [batch, patches, width]), [0, 2, 1])
        across = _dense(tf.reshape(across, [batch * width, patches]), f"block{block}/a", patches)
        across = tf.transpose(tf.reshape(across, [batch, width, patches]), [0, 2, 1])
        x = _dense(x + tf.reshape(across, [batch * patches, width]), f"block{block}/b", width)
    return _mean([x])


def _attention_encoders(blocks: int, length: int, width: int, batch: int) -> Any:
    """Two encoders of blocks with attention, whose outputs are compared."""
    import tensorflow as tf

    ends, shape = [], [batch, length, width]
    for encoder in range(2):
        x = _input(batch * length, width, seed=encoder)
        for block in range(blocks):
            name = f"encoder{encoder}/block{block}"
            with tf.name_scope(name):
                q, k, v = (
                    tf.reshape(_normal(x) @ _weights(f"{name}/{part}", width, width), shape)
                    for part in "qkv"
                )
                weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / width**0.5)
                x += tf.reshape(weights @ v, [batch * length, width])
            inner = _dense(_normal(x), f"{name}/in", 4 * width)
            x += _dense(inner, f"{name}/out", width)
        ends.append(x)
    return _mean([ends[0] - ends[1]])


def _gated(layers: int, length: int, width: int, batch: int) -> Any:
    """A recurrent network with gates, layer on layer."""
    import tensorflow as tf

    inputs = tf.unstack(_input(length, batch, width))
    for layer in range(layers):
        name, state, states = f"layer{layer}", tf.zeros([batch, width]), []
        gates = _weights(f"{name}/gates", 2 * width, 2 * width)
        kernel = _weights(f"{name}/kernel", 2 * width, width)
        with tf.name_scope(name):
            for x in inputs:
                both = tf.sigmoid(tf.concat([x, state], axis=1) @ gates)
                forget, update = tf.split(both, 2, axis=1)
                new = tf.tanh(tf.concat([x, forget * state], axis=1) @ kernel)
                state = update * state + (1 - update) * new
                states.append(state)
        inputs = states
    return _mean(inputs)


def _wide_and_deep(tables: int, rows: int, width: int, hidden: int, batch: int) -> Any:
    """A weight per row of a table beside layers over what tables have."""
    import numpy as np
    import tensorflow as tf

    wide, deep = [], []
    for table in range(tables):
        ids = np.random.default_rng(table).integers(0, rows, batch).astype(np.int32)
        ids = input_batch(ids, f"ids{table}")
        with tf.name_scope(f"table{table}"):
            wide.append(tf.gather(_weights(f"wide{table}", rows, 1), ids))
            deep.append(tf.gather(_weights(f"deep{table}", rows, width), ids))
    x = tf.concat(deep, axis=1)
    for layer in range(3):
        x = _dense(x, f"hidden{layer}", hidden)
    return _mean([tf.add_n(wide) + _dense(x, "out", 1)])


def _dense_blocks(branches: int, layers: int, filters: int, size: int) -> Any:
    """Convolutions that read what all before them in their branch have made."""
    import tensorflow as tf

    image, ends = _input(4, size, size, 16), []
    for branch in range(branches):
        found = [image]
        for layer in range(layers):
            x = tf.concat(found, axis=3)
            found.append(_convolution(x, f"branch{branch}/conv{layer}", 3, filters))
        ends.append(tf.concat(found[1:], axis=3))
    return _mean(ends)


def _separable_convolutions(towers: int, layers: int, filters: int, size: int) -> Any:
    """One per channel, then one over the channels, in turn."""
    import tensorflow as tf

    ends = []
    for tower in range(towers):
        x = _input(4, size, size, filters, seed=tower)
        for layer in range(layers):
            name = f"tower{tower}/layer{layer}"
            with tf.name_scope(name):
                kernel = _weights(f"{name}/depth", 3, 3, filters, 1) / 3
                x = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME")
            x = _convolution(x, f"{name}/point", 1, filters)
        ends.append(x)
    return _mean(ends)


def _messages(relations: int, layers: int, nodes: int, edges: int, width: int) -> Any:
    """Nodes add up what their neighbours send, by a rule for each relation."""
    import numpy as np
    import tensorflow as tf

    x = _input(nodes, width)
    for layer in range(layers):
        sums = [_dense(x, f"layer{layer}/own", width)]
        for relation in range(relations):
            drawn = np.random.default_rng(relation).integers(0, nodes, (2, edges))
            src, dst = (
                input_batch(ids.astype(np.int32), f"layer{layer}/ids{relation}{end}")
                for end, ids in zip("ab", drawn, strict=True)
            )
            sent = _dense(x, f"layer{layer}/relation{relation}", width)
            sums.append(tf.math.unsorted_segment_sum(tf.gather(sent, src), dst, nodes) / 8)
        x = tf.add_n(sums)
    return _mean([x])


def _pairs(layers: int, width: int, batch: int) -> Any:
    """Two networks that shall tell which of their inputs belong together."""
    import tensorflow as tf

    ends = []
    for side in range(2):
        x = _input(batch, width, seed=side)
        for layer in range(layers):
            x = _dense(x, f"side{side}/layer{layer}", width)
        ends.append(_normal(x))
    logits = tf.matmul(ends[0], ends[1], transpose_b=True) / width**0.5
    labels = tf.range(batch)
    with tf.name_scope("loss"):
        rows, columns = (
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=values)
            for values in (logits, tf.transpose(logits))
        )
        return tf.reduce_mean(rows + columns)


def _unlike_networks(widths: tuple[int, ...], layers: int, batch: int) -> Any:
    """Networks of unlike width on the same input, whose outputs are averaged."""
    import tensorflow as tf

    image, outputs = _input(batch, 256), []
    for network, width in enumerate(widths):
        x = image
        for layer in range(layers):
            x = _dense(x, f"network{network}/layer{layer}", width)
        outputs.append(_dense(x, f"network{network}/out", 64))
    return _mean([tf.add_n(outputs)])


_TOWERS = {
    "batch_size": 256,
    "features": 4,
    "rows": 5_000,
    "width": 64,
    "hidden": 512,
    "pin_tables": False,
}

GRAPHS: dict[str, Callable[[], Any] | tuple[str, dict[str, Any]]] = {
    "chain of small products": partial(_chain, 24, 128, 32),
    "chain of large products": partial(_chain, 6, 512, 256),
    "two small towers": partial(_towers, 2, 4, 128, 32),
    "two towers": partial(_towers, 2, 4, 512, 128),
    "two wide towers": partial(_towers, 2, 3, 1024, 128),
    "four towers": partial(_towers, 4, 3, 512, 128),
    "two unequal towers": partial(_unequal_towers, 512, 256),
    "four experts": partial(_experts, 4, 256, 128),
    "eight small experts": partial(_experts, 8, 64, 32),
    "towers that exchange": partial(_exchange, 4, 512, 128),
    "large elementwise": partial(_elementwise, 2, 8, 8192),
    "many tiny ops": partial(_tiny, 2, 200),
    "many tiny chains": partial(_tiny, 16, 25),
    "two convolutional towers": partial(_convolutions, 2, 3, 32, 32),
    "chain of convolutions": partial(_convolutions, 1, 6, 32, 32),
    "branching convolutions": partial(_inception, 3, 64, 24),
    "two equal encoders": partial(_recurrent, (16, 16), 256, 64),
    "two unequal encoders": partial(_recurrent, (8, 24), 256, 64),
    "encoder and decoder": partial(_encoder_decoder, 12, 256, 64),
    "wide embeddings": partial(_embeddings, 8, 20_000, 64, 256),
    "attention heads": partial(_attention, 8, 256, 256),
    "few huge products": partial(_towers, 2, 1, 2048, 512),
    "reading in two directions": partial(_two_directions, 10, 256, 64),
    "images down and up": partial(_down_and_up, 3, 32, 32),
    "layers of experts": partial(_layers_of_experts, 2, 4, 256, 128),
    "two-tower recommender": ("two_tower", _TOWERS),
    "translation": ("nmt", {"hidden": 256, "steps": 6, "vocabulary": 1000}),
    "language model": ("rnnlm", {"hidden": 256, "steps": 6, "vocabulary": 1000}),
    "shared convolutions": partial(_shared_convolutions, 3, 32, 40),
    "image and text": partial(_image_and_text, 4, 32, 32, 12, 256),
    "three tasks": partial(_tasks, 3, 3, 512, 128),
    "two residual networks": partial(_residuals, 2, 4, 256, 256),
    "small residual networks": partial(_residuals, 4, 3, 64, 64),
    "mixer": partial(_mixer, 4, 64, 128, 16),
    "two attention encoders": partial(_attention_encoders, 2, 32, 128, 8),
    "gated recurrence": partial(_gated, 2, 10, 192, 64),
    "wide and deep": partial(_wide_and_deep, 4, 20_000, 64, 512, 256),
    "dense blocks": partial(_dense_blocks, 2, 5, 16, 24),
    "separable convolutions": partial(_separable_convolutions, 2, 4, 64, 24),
    "messages along edges": partial(_messages, 3, 3, 1024, 4096, 128),
    "similar pairs": partial(_pairs, 4, 512, 256),
    "three unlike networks": partial(_unlike_networks, (256, 384, 512), 4, 256),
}

CHOSEN_LAST = (
    "two attention encoders",
    "gated recurrence",
    "wide and deep",
    "dense blocks",
    "separable convolutions",
    "messages along edges",
    "similar pairs",
    "three unlike networks",
)
"""Chosen after the model that predicts, and all that the guard decides by, was fixed."""

# The last argument of each is the batch size.
BATCHED: dict[str, partial[Any]] = {
    "long chain of products": partial(_chain, 6, 256, 2048),
    "chain of small products": partial(_chain, 24, 128, 32),
    "two wide towers": partial(_towers, 2, 3, 1024, 128),
    "two unequal towers": partial(_unequal_towers, 512, 256),
    "layers of experts": partial(_layers_of_experts, 2, 4, 256, 128),
    "encoder and decoder": partial(_encoder_decoder, 12, 256, 512),
    "reading in two directions": partial(_two_directions, 10, 256, 64),
    "wide embeddings": partial(_embeddings, 8, 20_000, 64, 1024),
}
