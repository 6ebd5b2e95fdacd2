"""Option `bitwise`: the numbers of TensorFlow's own placement, to the last bit, with many cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

COMPARE = """
def compare(train, bitwise=2, plain=0, **options):
    "Losses alone, alone again, and with so many plans that spread every unit at random."
    def planned(count, bitwise):
        found = []
        for seed in range(count):
            chosen = {"seed": seed, "cache": CACHE + str(seed), "bitwise": bitwise} | options
            on(**chosen)
            found.append(train(**chosen))
            off()
        return found
    return {"alone": train(), "again": train(), "bitwise": planned(bitwise, True),
            "plain": planned(plain, False)}

def devices(graphs):
    return sorted({node.device[-5:] for graph in graphs for node in graph.node})
"""


def check_bits(found: dict[str, list[object]]) -> None:
    assert found["alone"] == found["again"]  # else TensorFlow itself is not deterministic here
    assert found["bitwise"] == [found["alone"]] * len(found["bitwise"])


# Grappler adds in another order, all of one shape first, but only what is on one device. Such sums
# of several shapes are no units.
SUMS = """
def nested_sum(terms):
    total = terms[0]
    for i, term in enumerate(terms[1:]):
        total = (term if i % 2 else tf.tanh(term[..., :1])) + total
    return total
"""


def test_a_function_keeps_its_bits_only_with_the_option(tmp_path: Path) -> None:
    report = run(
        COMPARE
        + SUMS
        + """
from tensorflow.python.eager import context
x = normal([64], 1)

def train(**_):
    step = tf.function(lambda x: tf.stack([
        add([tf.tanh(x * (12.0 * k + i)) for i in range(1, 12)])
        for k in range(8) for add in [nested_sum if k < 4 else tf.add_n]]))
    return [step(x * k).numpy().tolist() for k in (1.0, 0.7, 0.3)]
found = compare(train, plain=2)

on(seed=0, cache=CACHE + "0", bitwise=True)
context.context().enable_graph_collection()
train()
metadata = context.context().export_run_metadata()
executed = max((graph.partition_graphs for graph in metadata.function_graphs),
               key=lambda graphs: sum(len(graph.node) for graph in graphs))
made = [node.op for graph in executed for node in graph.node
        if "ArithmeticOptimizer" in node.name and node.device.endswith("CPU:1")]
first_summands = [op for graph in executed
                  for ops in [{node.name: node.op for node in graph.node}]
                  for op in [ops[node.input[0].split(":")[0]]
                             for node in graph.node if node.op == "AddN"]]
report(found=found, devices=devices(executed), made=made, first_summands=first_summands,
       differences=differences(),
       planned=[check.planned for check in hp.step_checks()], outcomes=outcomes())
""",
        tmp_path,
    ).report
    check_bits(report["found"])
    assert report["found"]["alone"] not in report["found"]["plain"]
    assert report["devices"] == ["CPU:0", "CPU:1"]
    assert report["made"]  # what Grappler made goes along
    # The order of a sum depends on whether the memory of its first summand is free: not received.
    assert report["first_summands"] == ["Tanh"] * 12
    assert report["differences"] == []
    assert all(report["planned"])
    # A plan serves both: the option changes when its devices take effect, not the plan.
    assert report["outcomes"] == ["planned"] * 2 + ["loaded"] * 3


SESSION = (
    COMPARE
    + SUMS
    + """
def train(resource=True, pruned=False, **options):
    "A session whose graph grows after the variables were initialised on their devices."
    with tf.Graph().as_default():
        def variable(name):
            value = np.random.RandomState(len(name)).randn(64).astype(np.float32)
            return v1.get_variable(name, initializer=v1.constant(value), use_resource=resource)
        a, b = ([variable(letter * (i + 1)) for i in range(4)] for letter in "ab")
        x = v1.placeholder(tf.float32, [64])
        loss = tf.reduce_sum(nested_sum([tf.tanh(x * a[i] + b[i]) for i in range(4)]))
        update = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        config = v1.ConfigProto()
        config.graph_options.place_pruned_graph = pruned
        with session(config=config, **options) as running:
            def steps():
                batches = np.random.RandomState(1).randn(3, 64)
                return [float(running.run([loss, update], {x: batch})[0]) for batch in batches]
            running.run(v1.global_variables_initializer())
            found = steps()
            new = variable("new")
            running.run(new.initializer)
            found += [float(running.run(tf.reduce_sum(new * a[0] + b[1] * a[0])))] + steps()
            metadata = v1.RunMetadata()
            traced = v1.RunOptions(output_partition_graphs=True)
            found += [float(v.sum()) for v in running.run(a + b, None, traced, metadata)]
            executed.append(devices(metadata.partition_graphs))
            return found
executed = []
"""
)


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_variables_of_a_session_stay_where_they_are_when_its_graph_grows(
    tmp_path: Path, resource: bool
) -> None:
    report = run(
        SESSION
        + f"""
def run_all(**kinds):
    return lambda **options: train(resource={resource}, **kinds, **options)
report(found=compare(run_all(), min_ops=10), pruned=compare(run_all(pruned=True), 1, min_ops=10),
       executed=executed, differences=differences(), outcomes=outcomes())
""",
        tmp_path,
    ).report
    check_bits(report["found"])
    check_bits(report["pruned"])
    assert ["CPU:0", "CPU:1"] in report["executed"]
    assert report["differences"] == []
    assert "failed" not in report["outcomes"]


def test_only_devices_of_one_kind_may_be_planned() -> None:
    from hplacer_optimizer.capture import native

    tf_module = native.load()

    def kept(*devices: tuple[str, str, bool]) -> list[bool]:
        given = [
            tf_module.SessionDevice(
                name=f"/job:localhost/replica:0/task:0/device:{kind}:{index}",
                type=kind,
                description=model and f"device: {index}, name: {model}, pci bus id: 0000:0{index}",
                may_plan=may_plan,
            )
            for index, (kind, model, may_plan) in enumerate(devices)
        ]
        return [device.may_plan for device in tf_module.keep_one_kind(given)]

    assert kept(("CPU", "", True), ("CPU", "", True)) == [True, True]
    assert kept(("CPU", "", True), ("GPU", "A", True), ("GPU", "A", True)) == [False, True, True]
    assert kept(("CPU", "", True), ("GPU", "A", False), ("CPU", "", True)) == [True, False, True]
    assert kept(("GPU", "A", False), ("GPU", "B", True), ("GPU", "A", True)) == [False, True, False]
    assert kept(("CPU", "", False)) == [False]


# ---- models ----


# The models of the first list show something: without the option their numbers change.
