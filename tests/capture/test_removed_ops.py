"""Ops that TensorFlow removes before a step: which they are, and what the problem keeps of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.processes import run

HELPERS = """
from pathlib import Path
from hplacer_optimizer.bench import small_graphs
from hplacer_optimizer.capture.loading import load_graph

raw = tf.raw_ops

def number(name):
    return v1.placeholder(tf.float32, [4], name=name)

def written(name):
    path = Path(CACHE + ".meta")
    small_graphs.write(name, path)
    return path

def told(build, **options):
    with tf.Graph().as_default() as graph:
        targets = build()
    found = load_graph(graph, machine="2hosts-2xcpu", targets=targets, **options)
    problem, names = found.problem, found.problem.op_names
    return {
        "removed": sorted(n for n, gone in zip(names, found.captured.is_removed) if gone),
        "data": sorted((names[a], names[b]) for a, _, b in problem.edges.tolist()),
        "control": sorted((names[a], names[b]) for a, b in problem.control_edges.tolist()),
        "unit": dict(zip(names, problem.units.tolist())),
        "cost": dict(zip(names, problem.cost_ns[:, 0].tolist())),
        "bytes": {name: int(problem.output_bytes[first:last].sum()) for name, first, last in
                  zip(names, problem.output_ptr, problem.output_ptr[1:])},
    }
"""


def told_by(code: str, directory: Path) -> dict[str, Any]:
    return run(HELPERS + code, directory).report


def test_what_nobody_reads_is_not_computed(tmp_path: Path) -> None:
    """A group keeps the gradients of one op together, also those that nobody wants."""
    told = told_by(
        """
def build():
    x = number("x")
    wanted, exp = raw.Neg(x=x, name="wanted"), raw.Exp(x=x, name="exp")
    with tf.control_dependencies([wanted, raw.Tanh(x=exp, name="tanh")]):
        group = tf.no_op(name="group")
    with tf.control_dependencies([group]):
        read = tf.identity(wanted, name="read")
    return [raw.Abs(x=read, name="end")]
report(**told(build))
""",
        tmp_path,
    )
    assert told["removed"] == ["exp", "group", "tanh"]
    # "read" waits for x, but so does what it reads.
    assert told["data"] == [["read", "end"], ["wanted", "read"], ["x", "wanted"]]
    assert told["control"] == []
    assert {told[of][name] for of in ("cost", "bytes") for name in told["removed"]} == {0}
    # What is removed is of the unit of a neighbour.
    kept = {told["unit"][name] for name in ("x", "wanted", "read", "end")}
    assert len(kept) == 4
    assert {told["unit"][name] for name in told["removed"]} < kept


def test_what_has_effects_or_is_a_target_is_kept(tmp_path: Path) -> None:
    told = told_by(
        """
def build():
    x = number("x")
    variable = v1.get_variable("v", [4], initializer=v1.zeros_initializer(), use_resource=True)
    assign = raw.AssignVariableOp(resource=variable.handle, value=raw.Neg(x=x, name="neg"))
    checked = raw.CheckNumerics(tensor=x, message="", name="checked")
    asked = raw.Exp(x=x, name="asked")
    with tf.control_dependencies([assign, checked]):
        between = tf.no_op(name="between")
    with tf.control_dependencies([between]):
        last = tf.identity(asked, name="last")
    target = tf.group(raw.Tanh(x=x, name="of_target"), name="target")
    return [target, raw.Neg(x=last, name="end")]
report(**told(build))
""",
        tmp_path,
    )
    assert told["removed"] == ["between"]
    assert told["control"] == [
        ["AssignVariableOp", "last"],
        ["checked", "last"],
        ["of_target", "target"],
    ]


def test_a_group_stays_where_it_saves_edges(tmp_path: Path) -> None:
    told = told_by(
        """
def build(sources, readers):
    x = number("x")
    checks = [raw.CheckNumerics(tensor=x, message="", name=f"in{i}") for i in range(sources)]
    with tf.control_dependencies(checks):
        group = tf.no_op(name="group")
    with tf.control_dependencies([group]):
        outs = [raw.Neg(x=x, name=f"out{i}") for i in range(readers)]
    return [raw.AddN(inputs=outs, name="end")]
report(found=[told(lambda: build(*shape)) for shape in [(2, 2), (3, 1), (1, 3), (2, 3)]])
""",
        tmp_path,
    )["found"]
    assert [found["removed"] for found in told] == [["group"], ["group"], ["group"], []]
    assert [len(found["control"]) for found in told] == [4, 3, 3, 5]


def test_a_constant_is_of_the_unit_of_its_first_reader(tmp_path: Path) -> None:
    unit = told_by(
        """
