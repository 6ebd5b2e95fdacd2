"""Which ops share a device because TensorFlow would fuse them, and what a body or a loop costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

# A planner that tells the problem to the test, and spreads it.
TELLS = """
import pickle
import own

def plan(problem, *, seed=0, **_):
    with open("problem", "wb") as file:
        pickle.dump(problem, file)
    return own.spread(problem, seed=seed)

def told():
    with open("problem", "rb") as file:
        return pickle.load(file)
"""


def told_by(code: str, directory: Path) -> dict[str, Any]:
    """The report of code that has this planner."""
    (directory / "tells.py").write_text(TELLS)
    return run("import tells\n" + code, directory).report


# Every chain has ops of its own names.
CHAINS = """
def variable(name, *shape):
    return v1.get_variable(name, shape, initializer=v1.random_uniform_initializer(-1, 1, seed=1),
                           use_resource=True)

x = v1.placeholder(tf.float32, [8, 16], name="x")
image = v1.placeholder(tf.float32, [2, 8, 8, 3], name="image")
heads = v1.placeholder(tf.float32, [2, 2, 4, 8], name="heads")
mask = v1.placeholder(tf.float32, [2, 1, 4, 4], name="mask")

h = tf.matmul(x, variable("w1", 16, 16), name="dense")
h = tf.nn.relu(tf.nn.bias_add(h, variable("b1", 16), name="dense_bias"), name="dense_relu")
k = tf.matmul(h, variable("w2", 16, 16), name="plus")
k = tf.tanh(tf.add(k, variable("b2", 16), name="plus_bias"), name="plus_tanh")
left = tf.matmul(h, variable("w3", 16, 16), name="left")
right = tf.matmul(k, variable("w4", 16, 16), name="right")
both = tf.nn.relu(tf.add(left, right, name="sum"), name="sum_relu")
twice = tf.matmul(h, variable("w5", 16, 16), name="twice")
twice = tf.nn.bias_add(twice, variable("b5", 16), name="twice_bias") * tf.sigmoid(twice)
bare = tf.tanh(tf.matmul(k, variable("w6", 16, 16), name="bare"), name="bare_tanh")
tall = tf.matmul(k, variable("w7", 16, 16), name="tall")
tall = tf.nn.relu(tf.add(tall, tf.reduce_sum(x, 1, keepdims=True), name="tall_add"))

def convolution(source, name, inputs):
    found = tf.nn.conv2d(source, variable(name + "_w", 3, 3, inputs, 4), 1, "SAME", name=name)
    return tf.nn.bias_add(found, variable(name + "_b", 4), name=name + "_bias")

short = convolution(image, "short", 3)
c = tf.add(convolution(short, "conv", 4), short, name="residual")
c = tf.nn.relu(c, name="residual_relu")
c = tf.nn.conv2d(c, variable("normed_w", 1, 1, 4, 4), 1, "SAME", name="normed")
c, _, _ = v1.nn.fused_batch_norm(c, variable("scale", 4), variable("offset", 4), name="norm")
c = tf.nn.relu(c, name="norm_relu")

scores = tf.matmul(heads, heads, transpose_b=True, name="scores")
scores = tf.add(tf.multiply(scores, 0.25, name="scaled"), mask, name="masked")
scores = tf.stop_gradient(tf.nn.softmax(scores, name="softmax"))  # gradients would read all

