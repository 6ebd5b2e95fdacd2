"""Variables on planned devices, with the real TensorFlow and Keras on two CPU devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from hplacer_optimizer.plugin.variables.names import KeyMaker
from hplacer_optimizer.scripts import exchange
from tests import processes

pytest.importorskip("tensorflow")

CPU_0 = "/job:localhost/replica:0/task:0/device:CPU:0"

COMMON = """
# Folding works within a device only, so with it bits may move when ops do.
EXACT = {"constant_folding": False, "arithmetic_optimization": False, "remapping": False}
set_options(EXACT)
warnings = lambda recorder: [line.removeprefix("hplacer: ") for line in recorder.text.splitlines()
                             if line.startswith("hplacer: ")]

def raised(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        return [type(error).__name__, str(error)]

def same(before, variables):
    return all(np.array_equal(value, variable.numpy())
               for value, variable in zip(before, variables, strict=True))

def numpy(variables):
    return [variable.numpy() for variable in variables]
"""

KERAS = (
    COMMON
    + """
import random
import keras

rng = np.random.default_rng(0)
x = rng.normal(size=(80, 8)).astype("float32")
y = x.sum(axis=1, keepdims=True)

def data():
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(8)

def model_fn():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, activation="relu"),
                              keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
    return model

class Losses(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs):
        self.losses.append(logs["loss"])

def fit(model, epochs):
    recorded = Losses()
    model.fit(data(), epochs=epochs, verbose=0, callbacks=[recorded])
    return recorded.losses

def all_variables(model):
    return model.variables + model.optimizer.variables + model.metrics_variables

def paths_elsewhere(model):
    return [v.path for v in all_variables(model) if v.value.device != plan.devices[v.path]]

# The plan.
random.seed(7)
drawn = random.getstate(), np.random.get_state()[1].tolist()
on(seed=4)
plan = hp.plan_model(model_fn, specs=data())
draw_changed = drawn != (random.getstate(), np.random.get_state()[1].tolist())
planned = {v.key: v for v in plan.variables}
beside = [[v.device, planned[v.beside].device] for v in plan.variables if v.beside]

# Creation in the scope, training outside of it.
start = len(plugin.history())
keras.utils.set_random_seed(1)
with Recorder() as creation, hp.variable_scope(plan):
    model = model_fn()
losses = fit(model, 2)
outcome = history_since(start)
elsewhere = paths_elsewhere(model)

# Saved, and loaded where all variables are on one device.
checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
saved_checkpoint = checkpoint.save("spread/x")
model.save("spread.keras")
model.save_weights("spread.weights.h5")
trained = numpy(model.variables + model.optimizer.variables)
set_options({"hierarchical_placer": False})
loaded = keras.models.load_model("spread.keras")
loaded_devices = sorted({v.value.device for v in all_variables(loaded)})
loaded_same = same(trained, loaded.variables + loaded.optimizer.variables)
loaded_losses = fit(loaded, 1)

# The unplanned run, with the names of the planned one.
keras.backend.clear_session()
keras.utils.set_random_seed(1)
other = model_fn()
other_losses = fit(other, 2)
other_devices = sorted({v.value.device for v in all_variables(other)})
restored_elsewhere = model_fn()
tf.train.Checkpoint(model=restored_elsewhere, optimizer=restored_elsewhere.optimizer).restore(
    saved_checkpoint).assert_existing_objects_matched()

# The unplanned model moves.
early = tf.train.Checkpoint(model=other, optimizer=other.optimizer)
early_path = early.save("early/x")
predicted = other.predict(x, verbose=0)
on(seed=4)
with Recorder() as migration:
    hp.migrate(other, None, plan)
start = len(plugin.history())
moved_same = same(trained, other.variables + other.optimizer.variables)
moved_elsewhere = paths_elsewhere(other)
prediction_same = np.array_equal(predicted, other.predict(x, verbose=0))
more_losses = fit(other, 1)
migrated_outcome = [entry for entry in history_since(start) if "multi_step" in entry["graph"]]
early.save("late/x")
other.load_weights("spread.weights.h5")
weights_same = same(trained[: len(other.variables)], other.variables)
early.restore(early_path).assert_consumed()
restored_same = same(trained, other.variables + other.optimizer.variables)
still_elsewhere = paths_elsewhere(other)

