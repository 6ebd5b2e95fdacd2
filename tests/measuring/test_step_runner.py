"""Captured steps run in sessions, with every op where the placement has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.capture.loading import LoadedGraph, load_graph
from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.machines import Machine
from hplacer_optimizer.measuring.groups_apart import find_groups
from hplacer_optimizer.measuring.step_runner import StepRunner
from hplacer_optimizer.measuring.target import Target, session_target
from hplacer_optimizer.planners.simple import random
from tests.processes import ROOT

tf = pytest.importorskip("tensorflow")

v1 = tf.compat.v1
CPUS = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)]
BATCH = 4


def two_cpus() -> Machine:
    return hp.load_machine(ROOT / "testbed" / "two_cpus.yaml")


def run_everywhere(loaded: LoadedGraph) -> tuple[StepRunner, dict[str, str]]:
    """Runs the step under two placements; returns the runner and each op's device in the last."""
    assert loaded.step is not None
    runner = StepRunner(loaded.step, Target(session="", device_names=CPUS))
    for seed in range(2):
        placement = random(loaded.problem, seed=seed).placement
        seconds = runner.run(placement, steps=3, warmup=1)
        assert len(seconds) == 3
        assert all(0 < value < 10 for value in seconds)
    (metadata,) = runner.trace(placement)
    ran = {
        stats.node_name: device.device
        for device in metadata.step_stats.dev_stats
        for stats in device.node_stats
    }
    for name, op in zip(loaded.step.node_names, loaded.step.node_op, strict=True):
        assert ran.get(name, CPUS[placement[op]]) == CPUS[placement[op]]
    return runner, ran


def fed_values(runner: StepRunner) -> dict[str, Any]:
    return {fill.read.name: fill.value for fill in runner.fills}


# ---- what is run ----


def test_a_session_graph() -> None:
    with tf.Graph().as_default() as graph:
        ids = v1.placeholder(tf.int32, [None, 5], name="ids")
        labels = v1.placeholder(tf.int64, [None], name="labels")
        table = v1.get_variable("table", [30, 8], use_resource=True)
        w = v1.get_variable("w", [8, 4], use_resource=False)
        # TensorFlow gives no order to initialisers that read each other.
        b = v1.get_variable("b", initializer=tf.convert_to_tensor(w) + 1, use_resource=True)
        hidden = tf.reduce_mean(tf.nn.embedding_lookup(table, ids), 1)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, hidden @ (w + b))
        v1.train.AdamOptimizer().minimize(tf.reduce_mean(loss), name="train")
        v1.train.Saver()
    loaded = load_graph(graph, machine=two_cpus(), batch_size=BATCH, keep_graph=True)
    runner, ran = run_everywhere(loaded)
    assert {"Adam/update_w/ApplyAdam", "Adam/update_b/ResourceApplyAdam"} <= {
        name.replace("train", "Adam") for name in ran
    }
    values = fed_values(runner)
    assert values["ids"].shape == (BATCH, 5)
    assert values["labels"].shape == (BATCH,)
    assert (
        4 < values["ids"].max() < 30
    )  # of 20 indices; a bound of 30 leaves little chance for less
    assert values["labels"].max() < 4


def test_a_function_with_control_flow() -> None:
    w = tf.Variable(tf.ones([8, 4]))
    count = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            h, _ = tf.while_loop(lambda h, i: i < 3, lambda h, i: (tf.tanh(h), i + 1), [x @ w, 0])
            h = tf.cond(tf.reduce_sum(h) > 0, lambda: h * 2, lambda: h - 1)
            loss = tf.reduce_sum(h)
        w.assign_sub(tape.gradient(loss, w))
        count.assign_add(1)
        return loss

    function = train.get_concrete_function(tf.TensorSpec([None, 8], name="x"))
    loaded = load_graph(function, machine=two_cpus(), batch_size=BATCH, keep_graph=True)
    runner, ran = run_everywhere(loaded)
    assert {"AssignSubVariableOp", "AssignAddVariableOp"} <= ran.keys()
    assert fed_values(runner)["x"].shape == (BATCH, 8)


# ---- what is fed, and what cannot be ----


def runner_of(
    graph: Any,
    shapes: dict[str, list[int]],
    device_names: Sequence[str] = CPUS,
    **options: Any,
) -> StepRunner:
    """Of the op `train` and all that it needs."""
    names = [op.name for op in graph.get_operations()]
    step = RunnableStep(
        graph_def=graph.as_graph_def().SerializeToString(),
        targets=["train"],
        fed_shapes={name: [shape] for name, shape in shapes.items()},
        arguments=[],
        node_names=names,
        node_op=np.arange(len(names), dtype=np.int32),
    )
    return StepRunner(step, Target(session="", device_names=device_names), **options)