loss = sum(tf.reduce_sum(part) for part in (both, twice, bare, tall, c)) * tf.reduce_max(scores)
train = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
rng = np.random.default_rng(0)
feeds = {p: rng.random(p.shape.as_list(), np.float32) for p in (x, image, heads, mask)}
"""

FUSED = [
    {"dense", "dense_bias", "dense_relu"},
    {"plus", "plus_bias", "plus_tanh"},
    {"short", "short_bias"},
    {"conv", "conv_bias", "residual", "residual_relu"},
    {"norm", "norm_relu"},
    {"scores", "scaled", "masked"},
]
ALONE = {"left", "right", "sum", "sum_relu", "twice", "twice_bias", "normed", "softmax"}
ALONE |= {"bare", "bare_tanh", "tall", "tall_add"}


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The units of one training graph, and where its steps ran under two random plans."""
    return told_by(
        f"""
with tf.Graph().as_default():
{"".join("    " + line + chr(10) for line in CHAINS.splitlines())}
    losses = []
    for seed in (None, 1, 2):
        options = {{}} if seed is None else {{"planner": "tells:plan", "seed": seed}}
        with session(**options, **({{"cache": f"{{CACHE}}-{{seed}}"}} if options else {{}})) as s:
            s.run(v1.global_variables_initializer())
            losses.append([float(s.run([loss, train], feeds)[0]) for _ in range(3)])
problem = tells.told()
report(losses=losses, outcomes=outcomes(), differences=differences(),
       units=dict(zip(problem.op_names, problem.units.tolist())),
       types=dict(zip(problem.op_names, problem.op_types)))
""",
        tmp_path_factory.mktemp("chains"),
    )


def test_chains_that_tensorflow_fuses_are_units(chains: dict[str, Any]) -> None:
    units = chains["units"]
    named = set.union(*FUSED) | ALONE
    for chain in FUSED:
        (unit,) = {units[name] for name in chain}
        assert {name for name in named if units[name] == unit} == chain
    for name in ALONE:
        assert [other for other in named if units[other] == units[name]] == [name]


def test_an_activation_that_tensorflow_fuses_is_a_unit_where_no_gradient_reads_it(
    tmp_path: Path,
) -> None:
    report = told_by(
        """
weights = [tf.Variable(normal([32, 32], seed)) for seed in range(4)]
bias = tf.Variable(tf.ones([32]))
activations = {"exact": tf.nn.gelu, "tanh": lambda x: tf.nn.gelu(x, approximate=True),
               "swish": lambda x: x * tf.sigmoid(x), "leaks": lambda x: x + x * tf.sigmoid(x)}

def predict():
    h = tf.ones([8, 32])
    for weight, (name, activation) in zip(weights, activations.items()):
        with tf.name_scope(name):
            h = activation(tf.nn.bias_add(tf.matmul(h, weight), bias))
    return tf.reduce_sum(h)

def train():
    with tf.GradientTape() as tape:
        loss = predict()
    return tape.gradient(loss, weights[0])

found, losses = {}, [float(predict())]
for step in (predict, train):
    for seed in range(3):
        on(planner="tells:plan", seed=seed, min_ops=0, cache=CACHE + step.__name__ + str(seed))
        value = tf.function(step)()
        losses += [float(value)] if step is predict else []
        off()
    problem = tells.told()
    found[step.__name__] = [
        (name, int(unit)) for name, kind, unit in
        zip(problem.op_names, problem.op_types, problem.units.tolist()) if kind != "Const"]
report(found=found, losses=losses, differences=differences(), outcomes=outcomes())
""",
        tmp_path,
    )

    def units(step: str, activation: str) -> list[int]:
        parts = ("MatMul", "BiasAdd", "Gelu", "Sigmoid", "mul", "add")
        return [
            unit
            for name, unit in report["found"][step]
            if name.startswith(tuple(f"{activation}/{part}" for part in parts))
            and "ReadVariableOp" not in name
        ]

    for activation in ("exact", "tanh", "swish"):
        found = units("predict", activation)
        assert len(found) > 3
        assert len(set(found)) == 1
    assert len(set(units("predict", "leaks"))) == 4
    assert len(set(units("train", "exact"))) > 4
    assert report["losses"] == pytest.approx([report["losses"][0]] * 4, rel=1e-4)
    assert report["differences"] == []
    assert report["outcomes"] == ["planned"] * 6


def test_the_gradients_of_a_shared_weight_stay_apart(tmp_path: Path) -> None:
    report = told_by(
        """
on(planner="tells:plan", min_ops=0)
weight, x = tf.Variable(tf.eye(16)), tf.ones([8, 16])

@tf.function
def unrolled():
    with tf.GradientTape() as tape:
        state = x
        for _ in range(3):
            state = tf.tanh(tf.matmul(state, weight))
        loss = tf.reduce_sum(state)
    weight.assign_sub(0.01 * tape.gradient(loss, weight))
    return loss

unrolled()
problem = tells.told()
report(products=[unit for unit, kind in zip(problem.units.tolist(), problem.op_types)
                 if kind in ("MatMul", "AddN")], types=list(problem.op_types))
""",
        tmp_path,
    )
    assert report["types"].count("MatMul") == 3 + 3 + 2  # the last two are to the state
    assert report["types"].count("AddN") == 1
    assert len(set(report["products"])) == len(report["products"])


