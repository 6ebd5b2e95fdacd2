"""Plans and the graphs that they are for, with the real TensorFlow: apply, why, simulating."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.cli import main
from hplacer_optimizer.errors import GraphError, PlanError
from hplacer_optimizer.plans.graph_file import apply_plan
from hplacer_optimizer.plans.making import Search, make_plan
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.simulation import simulate_plan
from hplacer_optimizer.plans.store import PlanStore
from tests import processes

MACHINE = """
format: hplacer-machine/1
name: two-cpus
devices:
  - {name: /job:localhost/replica:0/task:0/device:CPU:0, kind: haswell-18}
  - {name: /job:localhost/replica:0/task:0/device:CPU:1, kind: haswell-18}
links:
  - nvlink:
      latency: 1 us
      bandwidth: 10 GB/s
      bricks: [[/job:localhost/replica:0/task:0/device:CPU:0,
                /job:localhost/replica:0/task:0/device:CPU:1]]
"""
# A model of two towers and a cond, which TensorFlow lowers, trained for a step with a plan.
TRAIN = """
graph = tf.Graph()
with graph.as_default():
    x = v1.placeholder_with_default(normal([4, 8], 5), [4, 8], name="x")
    towers = []
    for name in ["left", "right"]:
        with v1.variable_scope(name):
            w = v1.get_variable("w", initializer=normal([8, 16], len(name)), use_resource=True)
            towers.append(tf.nn.tanh(tf.matmul(x, w, name="product")))
    both = tf.add_n(towers)
    both = tf.cond(tf.reduce_sum(x) > 0, lambda: 2.0 * both, lambda: tf.nn.relu(both), name="pick")
    loss = tf.reduce_mean(both ** 2, name="loss")
    train = v1.train.AdamOptimizer(0.01).minimize(loss, name="train")
    init = v1.global_variables_initializer()
    v1.train.export_meta_graph("graph.meta")
    v1.train.export_meta_graph("graph.pbtxt", as_text=True)
with session(graph, targets=["train"], min_ops=1, min_gain=-1) as s:
    s.run(init)
    s.run(train)
time.sleep(0.3)  # the log has a thread of its own
report(fingerprints=[entry.fingerprint for entry in plugin.history() if entry.placed])
"""
# Where TensorFlow really runs the nodes of a graph file, without this package in the process.
RUN_WITHOUT_US = """
import json, sys
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
v1.train.import_meta_graph(PLACED)
config = v1.ConfigProto(device_count={"CPU": 2})
config.graph_options.rewrite_options.disable_meta_optimizer = True
graph = v1.get_default_graph()
with v1.Session(config=config) as session:
    session.run(v1.global_variables_initializer())
    metadata = v1.RunMetadata()
    session.run(graph.get_operation_by_name("train"), run_metadata=metadata,
                options=v1.RunOptions(output_partition_graphs=True))
