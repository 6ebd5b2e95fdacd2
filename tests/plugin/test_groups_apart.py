"""Groups of two gradients: under a plan TensorFlow removes those that reach over devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from tests import processes

COUNT = 4  # devices
PRELUDE = (
    processes.IMPORTS
    + f"""
NAME = "/job:localhost/replica:0/task:0/device:CPU:"
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * {COUNT}
)
"""
    + processes.NAMES
)
STEP = f"""
raw = tf.raw_ops

def grouped(x, name, *on):
    "Two ops in a group; two ops read the first one. All but the group are pinned."
    here, there, last = (NAME + str(i) for i in on)
    with v1.device(here):
        one = raw.Exp(x=x, name="one_" + name)
    with v1.device(there):
        other = raw.Sin(x=x, name="other_" + name)
    with tf.control_dependencies([other, one]):
        group = tf.no_op(name="group_" + name)
    with tf.control_dependencies([group]):
        with v1.device(here):
            read = tf.identity(one, name="read_" + name)
        with v1.device(last):
            read_other = tf.identity(other, name="read_other_" + name)
    with v1.device(here):
        ends = [raw.Abs(x=read), raw.Neg(x=read)]
    with v1.device(last):
        return raw.AddN(inputs=[*ends, raw.Neg(x=read_other)])

def ran(rewriter=None, **options):
    "What a step computes, and which groups are left in it, with their devices."
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [16], name="x")
        ends = [grouped(x, "two", 0, 1, 1), grouped(x, "three", 0, 1, 2),
                grouped(x, "one", 0, 0, 0)]
        sums = [v1.get_variable(f"sum{{i}}", [16], use_resource=True) for i in range(len(ends))]
        step = tf.group(*[sum.assign(end).op for sum, end in zip(sums, ends)], name="step")
        start = v1.global_variables_initializer()
    config = v1.ConfigProto(device_count={{"CPU": {COUNT}}})
    if options:
        config = hp.session_config(config=config, **PLANNED | {{"min_ops": 1}} | options)
    for key, value in (rewriter or {{}}).items():
        setattr(config.graph_options.rewrite_options, key, value)
    told = v1.RunMetadata()
    with v1.Session(graph=graph, config=config) as running:
        running.run(start)
        running.run(step, {{x: np.linspace(0, 1, 16)}},
                    v1.RunOptions(output_partition_graphs=True), told)
        values = running.run(sums)
    nodes = [node for part in told.partition_graphs for node in part.node]
    groups = {{n.name.removeprefix("group_"): n.device.removeprefix(NAME) for n in nodes
              if n.op == "NoOp" and n.name.startswith("group_")}}
    return {{"values": np.concatenate(values).tolist(), "groups": groups}}
"""


def told_by(code: str, directory: Path) -> dict[str, Any]:
    return processes.run(STEP + code, directory, prelude=PRELUDE).report


def test_a_group_over_devices_is_removed_and_one_of_a_device_stays(tmp_path: Path) -> None:
    told = told_by(
        """
alone = ran()
planned = [ran(seed=seed, cache=CACHE + str(seed)) for seed in range(3)]
again = ran(cache=CACHE + "0", on_miss="skip")
report(alone=alone, planned=planned, again=again, outcomes=outcomes(), differences=differences())
""",
        tmp_path,
    )
    assert told["outcomes"] == ["planned"] * 3 + ["loaded"]
    for row in (*told["planned"], told["again"]):
        assert row["values"] == pytest.approx(told["alone"]["values"], rel=1e-5)  # sums are merged
        assert row["groups"] == {"one": "0"}
    assert told["differences"] == []


def test_a_group_stays_with_its_plan_where_nothing_removes_it(tmp_path: Path) -> None:
    """Alone on a device, it would only send more."""
    told = told_by(
        """
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
found = [ran({"dependency_optimization": RewriterConfig.OFF}, seed=0, cache=CACHE + "a"),
         ran({"disable_meta_optimizer": True}, seed=0, cache=CACHE + "b")]
report(found=found, outcomes=outcomes())
""",
        tmp_path,
    )
    assert told["outcomes"] == ["planned"] * 2
    for row in told["found"]:
        assert {"one", "two"} <= {*row["groups"]}
        assert {*row["groups"].values()} == {"0"}