def build():
    x = number("x")
    two = tf.constant(2.0, name="two")
    with tf.device("/job:worker/task:1/device:CPU:0"):
        pinned = tf.constant(3.0, name="pinned")
    first = raw.Mul(x=x, y=two, name="first")
    return [raw.Mul(x=first, y=two, name="second"), raw.Mul(x=first, y=pinned, name="third")]
report(**told(build))
""",
        tmp_path,
    )["unit"]
    assert unit["two"] == unit["first"] != unit["second"]
    assert list(unit.values()).count(unit["pinned"]) == 1


def test_equal_graphs_are_equal_problems(tmp_path: Path) -> None:
    """Whatever the order is in which TensorFlow holds their edges."""
    report = run(
        HELPERS
        + """

path = written("layers of experts")
kept, found = [], []
for _ in range(3):
    loaded = load_graph(path, machine="2hosts-2xcpu")
    kept.append([np.zeros(1000 + i) for i in range(100)])  # other addresses each time
    found.append((loaded.problem.units.tolist(), loaded.problem.control_edges.tolist(),
                  loaded.captured.is_removed.tolist()))
report(equal=[one == found[0] for one in found])
""",
        tmp_path,
    ).report
    assert all(report["equal"])


@pytest.mark.parametrize("name", ["images down and up", "reading in two directions"])
def test_tensorflow_computes_nothing_that_was_removed(name: str, tmp_path: Path) -> None:
    report = run(
        HELPERS
        + f"""

path = written({name!r})
found = load_graph(path, machine="2hosts-2xcpu")
metadata = v1.RunMetadata()
with tf.Graph().as_default() as graph, v1.Session(graph=graph) as running:
    v1.train.import_meta_graph(str(path))
    running.run(v1.global_variables_initializer())
    running.run("train_op", options=v1.RunOptions(output_partition_graphs=True),
                run_metadata=metadata)
ran = {{node.name: node.op for part in metadata.partition_graphs for node in part.node}}
removed = [n for n, gone in zip(found.problem.op_names, found.captured.is_removed) if gone]
report(removed=len(removed), ran=sorted({{ran[name] for name in removed if name in ran}}),
       nodes=found.problem.num_ops)
""",
        tmp_path,
        HPLACER_DISABLE="1",
    ).report
    assert report["removed"] > 0.2 * report["nodes"]
    assert set(report["ran"]) <= {"Const", "NoOp"}


def test_what_is_removed_goes_where_a_neighbour_may_go(tmp_path: Path) -> None:
    """Also one that is kept on fewer devices: alone, it would be put anywhere."""
    told = told_by(
        """
def build():
    x = number("x")
    with v1.device("/job:worker/task:1"):
        pinned = raw.Neg(x=x, name="pinned")
    with tf.control_dependencies([pinned]):
        group = tf.no_op(name="group")
    with tf.control_dependencies([group]):
        read = tf.identity(pinned, name="read")
    return [raw.Abs(x=read, name="end")]
report(**told(build))
""",
        tmp_path,
    )
    assert told["removed"] == ["group"]
    assert told["unit"]["group"] == told["unit"]["pinned"]
    assert told["unit"]["group"] != told["unit"]["read"]


def test_a_group_of_two_is_removed_whatever_reads_its_tensors(tmp_path: Path) -> None:
    """With two readers TensorFlow alone might keep it; a plan has it removed."""
    told = told_by(
        """
def build(readers):
    x = number("x")
    one, other = raw.Neg(x=x, name="one"), raw.Exp(x=x, name="other")
    with tf.control_dependencies([other, one]):
        group = tf.no_op(name="group")
    with tf.control_dependencies([group]):
        read = tf.identity(one, name="read"), tf.identity(other, name="read_other")
    outs = [op(x=read[0]) for op in (raw.Abs, raw.Sinh, raw.Cosh)[:readers]]
    ends = raw.AddN(inputs=[*outs, raw.Abs(x=read[1])], name="ends")
    return [raw.Abs(x=ends, name="end")]
report(found=[told(lambda: build(readers)) for readers in (1, 2, 3)])
""",
        tmp_path,
    )["found"]
    for found in told:
        assert found["removed"] == ["group"]
        assert found["control"] == [["one", "read_other"], ["other", "read"]]
        assert found["unit"]["group"] == found["unit"]["one"]
