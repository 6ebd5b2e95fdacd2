"""The optimizer on two emulated GPUs: plans are made, found again, kept back, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from tests.emulation import gpus

TRAIN = """
on(**PAYS | {"planner": "local_search", "budget_s": 3.0})
start = len(plugin.history())
step = towers()
report(losses=losses(step), history=history_since(start), products=products_of(step),
       step_ns=step_ns(step), differences=differences(), **FOUND)
"""
ALONE = """
alone = towers("alone")
with tf.device(CPU):
    on_cpu = towers("on_cpu")
    of_cpu = {"losses": losses(on_cpu), "products": products_of(on_cpu)}
FOUND = {"of_cpu": of_cpu, "of_one": {"losses": losses(alone), "products": products_of(alone),
                                      "step_ns": step_ns(alone)}}
"""


def test_a_miss_plans_for_both_gpus_and_the_next_start_hits(tmp_path: Path) -> None:
    first = gpus.run(ALONE + TRAIN, tmp_path, log="info")
    again = gpus.run("FOUND = {}\n" + TRAIN, tmp_path, log="info")
    planned, loaded = first.report, again.report

    of_one, of_cpu = planned["of_one"], planned["of_cpu"]
    assert of_cpu["products"] == [0, 0]
    assert of_one["products"] == [10, 0]
    assert of_one["losses"] == pytest.approx(of_cpu["losses"], rel=1e-5, abs=0)
    for seen, outcome in ((planned, "planned"), (loaded, "loaded")):
        (entry,) = seen["history"]
        assert (entry["graph"], entry["outcome"]) == ("function train_step", outcome)
        assert entry["placed"] > 0
        assert seen["differences"] == []
        assert sum(seen["products"]) == 10
        assert min(seen["products"]) >= 4  # a tower each; less than twice as fast, as they meet
        assert 0.5 * of_one["step_ns"] < seen["step_ns"] < 0.75 * of_one["step_ns"]
        assert seen["losses"] == pytest.approx(of_cpu["losses"], rel=1e-5, abs=0)
    assert loaded["history"][0]["fingerprint"] == planned["history"][0]["fingerprint"]
    assert [line.split(" for function")[0] for line in first.log if " made " in line] == [
        "hplacer: plan made"
    ]
    assert "hplacer: plan loaded for function train_step" in again.log[-1]


def test_a_plan_for_other_gpus_is_made_anew(tmp_path: Path) -> None:
    """Names and types of devices are the same, and so is the fingerprint."""
    code = """
on(**PAYS)
step = towers()
report(losses=losses(step), history=history_since(0), products=products_of(step))
"""
    seen = [gpus.run(code, tmp_path, gpu_kind=kind, log="info") for kind in ("a100", "a100", "k40")]
    entries = [outcome.report["history"][0] for outcome in seen]
    assert [entry["outcome"] for entry in entries] == ["planned", "loaded", "planned"]
    assert len({entry["fingerprint"] for entry in entries}) == 1
    told = "the stored plan of function train_step is not used: it was made for 2 x a100, and here "
    assert [line for outcome in seen for line in outcome.log if "not used" in line] == [
        f"hplacer: {told}are 2 x k40"
    ]
    assert all(0 not in outcome.report["products"] for outcome in seen)


JUDGED = """
import dataclasses, shutil
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.verdict import Verdict

def trained(**options):
    "What became of the step, and how much ran on each GPU."
    on(**PAYS | options)
    start = len(plugin.history())
    step = towers()
    with Recorder() as log:
        losses(step, 1)
        lines = log.lines(1)
    (entry,) = history_since(start)
    return {"products": products_of(step), "log": lines[-1]} | entry

def judged(name, speedup, emulated):
    "The same with a store in which the plan has this verdict."
    cache = CACHE + "_" + name
    shutil.copytree(CACHE, cache)
    store = PlanStore(cache)
    (entry,) = store.list()
    verdict = Verdict(
        speedup=speedup, low=speedup - 0.01, high=speedup + 0.01, plan_ns=1000,
        baseline_ns=round(1000 * speedup), turns=5, by="a test", measured="2030-01-01T00:00:00Z",
        host="elsewhere", models=[], emulated=emulated,
    )
    dataclasses.replace(entry.plan, verdict=verdict).save(store.path(entry.plan.fingerprint))
    return trained(cache=cache)

report(
    too_little=trained(min_gain=1.5),
    enough=trained(),
    default=trained(planner="random", min_gain=None, cache=CACHE + "_random"),
    slower=judged("slower", 0.8, "slow-gpus"),
    of_others=judged("of_others", 0.8, "8xa100"),
    of_real_ones=judged("of_real_ones", 0.8, None),
)
"""


def test_a_plan_takes_effect_if_it_promises_enough_and_no_verdict_forbids_it(
    tmp_path: Path,
) -> None:
    seen = gpus.run(JUDGED, tmp_path, log="info").report
    for name in ("too_little", "default", "slower"):
        assert (seen[name]["outcome"], seen[name]["placed"]) == ("kept", 0), name
        assert seen[name]["products"][1] == 0, name
        assert "function train_step is left alone: " in seen[name]["log"], name
    for name in ("enough", "of_others", "of_real_ones"):
        assert seen[name]["outcome"] == "loaded", name
        assert min(seen[name]["products"]) > 0, name
    assert "is less than option min_gain asks for" in seen["too_little"]["reason"]
    assert "TensorFlow's" in seen["default"]["reason"]
    slower = seen["slower"]["reason"]
    assert slower.startswith("it was measured, 0.80 times as fast as TensorFlow's placement")
    assert "emulated slow-gpus), so that the plan is retired" in slower


SESSIONS = """
def built():
    "A graph, half of whose variables are of the old sort."
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [64, WIDTH])
        loss = towers_loss(x, [
            v1.get_variable(f"w{i}", initializer=value, use_resource=i % 2 == 0)
            for i, value in enumerate(weights())
        ])
        step = v1.train.get_or_create_global_step()
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step, name="train")
        return graph, x, [loss, train], v1.global_variables_initializer()