def test_a_random_plan_of_these_units_is_what_runs(chains: dict[str, Any]) -> None:
    assert chains["outcomes"] == ["planned"] * 2
    assert chains["differences"] == []
    alone, *planned = chains["losses"]
    for losses in planned:
        assert losses == pytest.approx(alone, rel=1e-4)


def test_what_reads_a_dataset_stays_where_its_cache_and_seeds_are(tmp_path: Path) -> None:
    report = told_by(
        """
tf.random.set_seed(4)
weight = tf.Variable(tf.ones([64, 64]))

@tf.function
def epoch(data):
    product = tf.matmul(weight, weight)
    data = tf.identity(data._variant_tensor, name="passes")
    data = tf.raw_ops.TakeDataset(input_dataset=data, count=3, output_types=[tf.int64],
                                  output_shapes=[[]], name="takes")
    data = tf.data.experimental.from_variant(data, tf.TensorSpec([], tf.int64))
    return data.reduce(tf.constant(0, tf.int64), lambda a, b: 10 * a + b), product

def epochs(seed):
    data = tf.data.Dataset.range(9).cache().shuffle(9, seed=5)
    epoch_of_seed = tf.function(epoch.python_function)
    if seed is not None:
        on(planner="tells:plan", min_ops=0, seed=seed, cache=CACHE + str(seed))
    found = [int(epoch_of_seed(data)[0]) for _ in range(3)]
    return found

results = [epochs(seed) for seed in (None, 1, 2, 3)]
problem = tells.told()
report(results=results, outcomes=outcomes(),
       units=dict(zip(problem.op_names, problem.units.tolist())))
""",
        tmp_path,
    )
    units = report["units"]
    assert units["passes"] == units["takes"] == units["ReduceDataset"] == units["data"]
    assert units["MatMul"] != units["ReduceDataset"]
    alone, *planned = report["results"]
    assert planned == [alone] * 3
    assert report["outcomes"][:1] == ["planned"]


def test_what_xla_compiles_stays_with_its_variables(tmp_path: Path) -> None:
    """Compiled for another device than theirs it fails; and nobody knows what it takes there."""
    report = run(
        """
x, w = normal([8, 8], 1), tf.Variable(normal([8, 8], 2))

@tf.function(jit_compile=True)
def train(x):
    w.assign_sub(0.01 * tf.matmul(x, w))
    return tf.reduce_sum(w)

@tf.function(jit_compile=True)
def square(x):
    return tf.reduce_sum(x * x)

@tf.function
def step(x):
    return train(x) + square(x) + tf.reduce_sum(tf.tanh(x @ x))

def losses():
    w.assign(normal([8, 8], 2))
    return [float(step(x)) for _ in range(3)]

alone = losses()
on(planner="own:last", min_ops=0)
planned = losses()
plan = hp.load_plan(plugin.history()[-1].store_path)
report(alone=alone, planned=planned, assumptions=plan.assumptions,
       devices=dict(zip(plan.node_names, plan.node_devices.tolist())))
""",
        tmp_path,
    ).report
    assert report["planned"] == report["alone"]
    calls = {name: at for name, at in report["devices"].items() if "PartitionedCall" in name}
    assert set(calls.values()) <= {0}
    assert 1 in report["devices"].values()
    assert any("ops that XLA compiles: 2, " in said for said in report["assumptions"])


