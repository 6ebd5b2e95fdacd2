"""The ways in which TensorFlow programs run graphs: planned, each gives the unplanned numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

# ---- sessions ----

SESSIONS = """
def model(resource, unknown_batch=False):
    "Returns (x, loss, train, variables) of a new default graph."
    x = v1.placeholder(tf.float32, [None if unknown_batch else 4, 8], name="x")
    def variable(name, shape, number):
        value = v1.constant(np.random.RandomState(number).randn(*shape).astype(np.float32))
        return v1.get_variable(name, initializer=value, use_resource=resource)
    w = [variable("w1", [8, 16], 1), variable("w2", [8, 16], 2), variable("w3", [16, 1], 3)]
    a, b = tf.nn.relu(tf.matmul(x, w[0])), tf.nn.tanh(tf.matmul(x, w[1]))
    loss = tf.reduce_mean(tf.matmul(a + b, w[2]) ** 2, name="loss")
    train = v1.train.MomentumOptimizer(0.01, 0.9).minimize(loss, name="train")
    return x, loss, train, w

BATCH = np.random.RandomState(0).randn(4, 8).astype(np.float32)

def steps(running, x, loss, train, count=3):
    return [float(running.run([loss, train], {x: BATCH})[0]) for _ in range(count)]

def planned_devices(key):
    plan = hp.PlanStore(CACHE).get(key)
    return {name: plan.device_names[device]
            for name, device in zip(plan.node_names, plan.node_devices)}
"""


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_session_variables_move_with_their_initialisers(tmp_path: Path, resource: bool) -> None:
    report = run(
        SESSIONS
        + f"""
def run_all(**options):
    with tf.Graph().as_default():
        x, loss, train, w = model({resource})
        with session(**options) as running:
            running.run(v1.global_variables_initializer())
            found = steps(running, x, loss, train)
            metadata = v1.RunMetadata()
            running.run(train, {{x: BATCH}}, v1.RunOptions(output_partition_graphs=True), metadata)
            final = [float(v.sum()) for v in running.run(w)]
            return found + final, {{node.name: node.device for graph in metadata.partition_graphs
                                   for node in graph.node}}, [v.op.name for v in w]
expected, _, _ = run_all()
cases = []
for seed in range(3):
    planned, devices, variables = run_all(seed=seed, cache=CACHE + str(seed))
    entry = plugin.history()[-1]
    plan = hp.PlanStore(CACHE + str(seed)).get(entry.fingerprint)
    wanted = dict(zip(plan.node_names, (plan.device_names[d] for d in plan.node_devices)))
    cases.append({{"equal": np.allclose(planned, expected, rtol=1e-5),
        "variables": {{v: [wanted[v], devices.get(v)] for v in variables}},
        "used": sorted(set(devices.values()))}})
report(cases=cases, outcomes=outcomes())
""",
        tmp_path,
    ).report
    assert set(report["outcomes"]) == {"planned"}
    moved = set()
    for case in report["cases"]:
        assert case["equal"]
        for planned, actual in case["variables"].values():
            assert actual == planned
            moved.add(actual)
    assert len(moved) == 2, "no plan moved a variable: the test shows nothing"


def test_several_sessions_and_a_graph_that_grows(tmp_path: Path) -> None:
    report = run(
        SESSIONS
        + """
def run_all(**options):
    with tf.Graph().as_default():
        x, loss, train, w = model(True)
        init = v1.global_variables_initializer()
        first, second = session(**options), session(**options)
        found = []
        for running in (first, second):
            running.run(init)
            found += steps(running, x, loss, train)
        y = tf.matmul(x, w[0]) * 2.0  # the graph grows
        for _ in range(30):
            y = tf.tanh(y)
        more = tf.reduce_sum(y) + loss
        again = v1.train.GradientDescentOptimizer(0.1).minimize(more)
        found.append(float(first.run(more, {x: BATCH})))
        found.append(float(second.run([more, again], {x: BATCH})[0]))
        found += steps(first, x, loss, train) + steps(second, x, loss, again)
        return found

expected = run_all()
planned = run_all(cache=CACHE)
again = run_all(cache=CACHE)

from concurrent.futures import ThreadPoolExecutor
graphs = []
for number in range(4):
    graph = tf.Graph()
    with graph.as_default():
        x, loss, train, w = model(True)
        for _ in range(number):
            loss = tf.identity(loss)
        graphs.append((graph, x, loss, train, v1.global_variables_initializer()))

