"""An IdentityN is taken apart where a plan takes effect: nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.emulation import gpus
from tests.processes import run

EXECUTED = """
from tensorflow.python.eager import context

def executed(function, *arguments):
    "Of a first call: the nodes of the largest function, after Grappler."
    context.context().enable_graph_collection()
    function(*arguments)
    graphs = context.context().export_run_metadata().function_graphs
    parts = max((graph.partition_graphs for graph in graphs),
                key=lambda parts: sum(len(part.node) for part in parts))
    context.context().disable_graph_collection()
    return [node for part in parts for node in part.node]

def left(nodes):
    "The IdentityN among them."
    return sorted(node.name.split("/")[-1] for node in nodes if node.op == "IdentityN")
"""

# Each IdentityN has inputs of its own, or they would be merged. These come from two devices, and so
# do the readers: Grappler keeps the op.
FORMS = """
x = normal([64], 1)
state = tf.Variable(tf.zeros([]))

def pair(number):
    values = []
    for device in DEVICES:
        with tf.device(device):
            values.append(tf.tanh(x * (number + 1.5)))
    return values

def ends(values):
    found = []
    for device, value in zip(DEVICES, values):
        with tf.device(device):
            found.append(tf.reduce_sum(tf.sin(value)))
    return found

@tf.function
def step():
    found = ends(tf.identity_n(pair(0), name="plain"))
    found += ends(tf.identity_n(tf.identity_n(pair(1), name="inner")[::-1], name="outer"))
    with tf.control_dependencies([state.read_value()]):
        found += ends(tf.identity_n(pair(2), name="waits"))
    with tf.device(DEVICES[1]):
        pinned = tf.identity_n(pair(3), name="pinned")
    found += ends(pinned)
    waited_for = tf.identity_n(pair(4), name="waited_for")
    with tf.control_dependencies([waited_for[0].op]):
        found += ends([tf.identity(waited_for[1]), tf.identity(x)])
    group = tf.identity_n(pair(5), name="group")
    found += ends(group)
    with tf.compat.v1.colocate_with(group[0].op):
        found.append(tf.square(found[-1]))
    return tf.stack(found), tf.identity_n(pair(6), name="result")
"""


def test_all_that_may_be_taken_apart_is_and_the_results_are_the_same(tmp_path: Path) -> None:
    report = run(
        EXECUTED
        + FORMS
        + """
values = lambda: [v.numpy().tolist() for v in tf.nest.flatten(step())]
alone_left, alone = left(executed(step)), values()
on(min_gain=1e6)  # keeps TensorFlow's placement
kept_left, kept = left(executed(step)), values()
planned, planned_left = [], []
for seed in range(3):
    on(seed=seed, cache=CACHE + str(seed), min_ops=0)
    planned_left.append(left(executed(step)))
    planned.append(values())
on(seed=0, cache=CACHE + "0", bitwise=True)
report(alone=alone, kept=kept, planned=planned, bitwise=values(), alone_left=alone_left,
       kept_left=kept_left, planned_left=planned_left, outcomes=outcomes(),
       differences=differences(),
       fingerprints=[entry.fingerprint for entry in plugin.history()])
""",
        tmp_path,
    ).report
    assert report["kept"] == report["bitwise"] == report["alone"]
    for values in report["planned"]:
        for value, alone in zip(values, report["alone"], strict=True):
            assert value == pytest.approx(alone, rel=1e-5)
    assert report["alone_left"] == report["kept_left"]
    assert {*report["alone_left"]} >= {"outer", "plain", "waited_for"}
    for names in report["planned_left"]:
        assert set(names) <= {"group", "pinned", "waits"}
    assert report["outcomes"] == ["kept"] + ["planned"] * 3 + ["loaded"]
    assert len(set(report["fingerprints"])) == 1
    assert report["differences"] == []


# What `values` of a snippet returns without plans, and under four random ones.
UNDER_PLANS = """
expected = values()
planned = []
for seed in range(4):
    on(seed=seed, cache=CACHE + str(seed), min_ops=0)
    planned.append(values())
report(expected=expected, planned=planned, outcomes=outcomes())
"""
# No control edges but those that are asked for: a body of TensorFlow 1. No Grappler, which takes an
# IdentityN out of one device even where its outputs then outlive what was dead.
ORDERS = """
set_options({"disable_meta_optimizer": True})
before, counted = tf.Variable(1.0), tf.Variable(0.0)

def slow(value):
    for _ in range(200):
        value = tf.sin(value + 0.1)
    return value

def body(x, flag):
    with tf.control_dependencies([slow(x)]):
        written = before.assign(2.0, read_value=False)
    with tf.control_dependencies([written]):
        last = tf.identity(x + 1.0)
    both = tf.identity_n([last, x], name="awaited")
    with tf.control_dependencies([both[0].op]):
        read = before.read_value()
    off, _ = tf.raw_ops.Switch(data=x, pred=flag)
    some = tf.identity_n([x + 2.0, off], name="dead")
    with tf.control_dependencies([counted.assign_add(tf.reduce_sum(some[0]), read_value=False)]):
        end = tf.identity(some[1])
    merged = tf.raw_ops.Merge(inputs=[end, tf.raw_ops.Switch(data=x, pred=flag)[1]])[0]
    return read, merged

spec = [tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.bool)]
step = tf.function(v1.wrap_function(body, spec))

def values():
    before.assign(1.0)
    counted.assign(0.0)
    runs = [step(tf.constant(0.5), tf.constant(flag)) for flag in (True, False, True)]
    return [[float(v) for v in run] for run in runs] + [float(counted)]
