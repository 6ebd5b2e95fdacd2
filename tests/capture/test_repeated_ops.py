"""Equal ops, of which TensorFlow runs one on a device.

The problem has one of them if that saves bytes or they are together anyway. Else it counts one of
many. Of constants it says which are the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

CODE = """
from collections import Counter
from hplacer_optimizer.capture.loading import load_graph

def built(terms):
    "A loss of so many alike terms, and what looks alike and is not."
    x = v1.placeholder(tf.float32, [64, 512], name="x")
    weight = v1.get_variable("weight", [512, 512], use_resource=True)
    hidden = [tf.tanh((x + i) @ weight) for i in range(terms)]
    loss = tf.add_n([tf.reduce_mean(tf.square(h)) for h in hidden])
    noise = [tf.reduce_sum(tf.exp(v1.random_uniform([64, 512]))) for _ in range(terms)]
    scaled = [tf.reduce_sum(tf.exp(x * (i + 2.0))) for i in range(terms)]
    around = [[0, 0], [0, 8]]
    for i in range(terms):
        either = [tf.sinh(x), tf.pad(x, around, "SYMMETRIC")[:, 8:]]
        one = tf.math.squared_difference(*either[:: (-1) ** i])
        with v1.colocate_with(hidden[0]):
            scaled.append(tf.reduce_sum((one + tf.pad(x, around)[:, 8:]) * (i + 4.0)))
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    late = []
    for i in range(terms):
        for value in (2.0, i + 3.0):
            with tf.control_dependencies([loss]):
                late.append(tf.reduce_sum(hidden[i]) * tf.constant(value, name="late"))
    with tf.control_dependencies([loss]):
        again = tf.identity(x, name="waits")
    late += [tf.reduce_sum(tf.cosh(x)), tf.reduce_sum(tf.cosh(again))]
    seen = v1.get_variable("seen", [5 * terms + 2], use_resource=True)
    return tf.group(train, seen.assign(tf.stack([*noise, *scaled, *late])).op, name="target")

def compared(terms):
    "By type, of ops that TensorFlow may merge: those that the problem counts, and those that ran."
    with tf.Graph().as_default() as graph:
        target = built(terms)
        loaded = load_graph(graph, machine="2hosts-2xcpu", targets=[target])
        metadata = v1.RunMetadata()
        with v1.Session(graph=graph) as running:
            running.run(v1.global_variables_initializer())
            running.run(target, {"x:0": np.zeros([64, 512])},
                        v1.RunOptions(output_partition_graphs=True), metadata)
    problem, repeated = loaded.problem, loaded.captured.is_repeated
    kinds = ("Tile", "Exp", "RandomUniform", "Tanh", "Sinh", "Cosh", "Pad", "MirrorPad",
             "SquaredDifference")
    kept = ~(repeated | loaded.captured.is_removed)
    counted = Counter(kind for kind, is_kept in zip(problem.op_types, kept) if is_kept)
    nodes = [node for part in metadata.partition_graphs for node in part.node]
    ran = Counter(node.op for node in nodes)
    names_counted = {name for name, kind, is_kept in
                     zip(problem.op_names, problem.op_types, kept) if is_kept and kind in kinds}
    names_ran = {node.name for node in nodes if node.op in kinds}
    late = [op for op, name in enumerate(problem.op_names) if name.startswith("late")]
    late_ran = [node for node in nodes if node.name.startswith("late") and node.op == "Const"]
    costs = problem.cost_ns[repeated, 0]
    joined = repeated & loaded.captured.is_removed
    return {"counted": {kind: counted[kind] for kind in kinds},
            "ran": {kind: ran[kind] for kind in kinds},
            "only_counted": sorted(names_counted - names_ran),
            "only_ran": sorted(names_ran - names_counted),
            "late": [len({op if problem.same_as[op] < 0 else int(problem.same_as[op])
                          for op in late}), len(late_ran)],
            "repeated": sorted({problem.op_types[op] for op in np.flatnonzero(repeated & ~joined)}),
            "joined": sorted({problem.op_types[op] for op in np.flatnonzero(joined)}),
            "dearest": int(costs.max(initial=0)), "cheapest": int(problem.cost_ns[kept, 0].max())}

report(many=compared(5), few=compared(2))
"""


def test_of_equal_ops_those_count_that_tensorflow_runs(tmp_path: Path) -> None:
    report = run(CODE, tmp_path, HPLACER_DISABLE="1").report
    many, few = report["many"], report["few"]
    one_of_each = {
        "Tile": 1,
        "Sinh": 1,
        "Cosh": 2,
        "Pad": 1,
        "MirrorPad": 1,
        "SquaredDifference": 1,
    }
    assert (
        many["counted"] == many["ran"] == {**one_of_each, "Exp": 10, "RandomUniform": 5, "Tanh": 5}
    )
    # Of equal ones, those that TensorFlow keeps.
    assert many["only_counted"] == many["only_ran"] == few["only_ran"] == []
    assert {"Tile", "RealDiv", "MirrorPad"} <= {*many["repeated"]}
    assert many["late"] == [6, 6]
    assert few["late"] == [3, 3]
    assert many["dearest"] < many["cheapest"] / 10
    # Each of two devices may run one of two, unless a plan keeps both on one.
    assert few["ran"] == {**one_of_each, "Exp": 4, "RandomUniform": 2, "Tanh": 2}
    assert few["counted"] == {**few["ran"], "Tile": 2, "MirrorPad": 2, "SquaredDifference": 2}
    assert few["repeated"] == []
    assert {"Sinh", "Pad"} <= {*few["joined"]}