def work(item, **options):
    graph, x, loss, train, init = item
    with session(graph=graph, **options) as running:
        running.run(init)
        return steps(running, x, loss, train)

serial = [work(item) for item in graphs * 2]
with ThreadPoolExecutor(8) as pool:
    parallel = list(pool.map(lambda item: work(item, cache=CACHE + "t"), graphs * 2))
report(equal=[np.allclose(p, expected, rtol=1e-5) for p in (planned, again)],
       history=history_since(0), threads=np.allclose(serial, parallel, rtol=1e-5))
""",
        tmp_path,
    )
    assert report.report["equal"] == [True, True]
    assert report.report["threads"]
    assert {entry["outcome"] for entry in report.report["history"]} <= {
        "planned",
        "loaded",
        "shared",
    }
    assert report.log == []


@pytest.mark.slow
def test_session_options(tmp_path: Path) -> None:
    outcome = run(
        SESSIONS
        + """
cases = {}
def case(name, config=None, pin=None, warnings=0, unknown_batch=False, **options):
    def once(options):
        with tf.Graph().as_default():
            with tf.device(pin) if pin else contextlib.nullcontext():
                x, loss, train, w = model(True, unknown_batch)
            with session(config=config() if config else None, **options) as running:
                running.run(v1.global_variables_initializer())
                return steps(running, x, loss, train)
    expected = once({})
    start = len(plugin.history())
    with Recorder() as recorder:
        planned = once({"cache": CACHE + name} | options)
        log = recorder.lines(warnings)
    cases[name] = {"equal": np.allclose(planned, expected, rtol=1e-5), "log": log,
                   "history": history_since(start)}
    if cases[name]["history"] and cases[name]["history"][0]["outcome"] == "planned":
        plan = hp.PlanStore(CACHE + name).get(cases[name]["history"][0]["fingerprint"])
        cases[name]["assumptions"] = plan.assumptions
        cases[name]["used"] = sorted(set(plan.node_devices.tolist()))

case("usual")
case("soft off", lambda: v1.ConfigProto(allow_soft_placement=False))
case("unknown batch", unknown_batch=True)
case("batch size", unknown_batch=True, batch_size=77)
case("target", targets=["train"])
case("two targets", targets=["train", "loss:0"])
case("wrong target", targets=["trian"], warnings=1)
case("one device", devices=["CPU:1"])
case("both devices", devices=["CPU:0", "CPU:1"])
case("min_ops", min_ops=10000)
case("skip", on_miss="skip")
case("pinned", pin="CPU:0")
report(cases=cases)
""",
        tmp_path,
    )
    cases: dict[str, Any] = outcome.report["cases"]
    assert {name for name, case in cases.items() if not case["equal"]} == set()
    outcomes = {
        name: [entry["outcome"] for entry in case["history"]] for name, case in cases.items()
    }
    for name in ("usual", "soft off", "unknown batch", "batch size", "target", "two targets"):
        assert outcomes[name] == ["planned"], name
        assert cases[name]["log"] == [], name
    assert outcomes["both devices"] == ["planned"]
    assert outcomes["min_ops"] == []
    assert outcomes["skip"] == outcomes["pinned"] == outcomes["one device"] == ["skipped"]
    assert outcomes["wrong target"] == ["failed"]
    (line,) = cases["wrong target"]["log"]
    assert "'trian'" in line
    assert "option 'targets'" in line
    assert cases["usual"]["used"] == [0, 1]
    assert not any("batch" in text for text in cases["usual"]["assumptions"])
    assert any("batch" in text for text in cases["unknown batch"]["assumptions"])
    assert any("77" in text for text in cases["batch size"]["assumptions"])


SLOW = """
import time, own

def plan(problem, **_):
    time.sleep(2)
    return own.last(problem)
"""


def test_an_entry_without_options_has_the_defaults_that_the_pass_was_given(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    outcome = run(
        """
from hplacer_optimizer.capture import native
from hplacer_optimizer.options import Options

def entry_of(config):
    entry = config.graph_options.rewrite_options.custom_optimizers.add()
    entry.name = "HierarchicalPlacer"
    return entry

defaults = entry_of(v1.ConfigProto())
given = Options(min_ops=0, timeout_s=0.25, budget_s=0.5, on_miss="learn")
given.to_entry(defaults, changed_only=False)
native.load().register_passes(defaults.SerializeToString())
hp.session_config()  # starts what answers the pass

