"""What the log says by default: two lines at most for a training graph, none for others."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.processes import has_ended, run, wait_for

LATE_VARIABLES = """
class Model(tf.Module):
    def __init__(self):
        self.weights = None

    @tf.function
    def train(self, x):
        if self.weights is None:
            self.weights = [tf.Variable(normal([8, 8], seed)) for seed in range(6)]
        with tf.GradientTape() as tape:
            for w in self.weights:
                x = tf.tanh(x @ w)
            loss = tf.reduce_mean(x**2)
        for w, d in zip(self.weights, tape.gradient(loss, self.weights)):
            w.assign_sub(0.1 * d)
        return loss

    @tf.function
    def predict(self, x):
        for w in self.weights:
            x = tf.tanh(x @ w) + tf.sin(x)
        return x

on(min_ops=5, planner="local_search", budget_s=0.2)
model = Model()
for rows in (3, 4):
    model.train(normal([rows, 8], 1))
    model.predict(normal([rows, 8], 1))
report(history=[[entry.graph, entry.outcome, entry.placed] for entry in plugin.history()])
"""


def test_two_lines_for_a_training_graph_and_none_for_others(tmp_path: Path) -> None:
    for made in ("made", "loaded"):
        outcome = run(LATE_VARIABLES, tmp_path, log="info")
        plans = ["hplacer: local_search plans function train for at most 0.2 s"]
        expected = plans if made == "made" else []
        lines = [line.partition(" (")[0] for line in outcome.log]
        assert lines == [*expected, f"hplacer: plan {made} for function train"] * 2
        graphs = [graph for graph, _, placed in outcome.report["history"] if placed]
        assert graphs.count("function initialize_variables") == 1
        assert graphs.count("function predict") == 2


def test_debug_tells_everything_and_the_same_assumption_once(tmp_path: Path) -> None:
    log = run(LATE_VARIABLES, tmp_path, log="debug").log
    assert any(re.search("no stored plan for function predict: graph=", line) for line in log)
    assert any("planner of function train: " in line for line in log)
    assumed = [line for line in log if line.startswith("hplacer: assumed: ")]
    assert assumed
    assert len(assumed) == len(set(assumed))


ONE_DEVICE = """
import json, os, tensorflow as tf, hplacer_optimizer as hp
tf.config.optimizer.set_experimental_options(
    {"hierarchical_placer": {"cache": os.environ["TEST_CACHE"]}})

@tf.function
def step(x):
    for _ in range(50):
        x = tf.tanh(x)
    return x

step(tf.constant(1.0)), step(tf.constant([1.0]))
history = [[entry.graph, entry.outcome, entry.reason] for entry in hp.history()]
print("REPORT " + json.dumps({"history": history}))
"""


def test_one_device_is_said_once_and_in_the_history(tmp_path: Path) -> None:
    outcome = run(ONE_DEVICE, tmp_path, prelude="", log="info")
    assert outcome.log == ["hplacer: one device: nothing to place"]
    entry = ["function step", "skipped", "one device: nothing to place"]
    assert outcome.report["history"] == [entry] * 2


def test_clusters_of_xla_are_left_alone_which_is_said_once(tmp_path: Path) -> None:
    code = """
tf.config.optimizer.set_jit("autoclustering")
on()
losses(trainer()), losses(trainer("other"))
report(history=[[entry.graph, entry.outcome] for entry in hp.history()])
"""
    outcome = run(code, tmp_path, log="info")
    reason = "XLA compiles clusters of its ops (auto-clustering), which a plan would cut"
    assert outcome.log == [f"hplacer: function train_step is left alone: {reason}"]
    assert outcome.report["history"] == [
        ["function train_step", "skipped"],
        ["function other", "skipped"],
    ]


def test_a_target_in_a_scope_is_suggested(tmp_path: Path) -> None:
    code = """
def failure(target):
    with tf.Graph().as_default():
        x = v1.get_variable("x", initializer=tf.ones([4, 4]))
        loss = tf.reduce_sum(tf.tanh(tf.matmul(x, x)))
        for scope in ("a", "b"):
            with v1.name_scope(scope):
                v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train_op")
        with session(targets=[target]) as running:
            running.run(v1.global_variables_initializer())
    return plugin.history()[-1].reason
report(scoped=failure("train_op"), wrong_scope=failure("c/train_op:0"), none=failure("trane_op"))
"""
    found = run(code, tmp_path).report
    hint = "; did you mean 'a/train_op' or 'b/train_op'?"
    end = "; option 'targets' takes op names"
    assert found["scoped"] == f"target 'train_op' is not in the graph{hint}{end}"
    assert found["wrong_scope"] == f"target 'c/train_op:0' is not in the graph{hint}{end}"
    assert found["none"] == f"target 'trane_op' is not in the graph{end}"


def test_the_log_says_how_to_stop_a_search_in_the_background(tmp_path: Path) -> None:
    code = """
on(on_miss="background", planner="own:climb", budget_s=600)
losses(trainer())
"""
    outcome = run(code, tmp_path, log="info")
    searches, kept = outcome.log
    assert kept == (
        "hplacer: function train_step is left alone: a plan is searched for in the background, for "
        "the next start"
    )
    found = re.search(r"log (\S+); `kill (\d+)` ends it and keeps its best plan$", searches)
    assert found
    log, number = Path(found[1]), int(found[2])
    os.kill(number, signal.SIGTERM)  # perhaps before it has imported anything
    wait_for(lambda: has_ended(number))
    assert re.search(r"stopped early, \w+ \(own:climb\): ", log.read_text())
    assert os.listdir(log.parent) == [log.name]  # no next start takes it up
