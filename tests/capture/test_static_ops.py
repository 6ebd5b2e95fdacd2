"""Ops that TensorFlow replaces by constants: which they are, and which edges the problem loses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.processes import run

HELPERS = """
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.costs.table import CostTable, MeasuredCost

raw = tf.raw_ops

def numbers(*shape, dtype=tf.float32):
    return v1.placeholder(dtype, shape)

def loaded(build, machine="2hosts-2xcpu", **options):
    with tf.Graph().as_default() as graph:
        target = tf.group(*build(), name="target")
    return load_graph(graph, machine=machine, targets=[target], **options)

def static(found):
    names, flags = found.problem.op_names, found.captured.is_static
    return sorted(name for name, flag in zip(names, flags) if flag)

def edges(found):
    names = found.problem.op_names
    data = sorted({(names[a], names[b]) for a, _, b in found.problem.edges.tolist()})
    control = sorted({(names[a], names[b]) for a, b in found.problem.control_edges.tolist()
                      if names[b] != "target"})
    return {"data": data, "control": control}
"""


def found_by(code: str, directory: Path) -> dict[str, Any]:
    return run(HELPERS + code, directory).report


# ---- which ops are constants ----


def test_what_follows_from_known_shapes_is_a_constant(tmp_path: Path) -> None:
    found = found_by(
        """
def build():
    known, open = numbers(4, 8), numbers(None, 8)
    half_open = raw.ShapeN(input=[known, open], name="half_open_shapes")
    return [
        raw.Shape(input=known, name="shape"), raw.Shape(input=open, name="open_shape"),
        raw.Size(input=known, name="size"), raw.Size(input=open, name="open_size"),
        raw.Rank(input=open, name="open_rank"),
        raw.ShapeN(input=[known, known], name="shapes"), half_open[0],
        raw.ZerosLike(x=known, name="zeros"), raw.OnesLike(x=open, name="open_ones"),
        raw.Shape(input=raw.MatMul(a=open, b=open, transpose_a=True), name="of_product"),
    ]
report(assumed=static(loaded(build)), given=static(loaded(build, batch_size=7)))
""",
        tmp_path,
    )
    # The batch size is our assumption, given or not: TensorFlow does not have it.
    assert found["assumed"] == ["of_product", "open_rank", "shape", "shapes", "size", "zeros"]
    assert found["given"] == found["assumed"]


def test_what_reads_constants_only_is_a_constant(tmp_path: Path) -> None:
    found = found_by(
        """
def build():
    x = numbers(4, 8)
    two = tf.constant([2, 2], name="two")
    once = raw.Mul(x=raw.Shape(input=x, name="shape"), y=two, name="once")
    sizes = raw.BroadcastGradientArgs(s0=once, s1=two, name="reduced")
    text = tf.constant("text", name="text")
    fill = raw.Fill(dims=tf.constant([600, 600], name="dims"), value=1.0, name="fill")
    return [
        *sizes, raw.StatelessRandomUniform(shape=once, seed=two, name="stateless"),
        raw.RandomUniform(shape=two, dtype=tf.float32, name="stateful"),
        raw.StringLength(input=text, name="length"), raw.AddV2(x=x, y=1.0, name="reads_x"),
        raw.Tile(input=tf.zeros([256], name="row"), multiples=[100], name="tile_100kb"),
        raw.Tile(input=tf.zeros([256], name="wide"), multiples=[101], name="tile_101kb"),
        raw.Neg(x=fill, name="as_large_as_its_input"),
        v1.placeholder_with_default(two, [2], name="fed"),
        raw.Switch(data=two, pred=tf.constant(True, name="branch"), name="switch")[1],
    ]
report(static=static(loaded(build)))
""",
        tmp_path,
    )
    constants = {name for name in found["static"] if not re.search(r"/|^Const", name)}
    assert constants - {"two", "text", "dims", "row", "wide", "branch"} == {
        "shape",
        "once",
        "reduced",
        "stateless",
        "tile_100kb",
        "fill",
        "as_large_as_its_input",
    }


def test_targets_are_computed(tmp_path: Path) -> None:
    found = found_by(
        """
with tf.Graph().as_default() as graph:
    a = tf.constant([1.0, 2.0], name="a")
    b = raw.Neg(x=raw.Neg(x=a, name="inner"), name="outer")
report(static=static(load_graph(graph, machine="2hosts-2xcpu", targets=["outer"])))
""",
        tmp_path,
    )
    assert found["static"] == ["a", "inner"]


def test_a_function_knows_the_shapes_of_its_arguments(tmp_path: Path) -> None:
    found = found_by(
        """
