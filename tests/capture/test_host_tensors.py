"""Tensors that a GPU has in the host's memory: they are no copies, and take none of its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

CODE = """
from hplacer_optimizer import simulate
from hplacer_optimizer.capture.loading import load_graph

raw = tf.raw_ops

def build():
    x = v1.placeholder(tf.float32, [None, 8], name="x")
    table = v1.placeholder(tf.float32, [100, 8], name="table")
    rows = v1.placeholder(tf.int32, [4000], name="rows")
    shape = raw.Shape(input=x, name="shape")
    twice = raw.Mul(x=shape, y=shape, name="twice")
    both = raw.AddV2(x=shape, y=twice, name="both")  # is read by a kernel on the device, too
    return [
        raw.Reshape(tensor=x, shape=shape, name="reshaped"),
        raw.Fill(dims=twice, value=1.0, name="filled"),
        raw.GatherV2(params=table, indices=rows, axis=0, name="gathered"),
        raw.Cast(x=both, DstT=tf.float32, name="cast"),
    ]

def captured(machine):
    with tf.Graph().as_default() as graph:
        target = tf.group(*build(), name="target")
        return load_graph(graph, machine=machine, targets=[target]).problem

def sizes(problem):
    first = problem.output_ptr
    return {name: int(problem.output_bytes[first[i]:first[i + 1]].sum())
            for i, name in enumerate(problem.op_names)}

gpus = captured("1cpu-2xk40")
op = {name: i for i, name in enumerate(gpus.op_names)}
placement = np.ones(gpus.num_ops, np.int32)  # all on the first GPU ...
placement[op["filled"]] = 2  # ... but for what reads a shape
sent = simulate(gpus, placement).transfers
report(gpus=sizes(gpus), cpus=sizes(captured("2hosts-2xcpu")),
       sent=[[gpus.op_names[t["src_op"]], int(t["finish_ns"] - t["start_ns"])]
             for t in sent if t["output"] >= 0])
"""


def test_shapes_are_on_the_host(tmp_path: Path) -> None:
    found = run(CODE, tmp_path).report
    gpus, cpus = found["gpus"], found["cpus"]
    assert {name for name in cpus if cpus[name] != gpus[name]} == {
        "shape",
        "twice",
        "gathered/axis",
    }
    assert {gpus[name] for name in ("shape", "twice", "gathered/axis")} == {0}
    assert (cpus["shape"], cpus["twice"], cpus["both"], cpus["rows"]) == (8, 8, 8, 4 * 4000)
    copies = dict(found["sent"])
    assert copies.pop("twice") == 0
    assert all(copies.values())