def test_integers_are_in_the_range_of_their_consumers() -> None:
    expected = {"columns": 3, "one_hot": 5, "segments": 1, "ordinary": 2, "moved": 7}
    with tf.Graph().as_default() as graph:
        fed = {name: v1.placeholder(tf.int32, [64], name=name) for name in expected}
        moved = tf.transpose(tf.reshape(fed["moved"], [8, 8]))[1:]
        results = [
            tf.gather(tf.ones([7, 3]), fed["columns"], axis=1),
            tf.one_hot(fed["one_hot"], 5),
            tf.math.segment_sum(tf.ones([64]), fed["segments"]),
            fed["ordinary"] + 1,
            tf.gather_nd(tf.ones([9, 7]), tf.stack([moved, tf.concat([moved], 0)], -1)),
        ]
        tf.group(*results, name="train")
    runner = runner_of(graph, {name: [64] for name in expected})
    for name, value in fed_values(runner).items():
        assert set(value.tolist()) == set(range(expected[name])), name
    runner.run(np.zeros(len(graph.get_operations()), np.int32), steps=1, warmup=0)


def test_values_of_the_caller_are_fed() -> None:
    with tf.Graph().as_default() as graph:
        text = v1.placeholder(tf.string, [2], name="text")
        default = v1.placeholder_with_default([1.0], [1], name="default")
        wanted = tf.equal(tf.strings.to_number(text) * default, [6.0, 8.0])
        tf.group(v1.Assert(tf.reduce_all(wanted), ["another value"]), name="train")
    shapes = {"text": [2], "default": [1]}
    placement = np.arange(len(graph.get_operations()), dtype=np.int32) % 2
    feeds = {"text:0": ["3", "4"], "default": [2.0]}
    runner_of(graph, shapes, feeds=feeds).run(placement, steps=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="another value"):
        runner_of(graph, shapes, feeds={"text": ["3", "4"]}).run(placement, steps=1)
    with pytest.raises(hp.GraphError, match=r"'text' is fed with string values.*feeds="):
        runner_of(graph, shapes)
    with pytest.raises(hp.OptionError, match="'txt' is not fed; the step is fed with text"):
        runner_of(graph, shapes, feeds={"txt": [], "text": ["3", "4"]})
    with pytest.raises(hp.GraphError, match=r"'text' has shape \(1,\).*\(2,\)"):
        runner_of(graph, shapes, feeds={"text": ["3"]})


def test_what_only_the_program_has_is_an_error() -> None:
    with tf.Graph().as_default() as graph:
        batch = v1.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next()
        tf.identity(batch, name="train")
    with pytest.raises(hp.GraphError, match=r"'IteratorGetNext' .*input pipeline"):
        runner_of(graph, {})


# ---- where it runs ----


def test_a_device_that_is_not_there() -> None:
    with tf.Graph().as_default() as graph:
        tf.constant(1, name="train")
    gpu = "/job:localhost/replica:0/task:0/device:GPU:7"
    with pytest.raises(hp.MachineError, match=r"this machine has no .*GPU:7'; it has .*CPU"):
        runner_of(graph, {}, device_names=[gpu])


def test_clusters_are_addresses() -> None:
    assert session_target(None) == ""
    assert session_target("a:1") == session_target("grpc://a:1") == "grpc://a:1"
    assert session_target({"ps": ["a:1"], "worker": ["b:2"]}) == "grpc://a:1"
    assert session_target(["b:2", "c:3"]) == "grpc://b:2"
    for wrong in ([], "a", ["a:1", "b"], [1]):
        with pytest.raises(hp.OptionError, match="devices: "):
            session_target(wrong)


def test_a_group_of_two_is_set_apart_from_its_neighbours() -> None:
    """As tests/plugin/test_groups_apart.py shows it for plans."""

    def device_of(devices: str, *, group: int = 0, readers: int = 2) -> str:
        """That of the group; `devices` has a digit for each neighbour."""
        with tf.Graph().as_default() as graph:
            sources = [v1.random_normal([2], name=f"source{i}") for i in range(2)]
            with tf.control_dependencies(sources):
                found = tf.no_op("group")
            with tf.control_dependencies([found]):
                read = [tf.identity(sources[i % 2]) for i in range(readers)]
        neighbours = [*(source.op for source in sources), *(value.op for value in read)]
        for op, digit in zip((found, *neighbours), (group, *devices), strict=True):
            op._set_device(f"{task}{digit}")
        for each in find_groups(graph.get_operations()):
            each.set_apart([f"{task}{i}" for i in range(4)])
        return str(found.device.removeprefix(task))

    task = "/job:localhost/replica:0/task:0/device:CPU:"
    assert device_of("0101") == "2"
    assert device_of("0212") == "3"
    assert device_of("0123") == "0"  # one is everywhere
    assert device_of("1111", group=1) == "1"  # all are on one device
    assert device_of("01010", readers=3) == "0"  # no group of two