report(
    used=sorted(set(plan.devices.values())), beside=beside, draw_changed=draw_changed,
    fingerprint=plan.step.fingerprint, warned=warnings(creation),
    losses=losses, outcome=outcome, elsewhere=elsewhere, differences=differences(),
    loaded_devices=loaded_devices, loaded_same=loaded_same, loaded_losses=loaded_losses,
    other_losses=other_losses, other_devices=other_devices,
    restored_same_elsewhere=same(trained[: len(model.variables)], restored_elsewhere.variables),
    migration_warned=warnings(migration), moved_same=moved_same, moved_elsewhere=moved_elsewhere,
    prediction_same=prediction_same, more_losses=more_losses, migrated_outcome=migrated_outcome,
    weights_same=weights_same, restored_same=restored_same, still_elsewhere=still_elsewhere,
    uncompiled=raised(hp.plan_model, lambda: keras.Sequential([keras.Input((8,))]), specs=data()),
)
"""
)


def test_a_keras_model_is_spread_saved_loaded_and_moved(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    seen = processes.run(KERAS, tmp_path).report
    # Created where it was planned, slots beside their variables.
    assert len(seen["used"]) == 2
    assert seen["elsewhere"] == []
    assert len(seen["beside"]) == 12  # Adam's two of each of six
    assert all(slot == variable for slot, variable in seen["beside"])
    assert seen["warned"] == []
    assert seen["draw_changed"] is False
    # `fit` finds the plan, and the losses are those without.
    (entry,) = seen["outcome"]
    assert (entry["outcome"], entry["fingerprint"]) == ("loaded", seen["fingerprint"])
    assert seen["differences"] == []
    assert seen["other_devices"] == [CPU_0]
    assert len(seen["losses"]) == 20
    assert seen["losses"] == seen["other_losses"]
    # Saved, it loads on one device and trains on.
    assert seen["loaded_devices"] == [CPU_0]
    assert seen["loaded_same"]
    assert seen["restored_same_elsewhere"]
    assert seen["loaded_losses"] == seen["more_losses"]
    # The model that was trained on one device moves; its traced functions go on.
    assert seen["migration_warned"] == []
    assert seen["moved_same"]
    assert seen["moved_elsewhere"] == []
    assert seen["prediction_same"]
    (entry,) = seen["migrated_outcome"]
    assert (entry["outcome"], entry["fingerprint"]) == ("loaded", seen["fingerprint"])
    # Files of before and of after the move.
    assert seen["weights_same"]
    assert seen["restored_same"]
    assert seen["still_elsewhere"] == []
    name, message = seen["uncompiled"]
    assert name == "GraphError"
    assert "compile() called; it returned an object of type Sequential" in message


# ---- tf.Module, custom loops ----

LIMIT_GIB = 32  # of address space; TensorFlow itself takes a good part
MODULE = (
    COMMON
    + f"""
import dataclasses, resource
from hplacer_optimizer import machines
from types import SimpleNamespace

resource.setrlimit(resource.RLIMIT_AS, ({LIMIT_GIB} << 30, {LIMIT_GIB} << 30))
"""
    + """
class Towers(tf.Module):
    "Embedding tables; momentum by hand for the head; a bias that is pinned."

    def __init__(self, rows, width):
        normal = tf.random.stateless_normal
        self.tables = [tf.Variable(normal([rows, width], (seed, 0)), name="table")
                       for seed in range(4)]
        self.head = tf.Variable(normal([width, 1], (9, 0)), name="head")
        self.momentum = tf.Variable(tf.zeros_like(self.head), trainable=False, name="momentum")
        with tf.device("CPU:0"):
            self.bias = tf.Variable(0.0, name="bias")

def step_fn(built, rows, wanted):
    model, plain = built
    with tf.GradientTape() as tape:
        features = tf.add_n([tf.tanh(tf.gather(table, rows)) for table in model.tables])
        loss = tf.reduce_mean((features @ model.head * plain["scale"] + model.bias - wanted) ** 2)
    sources = [*model.tables, model.head, plain["scale"], model.bias]
    *tables, head, scale, bias = tape.gradient(loss, sources)
    for table, slices in zip(model.tables, tables):
        table.scatter_sub(tf.IndexedSlices(0.1 * slices.values, slices.indices))
    model.momentum.assign(0.9 * model.momentum + head)
    model.head.assign_sub(0.1 * model.momentum)
    plain["scale"].assign_sub(0.01 * scale)
    model.bias.assign_sub(0.01 * bias)
    return loss

def builder(rows, width):
    return lambda: (Towers(rows, width), {"scale": tf.Variable(np.float32(1.5))})

def specs(batch):
    return [tf.TensorSpec([batch], tf.int64), tf.TensorSpec([batch, 1], tf.float32)]