def once(**options):
    "A session whose ConfigProto was written by hand."
    start = len(plugin.history())
    config = v1.ConfigProto()
    entry = entry_of(config)
    entry.parameter_map["planner"].s = b"slow:plan"
    for name, value in options.items():
        entry.parameter_map[name].i = value
    with tf.Graph().as_default(), session(config=config) as running:
        x = v1.placeholder(tf.float32, [4, 4])
        running.run(tf.reduce_sum(tf.matmul(x, x)), {x: np.ones((4, 4))})
    return history_since(start)

report(without=once(), with_min_ops=once(min_ops=20))
""",
        tmp_path,
    )
    (entry,) = outcome.report["without"]
    assert entry["outcome"] == "failed"
    assert "no answer within 0.75 s" in entry["reason"]
    assert outcome.report["with_min_ops"] == []


def test_wrong_values_of_an_entry_written_by_hand_are_refused(tmp_path: Path) -> None:
    outcome = run(
        """
def once(name, kind, value):
    "A session whose ConfigProto was written by hand, with one value that no option allows."
    start = len(plugin.history())
    config = v1.ConfigProto()
    entry = config.graph_options.rewrite_options.custom_optimizers.add()
    entry.name = "HierarchicalPlacer"
    entry.parameter_map["on_miss"].s = b"learn"  # so that budget_s is waited for, too
    setattr(entry.parameter_map[name], kind, value)
    with tf.Graph().as_default(), session(config=config) as running:
        x = v1.placeholder(tf.float32, [4, 4])
        y = x
        for _ in range(20):
            y = tf.matmul(x, y)
        total = float(running.run(tf.reduce_sum(y), {x: np.full((4, 4), 0.25)}))
    assert total == 4.0
    (entry,) = history_since(start)
    return [name, entry["outcome"], entry["reason"]]

hp.session_config()  # starts what answers the pass
report(entries=[once(*case) for case in [
    *[(name, "f", value) for name in ("timeout_s", "budget_s")
      for value in (float("nan"), float("inf"), -1.0, 0.0, 3e38)],
    *[(name, "i", -(2**63)) for name in ("timeout_s", "min_ops", "batch_size", "loop_trip_count")],
    *[(name, "s", b"5") for name in ("timeout_s", "min_ops", "batch_size", "loop_trip_count")],
    ("timeout_s", "b", True),
]])
""",
        tmp_path,
    )
    for name, result, reason in outcome.report["entries"]:
        assert result == "failed"
        assert f"{name}: must be a" in reason


# ---- functions ----


@pytest.mark.parametrize(
    ("gradient", "seeds"),
    [
        (True, [0]),
        pytest.param(True, [1, 2, 3], marks=pytest.mark.slow),
        pytest.param(False, [0, 1, 2], marks=pytest.mark.slow),
    ],
)
def test_functions(tmp_path: Path, gradient: bool, seeds: list[int]) -> None:
    """Loops, conds, TensorLists, Python ops and random numbers."""
    outcome = run(
        f"gradient, seeds = {gradient}, {seeds}\n"
        + """
set_options({"constant_folding": False, "arithmetic_optimization": False, "remapping": False})
x = normal([6, 8], 1)

def plain(x, w):
    return tf.tanh(tf.matmul(tf.tanh(x) * 2.0, w))

def loop(x, w):
    for _ in tf.range(4):
        x = tf.tanh(tf.matmul(x, w))
    return x

def nested_loop(x, w):
    for i in tf.range(3):
        for _ in tf.range(i + 1):
            x = tf.tanh(tf.matmul(x, w)) + tf.cast(i, tf.float32)
    return x

def array_in_loop(x, w):
    array = tf.TensorArray(tf.float32, 3)
    for i in tf.range(3):
        x = tf.tanh(tf.matmul(x, w))
        array = array.write(i, x)
    return array.stack()

def cond(x, w):
    if tf.reduce_sum(x) > 0:
        y = tf.matmul(x, w)
    else:
        y = tf.matmul(x, 2.0 * w)
    return tf.cond(tf.reduce_sum(y) > 1000.0, lambda: y + 1.0, lambda: tf.tanh(y))

def mapped(x, w):
    return tf.map_fn(lambda row: tf.tanh(tf.linalg.matvec(w, row)), x)

def scanned(x, w):
    return tf.scan(lambda a, row: tf.tanh(tf.linalg.matvec(w, row + a)), x)

def python(x, w):
    y = tf.py_function(lambda y: y * 2.0, [tf.matmul(x, w)], tf.float32)
    z = tf.numpy_function(lambda y: y + np.float32(1), [tf.stop_gradient(y)], tf.float32)
    return tf.ensure_shape(y + z, [6, 8])