def trained(config=None, monitored=False):
    "Losses, and the devices of what multiplies and of variables."
    graph, x, fetches, init = built()
    told, options = v1.RunMetadata(), v1.RunOptions(output_partition_graphs=True)
    with graph.as_default(), contextlib.ExitStack() as stack:
        if monitored:
            session = stack.enter_context(v1.train.MonitoredTrainingSession(config=config))
        else:
            session = stack.enter_context(v1.Session(config=config))
            session.run(init)
        found = [session.run(fetches, {x: batch()}, options, told)[0] for _ in range(3)]
    devices = {node.name: node.device for part in told.partition_graphs for node in part.node
               if node.op in ("MatMul", "VariableV2", "VarHandleOp")}
    return {"losses": found, "devices": devices}

alone = trained()
of_cpu = trained(v1.ConfigProto(device_count={"GPU": 0}))
start = len(plugin.history())
configs = [hp.session_config(targets=["train"], **PAYS) for _ in range(2)]
planned = trained(configs[0])
monitored = trained(configs[1], monitored=True)
report(alone=alone, of_cpu=of_cpu, planned=planned, monitored=monitored,
       history=history_since(start), differences=differences())
"""


def test_sessions_and_their_variables_are_spread(tmp_path: Path) -> None:
    seen = gpus.run(SESSIONS, tmp_path).report
    assert used(seen["of_cpu"]) == {"CPU:0"}
    assert used(seen["alone"]) == {"GPU:0"}
    assert len(seen["history"]) == 2
    assert {entry["outcome"] for entry in seen["history"]} == {"planned"}
    assert seen["differences"] == []
    for name in ("alone", "planned", "monitored"):
        assert seen[name]["losses"] == pytest.approx(seen["of_cpu"]["losses"], rel=1e-5, abs=0)
    for name in ("planned", "monitored"):
        devices = seen[name]["devices"]
        assert used(seen[name]) == {"GPU:0", "GPU:1"}
        for first, second in (("w0", "w1"), ("w2", "w3")):  # each tower stays together
            slots = {devices[f"{variable}/Momentum"] for variable in (first, second)}
            assert {devices[first], devices[second]} == slots
            assert len(slots) == 1
        assert devices["w0"] != devices["w2"]


def used(run: dict[str, Any]) -> set[str]:
    return {device.rpartition("/device:")[2] for device in run["devices"].values()}


KERAS = """
import keras

def model_fn():
    keras.utils.set_random_seed(1)
    x = keras.Input([WIDTH])
    ends = []
    for _ in range(2):
        hidden = x
        for _ in range(LAYERS):
            hidden = keras.layers.Dense(WIDTH, "relu")(hidden)
        ends.append(hidden)
    model = keras.Model(x, keras.layers.Dense(1)(keras.layers.add(ends)))
    model.compile("adam", "mse")
    return model

def data():
    x = np.tile(batch(), (3, 1))
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1] * 2)).batch(64, drop_remainder=True)

class Losses(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs):
        self.losses.append(logs["loss"])

def fit(model):
    recorded = Losses()
    model.fit(data(), verbose=0, callbacks=[recorded])
    return recorded.losses

def devices(model):
    return {v.path: v.value.device for v in model.variables + model.optimizer.variables}

def fitted(model):
    return {"losses": fit(model), "products": products_of(lambda: fit(model)),
            "devices": devices(model), "jit": model.jit_compile}

keras.backend.clear_session()
alone = fitted(model_fn())
with tf.device(CPU):
    of_cpu = fit(model_fn())
keras.backend.clear_session()
on(**PAYS | {"planner": "heft"})  # which parts the towers
plan = hp.plan_model(model_fn, specs=data())
start = len(plugin.history())
with hp.variable_scope(plan):
    model = model_fn()
spread = fitted(model)
report(alone=alone, of_cpu=of_cpu, spread=spread, planned=plan.devices,
       fingerprint=plan.step.fingerprint, differences=differences(),
       history=[entry for entry in history_since(start) if "multi_step" in entry["graph"]])
"""


def test_keras_fits_a_model_whose_variables_are_on_both_gpus(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    seen = gpus.run(KERAS, tmp_path).report
    alone, spread = seen["alone"], seen["spread"]
    assert alone["jit"] is spread["jit"] is False  # XLA knows no emulated GPU
    assert alone["products"] == [39, 0]  # three steps with 5 of each tower, and 3 of the last layer
    assert sum(spread["products"]) == 39
    assert min(spread["products"]) >= 12  # most of a tower
    assert alone["losses"] == pytest.approx(seen["of_cpu"], rel=1e-5, abs=0)
    assert spread["losses"] == pytest.approx(seen["of_cpu"], rel=1e-5, abs=0)
    assert {device[-5:] for device in seen["planned"].values()} == {"GPU:0", "GPU:1"}
    assert spread["devices"].keys() == alone["devices"].keys()
    assert spread["devices"] == {path: seen["planned"][path] for path in spread["devices"]}
    (entry,) = seen["history"]
    assert (entry["outcome"], entry["fingerprint"]) == ("loaded", seen["fingerprint"])
    assert seen["differences"] == []