def trained(built, step, steps=20):
    rng = np.random.default_rng(3)
    return [float(step(tf.constant(rng.integers(0, 50, 16)), tf.ones([16, 1])))
            for _ in range(steps)]

def step_of(built):
    return tf.function(lambda rows, wanted: step_fn(built, rows, wanted))

def variables(built):
    return [*built[0].variables, built[1]["scale"]]

def on_device(built):
    return [v.device for v in variables(built)]

# 4 tables of 48 GiB on two devices of 140 GiB.
rates = machines.detect([SimpleNamespace(name=name, type="CPU", description="", memory_bytes=0)
                         for name in DEVICES])
large = dataclasses.replace(rates, devices=tuple(
    dataclasses.replace(device, memory_bytes=140 << 30) for device in rates.devices))
huge = hp.plan_model(builder(12 << 20, 1024), step_fn, specs(16), machine=large, planner="etf")
bytes_on = {}
for variable in huge.variables:
    bytes_on[variable.device] = bytes_on.get(variable.device, 0) + variable.num_bytes
peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
real = raised(builder(12 << 20, 1024))

# A small one is trained.
on(seed=1)
plan = hp.plan_model(builder(50, 8), step_fn, specs(16))
start = len(plugin.history())
with Recorder() as creation, hp.variable_scope(plan):
    built = builder(50, 8)()
where = [v.device for v in sorted(variables(built), key=lambda v: int(v._unique_id.split("_")[-1]))]
losses = trained(built, step_of(built))
outcome = history_since(start)
off()
set_options(EXACT)
other = builder(50, 8)()
other_step = step_of(other)
other_losses = trained(other, other_step)

# The other one moves, with its traced function.
on(seed=1)
plan.save("model.hplan")
again = hp.ModelPlan.load("model.hplan")
before = numpy(variables(other))
with Recorder() as migration:
    hp.migrate(other, None, again)
moved = on_device(other)
moved_same = same(before, variables(other))
start = len(plugin.history())
migrated_losses = trained(other, other_step)
migrated_outcome = history_since(start)
off()
set_options(EXACT)
kept = other[0].head.handle
back = dataclasses.replace(plan, variables=tuple(
    dataclasses.replace(v, device=DEVICES[v.device == DEVICES[0]]) if v.key == "head" else v
    for v in plan.variables))
with Recorder() as keeping:
    hp.migrate(other, None, back)
hp.migrate(other, None, plan)
going_on = trained(built, step_of(built))

# What does not fit.
absent = dataclasses.replace(plan, variables=tuple(
    dataclasses.replace(v, device=v.device.replace("CPU:1", "CPU:7")) for v in plan.variables))
def enter(plan):
    with hp.variable_scope(plan):
        raise AssertionError("not reached")
before = numpy(variables(other))
mistakes = dict(
    absent_scope=raised(enter, absent),
    absent_migrate=raised(hp.migrate, other, None, absent),
    other_shape=raised(hp.migrate, builder(51, 8)(), None, plan),
    unknown=raised(hp.migrate, [tf.Variable(1.0, name="stranger")], None, plan),
    nothing=raised(hp.migrate, 3, None, plan),
    no_file=raised(hp.ModelPlan.load, "script.py"),
    plain_plan=(open("step.hplan", "wb").write(plan.step.to_bytes())
                and raised(hp.ModelPlan.load, "step.hplan")),
    no_value=raised(hp.plan_model, lambda: tf.Variable(None, shape=[3]), step_fn),
)
with tf.Graph().as_default():
    mistakes["graph"] = raised(hp.plan_model, builder(50, 8), step_fn, specs(16))
with tf.distribute.OneDeviceStrategy("CPU:0").scope():
    mistakes["strategy"] = raised(hp.plan_model, builder(50, 8), step_fn, specs(16))
    mistakes["strategy_scope"] = raised(enter, plan)
on(devices=["CPU:0"])
mistakes["devices"] = raised(hp.plan_model, builder(50, 8), step_fn, specs(16))
unmoved = same(before, variables(other)) and on_device(other) == moved
on(on_miss="skip")
set_options(EXACT)
with Recorder() as mismatch, hp.variable_scope(plan):
    odd = Towers(51, 8)
    tf.Variable(1.0, name="stranger")
odd_losses = trained((odd, built[1]), step_of((odd, built[1])), 2)

