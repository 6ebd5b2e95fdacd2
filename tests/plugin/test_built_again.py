"""A model that one process builds several times, under other names each time, is planned once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What becomes of stored plans that tell no alike nodes apart, by how good they are."""
    outcome = run(
        TOWERS
        + """
towers(seed=0)
plan = hp.PlanStore(CACHE).get(plugin.history()[-1].fingerprint)
old = dataclasses.replace(plan, node_ranks=[], structure=0)
cases = {}
for name, changes in {
    "as good": {},
    "worse": {"step_time_ns": 2 * plan.step_time_ns},
    "better": {"step_time_ns": plan.step_time_ns - 1},
    "searched more": {"step_time_ns": 2 * plan.step_time_ns,
                      "budget": {"steps_done": 9, "placements_scored": 9}},
}.items():
    store = hp.PlanStore(CACHE + name)
    store.put(dataclasses.replace(old, **changes))
    cases[name] = {"before": store.read(plan.fingerprint).hex(),
                   "builds": [towers(seed=0, cache=CACHE + name) for _ in range(3)]}
report(cases=cases)
""",
        tmp_path_factory.mktemp("stores"),
        log="info",
    )
    cases: dict[str, Any] = outcome.report["cases"]
    return cases | {"log": outcome.log}


@pytest.mark.parametrize("case", ["as good", "worse", "better", "searched more"])
def test_a_plan_that_does_not_fit_gives_way_to_one_that_is_no_worse(
    stores: dict[str, Any], case: str
) -> None:
    before, builds = stores[case]["before"], stores[case]["builds"]
    assert [build["outcome"] for build in builds] == ["planned", "loaded", "loaded"]
    assert "several nodes are alike" in builds[0]["reason"]
    stays = case in ("better", "searched more")
    assert (builds[0]["file"] == before) == stays
    assert builds[0]["file"] == builds[1]["file"] == builds[2]["file"]


def test_the_log_says_that_a_better_plan_stays(stores: dict[str, Any]) -> None:
    stays = [line for line in stores["log"] if "the stored plan stays" in line]
    assert len(stays) == 2
    assert stays[0] == (
        "hplacer: session graph: the stored plan stays, the new one is for this process"
    )


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


KERAS = """
import hashlib, pathlib
import keras
from keras import layers

def lstm():
    return keras.Sequential([keras.Input([6]), layers.Embedding(20, 4),
        layers.LSTM(4, return_sequences=True), layers.LSTM(4), layers.Dense(1)])

def attention():
    inputs = keras.Input([6])
    x = layers.Embedding(20, 8)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(8, "relu")(x)))
    return keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))

rows = np.random.RandomState(0).randint(0, 20, [8, 6])
sums = rows.sum(1, keepdims=True).astype(np.float32)

def losses_of(build):
    keras.utils.set_random_seed(1)
    model = build()
    model.compile("adam", "mse", jit_compile=False)
    return model.fit(rows, sums, epochs=2, batch_size=8, verbose=0, shuffle=False).history["loss"]

def build_again(build, times):
    expected = losses_of(build)
    on()
    found = []
    for _ in range(times):
        start = len(plugin.history())
        equal = np.allclose(losses_of(build), expected, rtol=1e-4)
        trained = [entry for entry in plugin.history()[start:] if "step_on" in entry.graph]
        path = pathlib.Path(trained[-1].store_path)
        found.append({"equal": equal, "outcomes": [entry.outcome for entry in trained],
            "file": hashlib.sha256(path.read_bytes()).hexdigest()})
    plan = hp.load_plan(path)
    used = np.bincount(plan.node_devices, minlength=2).tolist()
    report(builds=found, used=used, wrong=differences())
"""


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lstm", "attention"])
def test_keras_models_are_planned_once(tmp_path: Path, model: str) -> None:
    report = run(KERAS + f"build_again({model}, 6)", tmp_path, timeout_s=300).report
    first, *others = report["builds"]
    assert first["outcomes"] == ["planned"]
    assert [build["outcomes"] for build in others] == [["loaded"]] * 5
    assert len({build["file"] for build in report["builds"]}) == 1
    assert all(build["equal"] for build in report["builds"])
    assert min(report["used"]) > 100
    assert report["wrong"] == []