def dropout(x, w):
    return tf.nn.dropout(tf.matmul(x, w), 0.5, seed=7)

def stateless(x, w):
    return tf.nn.experimental.stateless_dropout(tf.matmul(x, w), 0.5, seed=[1, 2])

def nested_function(x, w):
    @tf.function(experimental_attributes={"_noinline": True})
    def inner(y):
        for _ in range(30):
            y = tf.tanh(y)
        return y
    return inner(tf.matmul(x, w)) + tf.function(lambda y: y * 2.0)(x)

def pinned(x, w):
    with tf.device("CPU:1"):
        y = tf.matmul(x, w)
    return tf.tanh(y)

def strings(x, w):
    text = tf.strings.as_string(tf.cast(tf.matmul(x, w), tf.int32))
    return tf.cast(tf.strings.length(text), tf.float32) + x @ w

def results(body, gradient):
    tf.random.set_seed(3)
    w = tf.Variable(normal([8, 8], 2))
    def step(x):
        with tf.GradientTape() as tape:
            y = body(x, w)
            loss = tf.reduce_sum(y) + tf.reduce_mean(tf.exp(-(y * y)))
            for _ in range(20):
                loss = loss + tf.abs(loss) * 0.01
        if gradient:
            w.assign_sub(0.01 * tape.gradient(loss, w))
        return loss
    step.__name__ = "step_" + body.__name__
    step = tf.function(step)
    return [float(step(x)) for _ in range(3)]

cases = {}
for body in (plain, loop, nested_loop, array_in_loop, cond, mapped, scanned, python, dropout,
             stateless, nested_function, pinned, strings):
    off()
    expected = results(body, gradient)
    for seed in seeds:
        on(seed=seed, cache=f"{CACHE}{seed}")
        start = len(plugin.history())
        found = results(body, gradient)
        cases[f"{body.__name__} {seed}"] = {
            "equal": np.allclose(found, expected, rtol=1e-5),
            "outcomes": [h["outcome"] + h["reason"] for h in history_since(start)
                         if "step_" in h["graph"]]}
report(cases=cases)
""",
        tmp_path,
    )
    cases = outcome.report["cases"]
    assert [name for name, case in cases.items() if not case["equal"]] == []
    assert {name: c["outcomes"] for name, c in cases.items() if c["outcomes"] != ["planned"]} == {}
    assert outcome.log == []


def test_switching_live_functions_off_and_on(tmp_path: Path) -> None:
    report = run(
        """
expected = losses(trainer(), 8)
step = trainer()
found, counts = [], []
for chosen in (on, off, lambda: on(seed=1), off, on, lambda: on(on_miss="skip", cache=CACHE + "2"),
               lambda: on(min_ops=1000), lambda: on(devices=["CPU:0"])):
    chosen()
    found.append(float(step()))
    counts.append(len(plugin.history()))
tf.config.set_soft_device_placement(False)
on(cache=CACHE + "3")
strict = np.allclose(losses(trainer(), 8), expected, rtol=1e-5)
report(equal=np.allclose(found, expected, rtol=1e-5), counts=counts, outcomes=outcomes(),
       strict=strict)
""",
        tmp_path,
    ).report
    assert report["equal"]
    assert report["strict"]
    assert report["counts"] == [1, 1, 2, 2, 2, 3, 3, 4]
    assert report["outcomes"] == ["planned", "loaded", "skipped", "skipped", "planned"]


def test_the_kill_switch(tmp_path: Path) -> None:
    code = """
on()
losses(trainer())
with tf.Graph().as_default(), session(cache=CACHE) as running:
    running.run([tf.tanh(tf.ones([])) for _ in range(50)])
report(history=len(plugin.history()), cache=os.path.exists(CACHE))
"""
    outcome = run(code, tmp_path / "off", log="info", HPLACER_DISABLE="1")
    assert outcome.report == {"history": 0, "cache": False}
    assert outcome.log == []


# ---- threads ----


def test_threads(tmp_path: Path) -> None:
    """Eight threads that call one new function plan it once; others do not wait for each other."""
    report = run(
        """
from concurrent.futures import ThreadPoolExecutor

def pure(number):
    w = [normal([8, 8], n) for n in range(3)]
    @tf.function
    def compute(x):
        for _ in range(10 + number):
            x = tf.tanh(tf.matmul(x, w[0])) + tf.nn.relu(tf.matmul(x, w[1]))
        return tf.reduce_sum(x)
    return compute