report(
    huge_bytes=bytes_on, feasible=huge.step.feasible, peak_gib=peak_gib, real=real,
    devices=list(plan.devices.values()), where=where, keys=list(plan.devices),
    warned=warnings(creation), losses=losses, other_losses=other_losses, outcome=outcome,
    fingerprint=plan.step.fingerprint, saved=again == plan, migration_warned=warnings(migration),
    moved=moved, placed=on_device(built), moved_same=moved_same, going_on=going_on,
    migrated_losses=migrated_losses, migrated_outcome=migrated_outcome, mistakes=mistakes,
    unmoved=unmoved, kept=warnings(keeping), mismatch=warnings(mismatch), odd_losses=odd_losses,
)
"""
)


MISTAKES = {
    "absent_scope": ("PlanError", ["CPU:7 of '", "CPU:0, CPU:1", "this machine"]),
    "absent_migrate": ("PlanError", ["CPU:7 of '"]),
    "other_shape": ("PlanError", ["'table' is float32[51, 8], planned was float32[50, 8]"]),
    "unknown": ("PlanError", ["does not have the variables 'stranger'", "'table'"]),
    "nothing": ("PlanError", ["an object of type int has no variables"]),
    "no_file": ("PlanError", ["script.py"]),
    "plain_plan": ("PlanError", ["step.hplan", "'variables'", "plan_model"]),
    "no_value": ("GraphError", ["'Variable': has no initial value"]),
    "graph": ("GraphError", ["outside of any tf.Graph"]),
    "strategy": ("GraphError", ["tf.distribute"]),
    "strategy_scope": ("PlanError", ["tf.distribute"]),
    "devices": ("OptionError", ["devices: "]),
}


@pytest.mark.slow
def test_modules_and_plain_variables_in_a_custom_loop(tmp_path: Path) -> None:
    seen = processes.run(MODULE, tmp_path).report
    # Planning allocates nothing, and spreads what one device cannot hold.
    assert sum(seen["huge_bytes"].values()) > 6 * (LIMIT_GIB << 30)
    assert seen["peak_gib"] < 4
    assert seen["real"][0] == "ResourceExhaustedError"  # so the limit is one
    assert seen["feasible"]
    assert len(seen["huge_bytes"]) == 2
    assert max(seen["huge_bytes"].values()) < 140 << 30
    # Created where it was planned.
    tables = ["table", "table#2", "table#3", "table#4"]
    assert seen["keys"] == [*tables, "head", "momentum", "bias", "Variable"]
    assert seen["where"] == seen["devices"]
    assert len(set(seen["where"])) == 2
    assert seen["devices"][6] == CPU_0  # the user's own choice
    assert seen["warned"] == []
    # The loop finds the plan, and the losses are those without.
    (entry,) = seen["outcome"]
    assert (entry["outcome"], entry["fingerprint"]) == ("loaded", seen["fingerprint"])
    assert len(seen["losses"]) == 20
    assert seen["losses"] == seen["other_losses"]
    # The other model moves; its traced step goes on.
    assert seen["saved"]
    assert seen["migration_warned"] == []
    assert seen["moved"] == seen["placed"]
    assert seen["moved_same"]
    (entry,) = seen["migrated_outcome"]
    assert (entry["outcome"], entry["fingerprint"]) == ("loaded", seen["fingerprint"])
    assert seen["migrated_losses"] == seen["going_on"]
    (line,) = seen["kept"]
    assert "still holds the old memory of 'head'" in line
    # Mistakes are named, and change nothing.
    assert seen["mistakes"].keys() == MISTAKES.keys()
    for mistake, (error, parts) in MISTAKES.items():
        name, message = seen["mistakes"][mistake]
        assert name == error, message
        assert all(part in message for part in parts), message
    assert seen["unmoved"]
    # Another model than the planned is one warning, and runs.
    (line,) = seen["mismatch"]
    assert "not in the plan: 'stranger'" in line
    assert "not created: 'Variable'" in line
    assert "'table' is float32[51, 8], planned was float32[50, 8]" in line
    assert all(loss > 0 for loss in seen["odd_losses"])


def test_keys_are_distinct() -> None:
    keys = KeyMaker()
    assert [keys(name) for name in ("w", "b", "w", "w")] == ["w", "b", "w#2", "w#3"]


def test_an_initial_value_may_close_over_what_does_not_exist_yet(tmp_path: Path) -> None:
    code = """
import keras
from hplacer_optimizer.plugin.variables.names import name_in_creation
def make():
    name = name_in_creation("w", lambda: later)
    later = 0
    return name