"""


def test_what_waits_still_waits_and_what_is_dead_stays_dead(tmp_path: Path) -> None:
    report = run(ORDERS + UNDER_PLANS, tmp_path).report
    assert report["expected"] == [[2.0, 0.5]] * 3 + [2.5]
    assert report["planned"] == [report["expected"]] * 4
    assert "planned" in report["outcomes"]


BRANCHES = """
w = tf.Variable(normal([64], 2))

def pair(a, b):
    "Their product and what it is made of, through an IdentityN in a branch or a loop."
    a, b = tf.identity_n([tf.tanh(a), b * w])
    return a * b, b

@tf.function
def step(x, flag):
    a, b = tf.cond(flag, lambda: pair(x, x + 1.0), lambda: pair(tf.sin(x), x))
    for i in tf.range(3):
        a, b = pair(a + tf.cast(i, tf.float32), b)
        w.assign_add(0.01 * a)
    c, d = tf.identity_n([a, b * 2.0])
    return c + tf.reverse(d, [0])

def values():
    w.assign(normal([64], 2))
    return [step(normal([64], 3), tf.constant(flag)).numpy().tolist() for flag in (True, False)]
"""


def test_branches_and_loops_give_the_same(tmp_path: Path) -> None:
    report = run(BRANCHES + UNDER_PLANS, tmp_path).report
    for values in report["planned"]:
        for value, expected in zip(values, report["expected"], strict=True):
            assert value == pytest.approx(expected, rel=1e-5)
    assert "planned" in report["outcomes"]


def test_in_a_session_an_output_may_be_fed_and_fetched(tmp_path: Path) -> None:
    report = run(
        """
def values(**options):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [4], name="x")
        a, b = tf.identity_n([tf.tanh(x), tf.sin(x)], name="both")
        loss = tf.reduce_sum(tf.exp(a) * tf.cos(b))
        with session(**options) as running:
            given = np.arange(4, dtype=np.float32)
            fetched = running.run([loss, a, b], {x: given})
            fed = running.run(loss, {x: given, a: given, b: -given})
            return [v.tolist() for v in fetched] + [float(fed)]
report(expected=values(), planned=[values(seed=seed, cache=CACHE + str(seed), min_ops=0)
                                   for seed in range(3)], outcomes=outcomes())
""",
        tmp_path,
    ).report
    for values in report["planned"]:
        for value, expected in zip(values, report["expected"], strict=True):
            assert value == pytest.approx(expected, rel=1e-6)
    assert report["outcomes"] == ["planned"] * 3


TOWERS = """
import numpy as np

def plan(problem, *, seed=0, **_):
    "What is of the second tower alone on the second GPU, all else on the first, if it may be."
    towers = [{tower for tower in ("first", "second") if tower in name}
              for name in problem.op_names]
    is_named = [bool(found) for found in towers]
    for source, _, op in sorted(problem.edges.tolist(), key=lambda edge: edge[2]):
        if not is_named[op]:
            towers[op] |= towers[source]
    chosen = {}
    for op, unit in enumerate(problem.units.tolist()):
        allowed = problem.allowed_device[problem.allowed_ptr[op]:problem.allowed_ptr[op + 1]]
        if len(allowed) < 3:
            chosen[unit] = allowed[0]
        elif towers[op] == {"second"}:
            chosen[unit] = allowed[2]
        else:
            chosen.setdefault(unit, allowed[1])
    return np.array([chosen[unit] for unit in problem.units.tolist()], np.int32)
"""
KERAS = (
    EXECUTED
    + """
import keras

def trained(name):
    "A Keras step of two towers, whose variables are on a GPU each."
    keras.utils.set_random_seed(1)
    given = keras.Input([WIDTH])
    ends = []
    for tower, gpu in (("first", GPU0), ("second", GPU1)):
        hidden = given
        for layer in range(LAYERS):
            with tf.device(gpu):
                dense = keras.layers.Dense(WIDTH, activation="relu", name=f"{tower}_{layer}")
                dense.build([None, WIDTH])
            hidden = dense(hidden)
        ends.append(hidden)
    model = keras.Model(given, keras.layers.Add()(ends))
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    x = tf.constant(batch())

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step.__name__ = name
    return tf.function(step)

def seen(step):
    nodes = executed(step)
    sent = [node.attr["tensor_name"].s.decode() for node in nodes if node.op == "_Send"
            and all(b"GPU" in node.attr[end].s for end in ("send_device", "recv_device"))]
    return {"left": left(nodes), "sent": sent, "losses": losses(step),
            "products": products_of(step)}

alone = seen(trained("alone"))
on(planner="towers:plan", min_gain=-1, on_miss="plan")
planned = [seen(trained("train_step")) for _ in range(2)]
report(alone=alone, planned=planned, history=history_since(0), differences=differences())
"""
)


def test_gradients_of_keras_do_not_meet_on_one_device(tmp_path: Path) -> None:
    (tmp_path / "towers.py").write_text(TOWERS)
    report = gpus.run(KERAS, tmp_path).report
    assert [entry["outcome"] for entry in report["history"]] == ["planned", "loaded"]
    assert len({entry["fingerprint"] for entry in report["history"]}) == 1
    for seen in report["planned"]:
        assert min(seen["products"]) > 0
        assert seen["left"] == []
        assert seen["losses"] == pytest.approx(report["alone"]["losses"], rel=1e-5)
        # To the second tower the input and the gradient of its end, and from there its end; beside
        # these, learning rates. Through an IdentityN four gradients would cross, and come back.
        crossing = [name for name in seen["sent"] if "ReadVariableOp" not in name]
        assert 1 <= len(crossing) <= 4, crossing
    assert report["differences"] == []
