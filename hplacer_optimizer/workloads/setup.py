"""How a workload runs: logical CPU devices, TensorFlow's switches, the optimizer on or off.

Here too is how the executed placement is read back: from the partition graphs, which TensorFlow
cuts after its own placer and optimizers have run, so they show what happened, not what was asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hplacer_optimizer.options import Options

_FOLDING = ("constant_folding", "arithmetic_optimization", "remapping")
_TRANSFERS = frozenset({"_Send", "_Recv", "_HostSend", "_HostRecv"})


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a workload is run with.

    `options` are those of the optimizer, None runs without it. Without `folding`, Grappler's
    constant folding, arithmetic optimization and remapping are off. `devices` is how many CPUs.
    """

    steps: int = 20
    devices: int = 2
    options: Mapping[str, Any] | None = None
    folding: bool = True
    soft_placement: bool = True


class ExecutedNode(NamedTuple):
    """A node of a partition graph; the device is the full name."""

    name: str
    op: str
    device: str


ExecutedGraph = list[ExecutedNode]


class Training(NamedTuple):
    """The loss of every step, and what TensorFlow executed."""

    losses: list[float]
    graphs: list[ExecutedGraph]


# ---- TF1: a session ----


def session_config(setup: Setup) -> Any:
    """The ConfigProto of the setup."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(
        device_count={"CPU": setup.devices}, allow_soft_placement=setup.soft_placement
    )
    if not setup.folding:
        rewriter = config.graph_options.rewrite_options
        for name in _FOLDING:
            setattr(rewriter, name, type(rewriter).OFF)
    if setup.options is None:
        return config
    Options.from_parameters(setup.options).to_entry(
        config.graph_options.rewrite_options.custom_optimizers.add()
    )
    return config


def train_in_session(setup: Setup, graph: Any, init: Any, loss: Any, train_op: Any) -> Training:
    """Runs `init` and then the steps; the partition graphs are those of the last step."""
    import tensorflow as tf

    v1 = tf.compat.v1
    metadata = v1.RunMetadata()
    options = v1.RunOptions(output_partition_graphs=True)
    with v1.Session(graph=graph, config=session_config(setup)) as session:
        session.run(init)
        losses = [
            float(session.run([loss, train_op], options=options, run_metadata=metadata)[0])
            for _ in range(setup.steps)
        ]
    return Training(losses, [_executed(metadata.partition_graphs)])


# ---- TF2: eager and tf.function ----


@contextlib.contextmanager
def eager_session(setup: Setup) -> Iterator[list[ExecutedGraph]]:
    """Sets TensorFlow up; the list holds the graphs executed in the block, largest first, after it.

    Must come before the first op of the process.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(setup.devices)]
    tf.config.set_logical_device_configuration(cpu, logical)
    tf.config.set_soft_device_placement(setup.soft_placement)
    options: dict[str, Any] = {} if setup.folding else dict.fromkeys(_FOLDING, False)
    if setup.options is not None:
        options["hierarchical_placer"] = dict(setup.options)
    tf.config.optimizer.set_experimental_options(options)

    graphs: list[ExecutedGraph] = []
    context.context().ensure_initialized()
    # No public name for it: tf.summary.trace_on() collects the same, but only exports to a file.
    context.context().enable_graph_collection()
    yield graphs
    for executed in context.context().export_run_metadata().function_graphs:
        graphs.append(_executed(executed.partition_graphs))
    context.context().disable_graph_collection()
    graphs.sort(key=len, reverse=True)


def _executed(partitions: Iterable[Any]) -> ExecutedGraph:
    return [
        ExecutedNode(node.name, node.op, node.device)
        for partition in partitions
        for node in partition.node
        if node.op not in _TRANSFERS
    ]