assert make() == "w"
"""
    processes.run(code, tmp_path, prelude="")


# ---- longer ones ----


@pytest.mark.slow
def test_a_model_that_its_first_step_builds(tmp_path: Path) -> None:
    seen = processes.run(
        COMMON
        + """
import keras

def model_fn():
    model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
    return model

x = np.random.default_rng(0).normal(size=(60, 8)).astype("float32")
y = x.sum(axis=1, keepdims=True)  # batches of 8: the last is smaller
on(seed=1)
plan = hp.plan_model(model_fn, specs=(tf.TensorSpec([None, 8]), tf.TensorSpec([None, 1])))
start = len(plugin.history())
with Recorder() as inside, hp.variable_scope(plan):
    model = model_fn()
    model.fit(x, y, batch_size=8, verbose=0)
elsewhere = [v.path for v in model.variables + model.optimizer.variables + model.metrics_variables
             if v.value.device != plan.devices[v.path]]
found = [entry["outcome"] for entry in history_since(start) if "multi_step" in entry["graph"]]
keras.backend.clear_session()
with Recorder() as outside, hp.variable_scope(plan):
    model = model_fn()
model.fit(x, y, batch_size=8, verbose=0)
report(used=sorted(set(plan.devices.values())), elsewhere=elsewhere, found=found,
       inside=warnings(inside), outside=warnings(outside))
""",
        tmp_path,
    ).report
    assert len(seen["used"]) == 2
    assert seen["elsewhere"] == []
    assert seen["found"] == ["loaded"]
    assert seen["inside"] == []
    (line,) = seen["outside"]
    assert "not created: 'sequential/dense/kernel'" in line
    assert "by its first step" in line


@pytest.mark.slow
def test_a_saved_plan_is_a_plan_file_and_the_example_runs(tmp_path: Path) -> None:
    code = (processes.ROOT / "examples" / "spread_variables.py").read_text()
    run = processes.run(
        code + "\nplan.save('model.hplan')\n", tmp_path, prelude="", log="info", timeout_s=240
    )
    assert sum("plan loaded for function multi_step_on_iterator" in line for line in run.log) == 1
    shown = processes.run(
        "from hplacer_optimizer.cli import main\nimport sys\n"
        "sys.argv = ['hplacer', 'show', 'model.hplan']\nmain()\n",
        tmp_path,
        prelude="",
    )
    assert shown.returncode == 0


# ---- switched off, and tried ----

SCOPE = """
def build():
    return [tf.Variable(normal([64, 64], seed), name=f"w{seed}") for seed in range(4)]

def step(built, x):
    with tf.GradientTape() as tape:
        for weights in built:
            x = tf.tanh(x @ weights)
        loss = tf.reduce_sum(x**2)
    for weights, gradient in zip(built, tape.gradient(loss, built)):
        weights.assign_sub(0.1 * gradient)

on(min_gain=float(os.environ["TEST_MIN_GAIN"]))
plan = hp.plan_model(build, step, [tf.TensorSpec([8, 64])], planner="random", seed=1)
with hp.variable_scope(plan):
    scoped = [variable.device for variable in build()]
moved = build()
hp.migrate(moved, None, plan)
report(planned=[*plan.devices.values()], scoped=scoped,
       moved=[variable.device for variable in moved])
"""


def test_no_variable_moves_where_the_optimizer_is_disabled(tmp_path: Path) -> None:
    environment = {"TEST_MIN_GAIN": "-1", "HPLACER_DISABLE": "1"}
    seen = processes.run(SCOPE, tmp_path, **environment).report
    assert len({*seen["planned"]}) == 2
    assert seen["scoped"] == seen["moved"] == [CPU_0] * 4
    assert not [*tmp_path.rglob("*.hplan")]


def test_what_is_tried_has_its_own_store_and_takes_effect(tmp_path: Path) -> None:
    trial, private, work = (tmp_path / name for name in ("trial", "private", "work"))
    trial.mkdir()
    changes = {"cache": str(private), "min_gain": -1.0, "on_miss": "skip"}
    orders = {"observed": exchange.TIMES, "options": changes, "behind": None}
    exchange.write(trial / exchange.ORDERS, orders)
    environment = {"TEST_MIN_GAIN": "1000", exchange.VARIABLE: str(trial)}
    seen = processes.run(SCOPE, work, **environment).report
    assert len({*seen["planned"]}) == 2
    assert seen["scoped"] == seen["moved"] == seen["planned"]
    assert len([*private.glob("*.hplan")]) == 1
    assert not [*work.rglob("*.hplan")]
