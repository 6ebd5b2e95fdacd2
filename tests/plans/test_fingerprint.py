"""Which changes of a program find the stored plan again, over real graphs in the pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

# A model with parameters for everything that may or may not change its fingerprint.
MODEL = """
on()
set_options({"constant_folding": False, "arithmetic_optimization": False, "remapping": False})

def build(scope="", swapped=False, seed=1, rate=0.1, width=16, crossed=False, pin=None, batch=4):
    "One tf.function that trains; the arguments say how it differs from the usual one."
    shapes = [[3, 3, 1, 2], [32, width], [32, width], [width, 1]]
    kernel, w1, w2, w3 = (tf.Variable(normal(s, seed + i)) for i, s in enumerate(shapes))
    x = normal([batch, 4, 4, 1], 9)

    def train_step(x):
        with tf.name_scope(scope or "usual"), tf.GradientTape() as tape:
            image = tf.nn.conv2d(x, kernel, 1, "SAME")
            flat = tf.reshape(image, [batch, -1])
            def first(): return tf.nn.relu(tf.matmul(flat, read1, name=scope + "first"))
            # Kept out of `swapped`: the order of arguments, and of the terms of a gradient.
            read1, read2, apart = w1.read_value(), w2.read_value(), tf.stop_gradient(flat)
            def second(): return tf.nn.tanh(tf.matmul(apart, read2, name=scope + "second"))
            if swapped:
                b, a = second(), first()
            else:
                a, b = first(), second()
            if crossed:
                a, b = b, a
            with tf.device(pin) if pin else contextlib.nullcontext():
                c = a * a - b
            loss = tf.reduce_mean(tf.matmul(c, w3) ** 2)
        variables = [kernel, w1, w2, w3]
        for v, d in zip(variables, tape.gradient(loss, variables)):
            v.assign_sub(rate * d)
        return loss
    function = tf.function(train_step)
    return lambda: float(function(x))

def placed(seed_of_plan=0, steps=2, **arguments):
    "What the pass did with the model, and whether the numbers are those of the unplanned run."
    start = len(plugin.history())
    on(seed=seed_of_plan)
    step = build(**arguments)
    planned = [step() for _ in range(steps)]
    entry = plugin.history()[start]
    assert len(plugin.history()) == start + 1
    off()
    step = build(**arguments)
    expected = [step() for _ in range(steps)]
    assert np.allclose(planned, expected, rtol=1e-5), (planned, expected)
    assert not differences(entry.fingerprint)
    return {"key": entry.fingerprint, "outcome": entry.outcome, "placed": entry.placed,
            "reason": entry.reason}
"""

SAME = {
    "a new function": "",
    "renamed ops": "scope='renamed'",
    "another order of creation": "swapped=True",
    "both": "scope='renamed_again', swapped=True",
    "another seed": "seed=20",
    "another learning rate": "rate=0.02",
}
OTHER = {
    "variable shape": "width=24",
    "batch size": "batch=8",
    "edge": "crossed=True",
    "pin": "pin='CPU:1'",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process that runs the model with every change; then the first model in a second one."""
    directory = tmp_path_factory.mktemp("fingerprints")
    cases = [*SAME.items(), *OTHER.items()]
    lines = "\n".join(f"cases[{name!r}] = placed({arguments})" for name, arguments in cases)
    first = run(
        MODEL
        + f"""
usual = placed()
cases = {{}}
{lines}
report(usual=usual, cases=cases, differences=differences())
""",
        directory,
    )
    assert first.log == []
    second = run(MODEL + "report(usual=placed(), renamed=placed(scope='x'))", directory, fresh=True)
    assert second.log == []
    return first.report | {"second": second.report}


def test_the_same_program_hits_in_the_next_process(program: dict[str, Any]) -> None:
    assert program["usual"]["outcome"] == "planned"
    assert program["usual"]["placed"] > 20
    for case in program["second"].values():
        assert case["key"] == program["usual"]["key"]
        assert case["outcome"] == "loaded"
        assert case["placed"] == program["usual"]["placed"]


@pytest.mark.parametrize("change", SAME)
def test_what_changes_nothing(program: dict[str, Any], change: str) -> None:
    case = program["cases"][change]
    assert case["key"] == program["usual"]["key"]
    assert (case["outcome"], case["reason"]) == ("loaded", "")
    assert case["placed"] == program["usual"]["placed"]


@pytest.mark.parametrize("change", OTHER)
def test_what_changes_the_graph(program: dict[str, Any], change: str) -> None:
    case = program["cases"][change]
    assert case["key"] != program["usual"]["key"]
    assert case["outcome"] == "planned"


def test_each_graph_is_compared_with_its_own_plan(program: dict[str, Any]) -> None:
    """Although the node names of all these graphs are nearly the same."""
    assert program["differences"] == []


def test_names_inside_attributes_do_not_count(tmp_path: Path) -> None:
    """Loop frames, variables, TensorArrays and Python functions carry names of their own."""
    report = run(
        """
on()

def key(body, scope, v1_loops=False):
    start = len(plugin.history())
    w = tf.Variable(normal([8, 8], 1))

    @tf.function
    def train_step(x):
        with tf.name_scope(scope):
            y = body(x, w)
            for _ in range(10):
                y = tf.tanh(y)
            w.assign_sub(0.1 * tf.reduce_sum(y) * w)
            return tf.reduce_sum(y)

    train_step(normal([8, 8], 2))
    return plugin.history()[start].fingerprint

def loop(x, w):
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.matmul(y, w)), [0, x])[1]

def python(x, w):
    return tf.ensure_shape(tf.py_function(lambda y: y + 1, [x], tf.float32), [8, 8])

def array(x, w):
    return tf.map_fn(lambda row: row * 2.0, x)

def session_key(scope, resource):
    start = len(plugin.history())
    with tf.Graph().as_default():
        with tf.name_scope(scope), v1.variable_scope(scope):
            w = v1.get_variable("w", [8, 8], use_resource=resource)
            x = tf.ones([8, 8])
            for _ in range(8):
                x = tf.tanh(tf.matmul(x, w))
            train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(x))
        with session(min_ops=20) as running:
            running.run(v1.global_variables_initializer())
            running.run(train)
    return plugin.history()[start].fingerprint

report(loop=[key(loop, s) for s in "ab"], python=[key(python, s) for s in "ab"],
       array=[key(array, s) for s in "ab"],
       resource_variable=[session_key(s, True) for s in "ab"],
       reference_variable=[session_key(s, False) for s in "ab"])
""",
        tmp_path,
    ).report
    different = [name for name, (first, second) in report.items() if first != second]
    assert different == []