where = {node.name: node.device for part in metadata.partition_graphs for node in part.node}
assert not any(name.startswith("hplacer") for name in sys.modules)
print("REPORT " + json.dumps(where))
"""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a training run left: its graph in two forms, its plan, and its log."""

    directory: Path
    plan: Plan
    log: list[str]

    @property
    def graph(self) -> Path:
        return self.directory / "graph.meta"

    @property
    def machine(self) -> Path:
        return self.directory / "machine.yaml"

    @property
    def bare_plan(self) -> Plan:
        """As a plan of version 0.1.0: without problem and machine."""
        return replace(self.plan, packed_problem=None, machine=None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    pytest.importorskip("tensorflow")
    directory = tmp_path_factory.mktemp("trained")
    outcome = processes.run(TRAIN, directory, log="debug")
    (fingerprint,) = outcome.report["fingerprints"]
    (directory / "machine.yaml").write_text(MACHINE)
    plan = PlanStore(directory / "cache").get(fingerprint)
    assert plan is not None
    return Trained(directory=directory, plan=plan, log=outcome.log)


def planned_devices(plan: Plan) -> dict[str, str]:
    indices = plan.node_devices.tolist()
    return {
        name: plan.device_names[index] for name, index in zip(plan.node_names, indices, strict=True)
    }


def hplacer(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    """Exit code and JSON document of a command."""
    code = main([*map(str, arguments), "--json"])
    output = capsys.readouterr().out
    return code, json.loads(output) if output else None


def test_a_bare_plan_is_simulated_with_its_graph(trained: Trained) -> None:
    plan = trained.bare_plan
    with pytest.raises(PlanError, match=r"holds no problem .*with --graph, .*with --machine"):
        simulate_plan(plan)
    found = simulate_plan(plan, trained.graph, machine=trained.machine, targets=["train"])
    assert found.problem.num_ops == plan.num_ops
    assert found.problem.num_units == plan.num_units
    for name, device in zip(found.problem.op_names, found.placement.tolist(), strict=True):
        wanted = planned_devices(plan).get(name)
        assert wanted in (None, found.problem.device_names[device])


def test_another_graph_is_told_by_the_part_that_differs(trained: Trained) -> None:
    with pytest.raises(PlanError, match=r"targets .which ops the step ends in"):
        simulate_plan(trained.bare_plan, trained.graph, machine=trained.machine, targets=["loss"])


def test_an_applied_plan_takes_effect_without_the_optimizer(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, placed = tmp_path / "x.hplan", str(tmp_path / "placed.meta")
    plan.write_bytes(trained.bare_plan.to_bytes())
    code, document = hplacer(
        capsys, "apply", plan, "--graph", trained.graph, "--machine", trained.machine,
        "--target", "train", "-o", placed,
    )  # fmt: skip
    assert code == 0
    planned, left = planned_devices(trained.plan), set(document["left"])
    assert document["num_nodes"] == len(planned)
    assert document["num_set"] + len(left) == len(planned)
    assert left  # of the lowered cond
    assert all("pick" in name for name in left)
    where = processes.run(RUN_WITHOUT_US, tmp_path, prelude=f"PLACED = {placed!r}").report
    seen = planned.keys() & where.keys() - left
    assert len(seen) > 40
    assert {planned[name] for name in seen} == set(trained.plan.device_names)
    assert {name: where[name] for name in seen} == {name: planned[name] for name in seen}


@pytest.mark.slow
def test_apply_writes_text_and_refuses_a_directory(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.hplan").write_bytes(trained.bare_plan.to_bytes())
    code, document = hplacer(
        capsys, "apply", tmp_path / "x.hplan", "--graph", trained.directory / "graph.pbtxt",
        "--machine", trained.machine, "--target", "train", "-o", tmp_path / "placed.pbtxt",
    )  # fmt: skip
    assert code == 0
    assert document["num_set"] > 40
    text = (tmp_path / "placed.pbtxt").read_text()
    assert text.count('device: "/job:localhost/replica:0/task:0/device:CPU:1"') > 10
    with pytest.raises(GraphError, match="a SavedModel is no single file"):
        apply_plan(trained.plan, tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


SAVE_FUNCTION = """
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
class Model(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.ones([8, 4]))
    @tf.function(input_signature=[tf.TensorSpec([6, 8], name="x")])
    def __call__(self, x):
        return {"y": tf.nn.relu(tf.matmul(x, self.w, name="product"), name="rectified")}
model = Model()
tf.saved_model.save(model, "saved", {"serving_default": model.__call__})
saved = saved_model_pb2.SavedModel.FromString(open("saved/saved_model.pb", "rb").read())
open("function.meta", "wb").write(saved.meta_graphs[0].SerializeToString())
"""
READ_FUNCTION = """
import json
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
graph = meta_graph_pb2.MetaGraphDef.FromString(open("placed.meta", "rb").read()).graph_def
print("REPORT " + json.dumps({
    body.signature.name: {node.name: node.device for node in body.node_def}
    for body in graph.library.function}))
"""


@pytest.mark.slow
def test_a_signature_gets_its_devices_in_the_body_of_its_function(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    processes.run(SAVE_FUNCTION, tmp_path, prelude="")
    (tmp_path / "machine.yaml").write_text(MACHINE)
    options: dict[str, Any] = {
        "signature": "serving_default",
        "machine": tmp_path / "machine.yaml",
    }
    loaded = load_graph(tmp_path / "function.meta", **options)
    plan, _ = make_plan(loaded.captured, loaded.machine, Search(planner="round_robin"))
    applied = apply_plan(plan, tmp_path / "function.meta", tmp_path / "placed.meta", **options)
    planned = planned_devices(plan)
    assert applied.num_set == len(planned) - len(applied.left) > 0
    bodies = processes.run(READ_FUNCTION, tmp_path, prelude="").report
    (wrapper,) = (nodes for nodes in bodies.values() if "StatefulPartitionedCall" in nodes)
    (inner,) = (nodes for nodes in bodies.values() if nodes.get("rectified"))
    found = wrapper | {f"StatefulPartitionedCall/{name}": inner[name] for name in inner}
    seen = planned.keys() & found.keys()
    assert {"StatefulPartitionedCall/product", "StatefulPartitionedCall", "Identity"} <= seen
    assert {name: found[name] for name in seen} == {name: planned[name] for name in seen}
    assert set(planned.values()) == set(plan.device_names)


def test_why_reads_the_log_of_a_script(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("epoch 1\n" + "\n".join(trained.log))
    cache = tmp_path / "cache"
    code, document = hplacer(capsys, "why", log, "--cache", cache)
    (lookup,) = document["lookups"]
    assert (code, lookup["stored"], lookup["nearest"]) == (1, False, None)
    assert lookup["parts"] == trained.plan.fingerprint_parts

    shutil.copytree(trained.directory / "cache", cache)
    code, document = hplacer(capsys, "why", log, "--cache", cache)
    assert (code, document["lookups"][0]["stored"]) == (0, True)
    assert document["lookups"][0]["nearest"]["made_for"].startswith("made for 2 x CPU with ")

    PlanStore(cache).remove(trained.plan.fingerprint)
    parts = {**trained.plan.fingerprint_parts, "machine": "0" * 16}
    PlanStore(cache).put(replace(trained.plan, fingerprint_parts=parts, fingerprint="0" * 32))
    code, document = hplacer(capsys, "why", log, "--cache", cache)
    assert code == 1
    (difference,) = document["lookups"][0]["differences"]
    assert difference["part"] == "machine"
    assert difference["wanted"] == trained.plan.fingerprint_parts["machine"]
    assert main(["why", str(log), "--cache", str(cache)]) == 1
    shown = capsys.readouterr().out
    assert "machine" in shown
    assert "devices of the plan: /job:localhost/replica:0/task:0/device:CPU:0" in shown


def test_why_looks_a_graph_up(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["why", "--graph", trained.graph, "--machine", trained.machine]
    cache = ["--cache", trained.directory / "cache"]
    code, document = hplacer(capsys, *arguments, "--target", "train", *cache)
    assert code == 0
    assert document["lookups"][0]["nearest"]["fingerprint"] == trained.plan.fingerprint
