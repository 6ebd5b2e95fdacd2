"""The ways in which TensorFlow programs run graphs: planned, each gives the unplanned numbers."""

from __future__ import annotations

from pathlib import Path

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