x = normal([8, 8], 9)
expected = [float(pure(number)(x)) for number in range(5)]
barrier = threading.Barrier(8)
def call(function):
    barrier.wait(30)
    return float(function(x))

on()
one = pure(0)
one.get_concrete_function(x)
with ThreadPoolExecutor(8) as pool:
    same = list(pool.map(call, [one] * 8))
first = history_since(0)
different = [pure(number) for number in (1, 2, 3, 4)] * 2
for function in different:
    function.get_concrete_function(x)
with ThreadPoolExecutor(8) as pool:
    others = list(pool.map(call, different))
report(same=np.allclose(same, expected[0], rtol=1e-5), first=first,
       second=history_since(len(first)),
       others=np.allclose(others, expected[1:] * 2, rtol=1e-5),
       threads=[t.name for t in threading.enumerate() if t.name == "hplacer-planner"])
""",
        tmp_path,
    ).report
    assert report["same"]
    assert report["others"]
    first = [entry["outcome"] for entry in report["first"]]
    assert first.count("planned") == 1
    assert set(first) <= {"planned", "loaded", "shared"}
    second = [entry for entry in report["second"] if entry["outcome"] == "planned"]
    assert len(second) == len({entry["fingerprint"] for entry in second}) == 4
    assert {entry["outcome"] for entry in report["second"]} <= {"planned", "loaded", "shared"}
    assert report["threads"] == []


# ---- Keras, SavedModel, tf.data, distribution strategies ----


def test_keras(tmp_path: Path) -> None:
    report = run(
        """
import keras
data = np.random.RandomState(0).randn(24, 8).astype(np.float32)
target = data.sum(1, keepdims=True)

def run_all(steps):
    keras.utils.set_random_seed(1)
    inputs = keras.Input([8])
    a = keras.layers.Dense(8, activation="relu")(inputs)
    b = keras.layers.Dense(8, activation="tanh")(inputs)
    outputs = keras.layers.Dense(1)(keras.layers.Dropout(0.2, seed=5)(a + b))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse", jit_compile=False, steps_per_execution=steps)
    fit = model.fit(data, target, batch_size=4, epochs=2, verbose=0, shuffle=False)
    return [*fit.history["loss"], model.evaluate(data, target, batch_size=4, verbose=0),
            *model.predict(data[:8], batch_size=4, verbose=0).ravel()]

cases = {}
for steps in (1, 4):
    off()
    expected = run_all(steps)
    on()
    start = len(plugin.history())
    cases[str(steps)] = {"equal": np.allclose(run_all(steps), expected, rtol=1e-5),
                         "history": history_since(start)}
report(cases=cases)
""",
        tmp_path,
    ).report
    for case in report["cases"].values():
        assert case["equal"]
        train = [e["outcome"] for e in case["history"] if "step_on_iterator" in e["graph"]]
        assert train
        assert set(train) <= {"planned", "loaded", "shared"}
        assert {entry["outcome"] for entry in case["history"]} <= {"planned", "loaded", "skipped"}


def test_saved_model(tmp_path: Path) -> None:
    model = tmp_path / "model"
    saved = run(
        f"""
class Model(tf.Module):
    def __init__(self):
        self.w = [tf.Variable(normal([8, 8], n)) for n in range(3)]
    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32)])
    def serve(self, x):
        for _ in range(4):
            x = tf.nn.relu(tf.matmul(x, self.w[0])) + tf.tanh(tf.matmul(x, self.w[1]))
            x = tf.tanh(tf.matmul(x, self.w[2]))
        return {{"y": x}}
model = Model()
expected = model.serve(tf.ones([3, 8]))["y"].numpy()
on()
planned = model.serve(tf.ones([3, 8]))["y"].numpy()
tf.saved_model.save(model, {str(model)!r}, signatures=model.serve)
report(values=expected.ravel().tolist(), planned=planned.ravel().tolist(), outcomes=outcomes())
""",
        tmp_path,
    ).report
    assert "planned" in saved["outcomes"]
    assert saved["planned"] == pytest.approx(saved["values"], rel=1e-5)
    loaded = run(
        f"""
cases = {{}}
for name, switch in (("off", off), ("on", on)):
    switch()
    model = tf.saved_model.load({str(model)!r})
    start = len(plugin.history())
    y = model.signatures["serving_default"](tf.ones([3, 8]))["y"]
    cases[name] = {{"values": y.numpy().ravel().tolist(),
                   "outcomes": [entry["outcome"] for entry in history_since(start)]}}