TYPED = """
from hplacer_optimizer.capture.loading import load_graph

def build(device):
    with tf.device(device):
        images = v1.get_variable("images", (2, 4, 4, 3), use_resource=True)
        scale, offset = (v1.get_variable(name, 3, use_resource=True) for name in ("a", "b"))
        normed, mean, variance = v1.nn.fused_batch_norm(images * 2.0, scale, offset)
        drawn = tf.random.categorical(tf.reshape(normed, [-1, 3]), 2)
        loss = tf.reduce_sum(tf.tanh(normed)) * tf.reduce_sum(tf.cast(drawn, tf.float32))
        return v1.train.GradientDescentOptimizer(0.1).minimize(loss)

def allowed(device):
    with tf.Graph().as_default() as graph:
        target = build(device)
    problem = load_graph(graph, machine="2xa100", targets=[target]).problem
    found = {}
    for op, (kind, name) in enumerate(zip(problem.op_types, problem.op_names)):
        devices = problem.allowed_device[problem.allowed_ptr[op] : problem.allowed_ptr[op + 1]]
        found[kind] = sorted(problem.device_names[device].split(":")[-2] for device in devices)
    return {kind: found[kind] for kind in KINDS}

report(free=allowed(None), pinned=allowed("/CPU:0"))
"""


def test_what_kernels_of_cpus_and_gpus_disagree_about_keeps_its_type(tmp_path: Path) -> None:
    kinds = ["FusedBatchNormV3", "FusedBatchNormGradV3", "Multinomial", "Tanh"]
    found = run(f"KINDS = {kinds}\n{TYPED}", tmp_path).report
    assert found["free"].pop("Tanh") == ["CPU", "GPU", "GPU"]
    assert all(types == ["GPU", "GPU"] for types in found["free"].values())
    assert all(types == ["CPU"] for types in found["pinned"].values())


def test_a_body_costs_what_its_shapes_and_attributes_ask(tmp_path: Path) -> None:
    report = told_by(
        """
from tensorflow.python.framework import function

@function.Defun(tf.float32, noinline=True)
def gram(x):
    return tf.matmul(x, x, transpose_b=True)

with tf.Graph().as_default(), session(planner="tells:plan", min_ops=0) as s:
    small, large = (v1.placeholder(tf.float32, [n, 64]) for n in (16, 512))
    calls = [gram(small, name="small"), gram(large, name="large"), gram(large, name="equal")]
    direct = tf.matmul(large, large, transpose_b=True, name="direct")
    s.run(tf.add_n([tf.reduce_sum(call) for call in [*calls, direct]]),
          {small: np.ones((16, 64)), large: np.ones((512, 64))})
problem = tells.told()
cost_ns = dict(zip(problem.op_names, problem.cost_ns[:, 0].tolist()))
report(cost_ns={name: cost_ns[name] for name in ("small", "large", "equal", "direct")})
""",
        tmp_path,
    )
    cost_ns = report["cost_ns"]
    assert cost_ns["large"] == cost_ns["equal"]
    assert cost_ns["small"] < cost_ns["large"] / 4
    assert cost_ns["large"] == pytest.approx(cost_ns["direct"], rel=0.2)


def test_the_trips_of_a_loop_are_found_once_per_value(tmp_path: Path) -> None:
    report = told_by(
        """
v1.disable_control_flow_v2()
with tf.Graph().as_default(), session(planner="tells:plan", min_ops=0) as s:
    def loop(name, limit, start=0):
        with tf.name_scope(name):
            return tf.while_loop(lambda i, y: i < limit, lambda i, y: (i + 1, tf.tanh(y @ y)),
                                 [tf.constant(start), tf.ones([64, 64])])[1]
    deep = tf.constant(1)
    for _ in range(40):  # each value is read twice
        deep = tf.minimum(deep + deep, 12)
    loops = [loop("constant", 12), loop("deep", deep), loop("nan", float("nan"), 0.0)]
    s.run(tf.add_n([tf.reduce_sum(y) for y in loops]))
problem = tells.told()
report(costs=[[name, ns] for name, ns in zip(problem.op_names, problem.cost_ns[:, 0].tolist())],
       assumptions=hp.load_plan(plugin.history()[-1].store_path).assumptions)
""",
        tmp_path,
    )
    costs = {
        name.partition("/")[0]: ns
        for name, ns in report["costs"]
        if name.startswith(("constant/while", "deep/while", "nan/while"))
    }
    assert costs["deep"] == costs["constant"]
    assert costs["nan"] == pytest.approx(costs["constant"] * 10 / 12, rel=0.01)
    assert "1 while loops without a constant bound" in " ".join(report["assumptions"])
