"""Measures graphs as `load_graph` reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture.loading import LoadedGraph, load_graph
from hplacer_optimizer.costs.table import CostTable
from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.machines import Machine
from hplacer_optimizer.measuring.measurement import Measurement
from hplacer_optimizer.measuring.measurer import Effort, Measurer
from hplacer_optimizer.measuring.target import Devices
from hplacer_optimizer.problem.problem_file import check_placement
from hplacer_optimizer.support.keywords import checks_keywords


@checks_keywords
def measure(
    graph: object,
    placement: Sequence[int] | NDArray[np.integer[Any]],
    *,
    devices: Devices = None,
    feeds: Mapping[str, ArrayLike] | None = None,
    steps: int = Effort.steps,
    warmup: int = Effort.warmup,
    time_limit_s: float = Effort.time_limit_s,
    machine: Machine | str | os.PathLike[str] | None = None,
    targets: Sequence[object] | None = None,
    signature: str | None = None,
    batch_size: int | None = None,
    loop_trip_count: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    cost_table: CostTable | str | os.PathLike[str] | None = None,
    allow_soft_placement: bool | None = None,
) -> Measurement:
    """Runs the training step of a graph under a placement, in a process of its own.

    Args:
        graph: what `load_problem` takes but a problem file, or what `load_graph(...,
            keep_graph=True)` returned.
        placement: one device index per op of the graph's problem, [n].
        devices: of a TensorFlow cluster: the address of one of its servers, of all, or of those of
            each job; None: this machine's.
        feeds: values by the name of a placeholder or argument; others are random.
        steps: that are timed.
        warmup: steps before these.
        time_limit_s: for all that the placement takes once the graph is loaded.
        machine: that `devices` are; this and all that follows as for `load_problem`.
        targets: op names (or ops) of the training step in a session's graph.
        signature: of a SavedModel or a MetaGraphDef, or a SavedModel's function.
        batch_size: for unknown batch dimensions.
        loop_trip_count: for while loops without a constant bound.
        shapes: of fed tensors, by the name of their placeholder or argument.
        cost_table: measured costs.
        allow_soft_placement: whether TensorFlow may replace devices that the machine lacks.

    Returns:
        The measurement, whose `error` says why there are no times: a crash, memory, the time limit,
        a placement that TensorFlow refuses.

    Raises:
        GraphError: the graph cannot be captured, or cannot run outside of its program.
        MachineError: a device of the problem is not there.
        OptionError: an option is wrong, or there is no such keyword.
        ProblemError: the placement is none of this problem.

    Example:
        >>> import hplacer_optimizer as hp
        >>> import tensorflow as tf
        >>> weights = tf.Variable(tf.ones([64, 64]))
        >>> step = tf.function(lambda: weights.assign(weights @ weights)).get_concrete_function()
        >>> problem = hp.load_problem(step)  # on this machine
        >>> measured = hp.measure(step, [0] * problem.num_ops, steps=5)
        >>> len(measured.times_s), measured.error
        (5, None)
    """
    effort = Effort(steps=steps, warmup=warmup, time_limit_s=time_limit_s)
    if isinstance(graph, Problem):
        raise GraphError("a problem has no ops that can run: give the graph that it was made of")
    options: dict[str, Any] = {
        "machine": machine,
        "targets": targets,
        "signature": signature,
        "batch_size": batch_size,
        "loop_trip_count": loop_trip_count,
        "shapes": shapes,
        "cost_table": cost_table,
        "allow_soft_placement": allow_soft_placement,
    }
    given = [name for name, value in options.items() if value is not None]
    if not isinstance(graph, LoadedGraph):
        loaded = load_graph(graph, keep_graph=True, **options)
    elif given:
        raise GraphError(f"the graph is loaded already; leave out {', '.join(given)}")
    else:
        loaded = graph
    if loaded.step is None:
        raise GraphError("the graph was loaded without keep_graph=True")
    checked = check_placement(loaded.problem, placement)
    with Measurer(
        loaded.step, loaded.problem, devices=devices, feeds=feeds, effort=effort
    ) as measurer:
        return measurer.measure(checked, memory=True)