report(**cases)
""",
        tmp_path,
    ).report
    for name, planned in (("off", False), ("on", True)):
        assert loaded[name]["values"] == pytest.approx(saved["values"], rel=1e-5)
        assert bool(loaded[name]["outcomes"]) is planned
        assert set(loaded[name]["outcomes"]) <= {"planned", "loaded"}


def test_datasets_and_unknown_batches(tmp_path: Path) -> None:
    outcome = run(
        """
def pipeline():
    def heavy(x):
        for _ in range(40):
            x = tf.tanh(x + 0.1)
        return x
    data = tf.data.Dataset.from_tensor_slices(normal([10, 8], 1)).map(heavy, num_parallel_calls=2)
    return data.batch(4).map(heavy).prefetch(1)

def train():
    w = tf.Variable(normal([8, 8], 2))
    @tf.function
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(tf.matmul(tf.nn.relu(tf.matmul(x, w)), w)) ** 2)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss
    spec = tf.TensorSpec([None, 8], tf.float32)
    step = train_step.get_concrete_function(spec)
    return [float(step(x)) for x in pipeline()]

expected = train()
on()
found = train()
found_again = list(map(float, (tf.reduce_sum(x) for x in pipeline())))
time.sleep(0.3)
report(equal=np.allclose(found, expected, rtol=1e-5), graphs=[h.graph for h in plugin.history()])
""",
        tmp_path,
        log="debug",
    )
    assert outcome.report["equal"]
    assert outcome.report["graphs"] == ["function train_step"]
    assert any("assumed: " in line and "batch" in line for line in outcome.log)


def test_a_mirrored_strategy_keeps_its_own_devices(tmp_path: Path) -> None:
    report = run(
        """
from tensorflow.python.eager import context

def run_all():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        w = tf.Variable(normal([8, 8], 1))
    def replica(x):
        with tf.GradientTape() as tape:
            y = x
            for _ in range(6):
                y = tf.tanh(tf.matmul(y, w), name="replica_op")
            loss = tf.reduce_mean(y ** 2)
        w.assign_sub(0.1 * tf.distribute.get_replica_context().all_reduce(
            "sum", tape.gradient(loss, w)))
        return loss
    @tf.function
    def train_step(x):
        return strategy.reduce("sum", strategy.run(replica, args=(x,)), axis=None)
    context.enable_run_metadata()  # holds what is built by then: before the first call
    found = [float(train_step(normal([4, 8], n))) for n in range(3)]
    graphs = context.export_run_metadata().partition_graphs
    context.disable_run_metadata()
    places = {}
    for graph in graphs:
        for node in graph.node:
            if "replica_op" in node.name and "gradient" not in node.name and node.op == "Tanh":
                places[node.name] = node.device
    return found, places

off()
expected, usual = run_all()
on(planner="own:last")
found, planned = run_all()
report(equal=np.allclose(found, expected, rtol=1e-5), usual=usual, planned=planned,
       history=history_since(0))
""",
        tmp_path,
    ).report
    assert report["equal"]
    assert report["planned"] == report["usual"]
    entries = [entry for entry in report["history"] if entry["graph"] == "function train_step"]
    assert [entry["outcome"] for entry in entries] in (["planned"], ["skipped"])


def test_annotations_of_the_user_are_respected(tmp_path: Path) -> None:
    report = run(
        """
from tensorflow.python.eager import context
w = tf.Variable(normal([8, 8], 1))
@tf.function
def compute(x):
    with tf.device("CPU:0"):
        a = tf.sin(x, name="first")
    with tf.device("CPU:1"):
        b = tf.cos(x, name="second")
    for _ in range(20):
        a = tf.tanh(a + b, name="free")
    return tf.reduce_sum(tf.matmul(a, w))
cases = []
for planner in ("own:last", "own:spread", "etf"):
    on(planner=planner, cache=CACHE + planner[-4:])
    context.enable_run_metadata()
    compute(normal([8, 8], 2))
    graphs = context.export_run_metadata().partition_graphs
    context.disable_run_metadata()
    cases.append({node.name: node.device for graph in graphs for node in graph.node})
report(cases=cases, outcomes=outcomes())
""",
        tmp_path,
    ).report
    assert report["outcomes"] == ["planned"] * 3
    for case in report["cases"]:
        assert case["first"].endswith("CPU:0")
        assert case["second"].endswith("CPU:1")
    assert report["cases"][0]["free_5"].endswith("CPU:1")
