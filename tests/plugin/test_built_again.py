"""A model that one process builds several times, under other names each time, is planned once."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

TOWERS = """
import dataclasses
from hplacer_optimizer.plans.matching import map_nodes
from tests.fingerprint_collisions import captured

builds = 0

def towers(**options):
    "Runs equal towers that meet without any order; the device of every op, tower by tower."
    global builds
    builds += 1
    with tf.Graph().as_default() as graph, tf.name_scope(f"build_{builds}"):
        x = v1.placeholder(tf.float32, [8, 8])
        rows = []
        for tower in range(4):
            row = [tf.constant(np.random.RandomState(tower).randn(8, 8), tf.float32)]
            for _ in range(3):
                row.append(tf.tanh(row[-1] @ x))
            rows.append(row)
        step = tf.group(*(row[-1] for row in rows), name="step")
        metadata = v1.RunMetadata()
        with session(graph, min_ops=1, **options) as running:
            running.run([row[-1] for row in rows], {x: np.eye(8)},
                        v1.RunOptions(output_partition_graphs=True), metadata)
    devices = {node.name: node.device for part in metadata.partition_graphs for node in part.node}
    last = plugin.history()[-1]
    store = hp.PlanStore(options.get("cache", CACHE))
    found = {"outcome": last.outcome, "reason": last.reason,
             "file": store.read(last.fingerprint).hex(),
             "towers": sorted([devices[y.op.name][-1] for y in row[1:]] for row in rows)}
    plan = store.get(last.fingerprint)
    if last.outcome == "loaded" and len(plan.node_ranks):
        again = captured(graph.as_graph_def(), [step.name], soft_placement=False)
        wanted = zip(again.node_names, map_nodes(plan, again).tolist(), strict=True)
        found["differ"] = [name for name, device in wanted
                           if devices.get(name, DEVICES[device]) != DEVICES[device]]
    return found
"""


@pytest.mark.parametrize("seed", range(2))
def test_equal_towers_are_planned_once(tmp_path: Path, seed: int) -> None:
    report = run(
        TOWERS + f"report(builds=[towers(seed={seed}) for _ in range(6)], wrong=differences())",
        tmp_path,
    ).report
    first, *others = report["builds"]
    assert first["outcome"] == "planned"
    assert len({*map(tuple, first["towers"])}) > 1, "alike ops are on different devices"
    for build in others:
        assert build["outcome"] == "loaded"
        assert build["towers"] == first["towers"], "each tower is where one of the plan is"
        assert build["file"] == first["file"]
        assert build["differ"] == [], "the command line maps nodes as the pass does"
    assert report["wrong"] == []


def test_a_better_plan_stays_where_it_does_not_fit(tmp_path: Path) -> None:
    """It tells no alike nodes apart."""
    outcome = run(
        TOWERS
        + """
towers(seed=0)
plan = hp.PlanStore(CACHE).get(plugin.history()[-1].fingerprint)
store = hp.PlanStore(CACHE + "old")
store.put(dataclasses.replace(plan, node_ranks=[], structure=0, step_time_ns=plan.step_time_ns - 1))
before = store.read(plan.fingerprint).hex()
report(before=before, builds=[towers(seed=0, cache=CACHE + "old") for _ in range(3)])
""",
        tmp_path,
        log="info",
    )
    builds = outcome.report["builds"]
    assert [build["outcome"] for build in builds] == ["planned", "loaded", "loaded"]
    assert "several nodes are alike" in builds[0]["reason"]
    assert {build["file"] for build in builds} == {outcome.report["before"]}
    assert [line for line in outcome.log if "the stored plan stays" in line] == [
        "hplacer: session graph: the stored plan stays, only this process uses the new one"
    ]


LSTM = """
import keras

def train():
    "One step of a new layer, whose name Keras numbers."
    layer, x = keras.layers.LSTM(4), normal([2, 3, 4], 0)
    layer.build(x.shape)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(layer(x) ** 2)
        for weight, grad in zip(layer.weights, tape.gradient(loss, layer.weights)):
            weight.assign_sub(0.1 * grad)
        return loss

    step()
    return hp.PlanStore(CACHE).read(plugin.history()[-1].fingerprint).hex()

on(min_ops=30)
first, second = train(), train()
plan = hp.PlanStore(CACHE).get(plugin.history()[-1].fingerprint)
pairs = {*zip(plan.node_hashes.tolist(), plan.node_devices.tolist())}
report(same=first == second, outcomes=outcomes(), wrong=differences(),
       alike_apart=len(pairs) - len({value for value, _ in pairs}))
"""


def test_a_keras_layer_is_planned_once(tmp_path: Path) -> None:
    report = run(LSTM, tmp_path).report
    assert report["outcomes"] == ["planned", "loaded"]
    assert report["same"]
    assert report["wrong"] == []
    assert report["alike_apart"] > 0