@tf.function
def shapes(x):
    return x * tf.cast(raw.Shape(input=x, name="shape")[0], tf.float32)

concrete = [shapes.get_concrete_function(tf.TensorSpec([size, 8])) for size in (4, None)]
report(static=["shape" in static(load_graph(f, machine="2hosts-2xcpu")) for f in concrete])
""",
        tmp_path,
    )
    assert found["static"] == [True, False]


# ---- what the problem loses ----

GRADIENT = """
def build():
    x = raw.Tanh(x=numbers(4, 8), name="x")
    shape = raw.Shape(input=x, name="shape")
    total = raw.Prod(input=shape, axis=tf.constant([0], name="axis"), name="total")
    y = raw.CheckNumerics(tensor=numbers(4, 8), message="", name="y")
    with tf.control_dependencies([y, total]):
        after = raw.Identity(input=total, name="after")
    with tf.control_dependencies([after]):
        flat = raw.Reshape(tensor=x, shape=raw.Pack(values=[after], name="packed"), name="flat")
    zeros = raw.Reshape(tensor=tf.zeros([32], name="zeros"), shape=shape, name="reshaped")
    return [flat, raw.Mul(x=zeros, y=x, name="product")]
"""


def test_constants_read_nothing(tmp_path: Path) -> None:
    found = found_by(
        GRADIENT
        + """
found = loaded(build)
problem = found.problem
index = problem.op_names.index
report(**edges(found), units=found.captured.units.tolist(),
       cost=[problem.cost_ns[index(name)].tolist() for name in ("packed", "reshaped")],
       alias=[int(problem.output_alias_src[problem.output_ptr[index(name)]])
              for name in ("after", "reshaped", "flat")],
       x=index("x"))
""",
        tmp_path,
    )
    assert found["data"] == [
        ["Placeholder", "x"],
        ["Placeholder_1", "y"],
        ["packed", "flat"],
        ["reshaped", "product"],
        ["x", "flat"],
        ["x", "product"],
    ]
    # A constant waits for an op that computes, and for the constants that it was computed from.
    assert found["control"] == [["y", "packed"]]
    assert found["cost"][0] == found["cost"][1] > [0, 0]
    # A constant owns its buffer.
    assert found["alias"] == [-1, -1, found["x"]]


def test_units_and_fingerprint_are_those_of_the_whole_graph(tmp_path: Path) -> None:
    found = found_by(
        """
def build(axis=0):
    x, y = numbers(4, 8), numbers(4, 8)
    with tf.compat.v1.colocate_with(x.op):
        shape = raw.Shape(input=(x, y)[axis], name="shape")
    return [raw.Reshape(tensor=raw.Tanh(x=y, name="read"), shape=shape, name="reshape")]

first, second = (loaded(lambda: build(axis)) for axis in (0, 1))
index = first.problem.op_names.index
report(edges=edges(first)["data"], units=[int(first.captured.units[index(name)])
                                          for name in ("Placeholder", "shape", "read")],
       fingerprints=[first.captured.fingerprint, second.captured.fingerprint])
""",
        tmp_path,
    )
    assert ["Placeholder", "shape"] not in found["edges"]
    placeholder, shape, read = found["units"]
    assert placeholder == shape != read
    # The graphs differ only in an edge that the problem leaves out.
    assert len(set(found["fingerprints"])) == 2


def test_small_constants_are_copied_between_processes(tmp_path: Path) -> None:
    """Those that several ops read, if they are small, count for the first of these."""
    found = found_by(
        """
def build():
    x, y = raw.Tanh(x=numbers(32), name="x"), raw.Tanh(x=numbers(32), name="y")
    both, one = tf.constant(2.0, name="both"), tf.constant(3.0, name="one")
    large = tf.ones([32], name="large")
    return [raw.Mul(x=x, y=both, name="a"), raw.Mul(x=y, y=both, name="b"),
            raw.Mul(x=x, y=one, name="c"), raw.Add(x=x, y=large, name="d"),
            raw.Add(x=y, y=large, name="e")]

def readers(machine):
    pairs = edges(loaded(build, machine=machine))["data"]
    return {name: sum(source == name for source, _ in pairs) for name in ("both", "one", "large")}

report(hosts=readers("2hosts-2xcpu"), host=readers("1cpu-2xk40"))
""",
        tmp_path,
    )
    assert found["hosts"] == {"both": 1, "one": 1, "large": 2}
    assert found["host"] == {"both": 2, "one": 1, "large": 2}
