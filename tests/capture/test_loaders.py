"""Problems from TensorFlow graphs, with the real TensorFlow."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hplacer_optimizer as hp
from hplacer_optimizer.capture import capturing
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.capture.sources import describe
from hplacer_optimizer.cli import main
from hplacer_optimizer.machines import host, nvidia
from tests import processes

BATCH = 6
# Exports one small model in every form, as files in the working directory.
EXPORT = """
import tensorflow as tf
v1 = tf.compat.v1
graph = tf.Graph()
with graph.as_default():
    x = v1.placeholder(tf.float32, [None, 8], name="x")
    w = v1.get_variable("w", [8, 4])
    loss = tf.reduce_sum(tf.nn.relu(x @ w) ** 2, name="loss")
    v1.train.AdamOptimizer().minimize(loss, name="train")
    saver = v1.train.Saver()
    saver.export_meta_graph("graph.meta")
    saver.export_meta_graph("meta.pbtxt", as_text=True)
    tf.io.write_graph(graph, ".", "graph.pb", as_text=False)
    tf.io.write_graph(graph, ".", "graph.pbtxt")
    with v1.Session(graph=graph) as session:
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder("saved_v1")
        info = v1.saved_model.build_tensor_info
        signature = v1.saved_model.build_signature_def({"x": info(x)}, {"loss": info(loss)})
        builder.add_meta_graph_and_variables(session, ["serve"], {"score": signature})
        builder.save()
        frozen = v1.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), ["loss"])
        tf.io.write_graph(frozen, ".", "frozen.pb", as_text=False)
with tf.Graph().as_default() as pinned:
    with tf.device("/device:GPU:7"):
        tf.add(v1.placeholder(tf.float32, [3], name="x"), 1.0, name="y")
    tf.io.write_graph(pinned, ".", "pinned.pb", as_text=False)
with tf.Graph().as_default():
    num_bytes = v1.placeholder(tf.float32, [3], name="x").op.node_def.ByteSize()
with tf.Graph().as_default() as brace:
    name = "x" * (1 + ord("{") - num_bytes)
    tf.add(v1.placeholder(tf.float32, [3], name=name), 1.0, name="y")
    tf.io.write_graph(brace, ".", "brace.pb", as_text=False)

class Model(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.ones([8, 4]))

    @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
    def __call__(self, x):
        return {"y": tf.nn.relu(x @ self.w), "z": x}

model = Model()
tf.saved_model.save(model, "saved_v2", {"serving_default": model.__call__})
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("graphs")
    processes.run(EXPORT, directory, prelude="")
    return directory


def type_counts(problem: hp.Problem) -> dict[str, int]:
    names, counts = np.unique(problem.op_types, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def allowed(problem: hp.Problem, op: int) -> list[int]:
    begin, end = problem.allowed_ptr[op : op + 2]
    return problem.allowed_device[begin:end].tolist()


# ---- files ----


@pytest.fixture(scope="module")
def reference(files: Path) -> hp.Problem:
    return hp.load_problem(files / "graph.meta", machine="1cpu-2xk40", batch_size=BATCH)


def test_a_meta_graph_is_its_training_step(reference: hp.Problem) -> None:
    assert reference.name == "graph.meta"
    counts = type_counts(reference)
    # A product and its two gradients, which v1 groups; Adam of one variable; no saver.
    assert (counts["MatMul"], counts["ResourceApplyAdam"]) == (3, 1)
    assert not {"SaveV2", "RestoreV2"} & counts.keys()
    product = reference.op_names.index("matmul")
    assert reference.output_bytes[reference.output_ptr[product]] == BATCH * 4 * 4
    assert allowed(reference, product) == [0, 1, 2]
    assert reference.persistent_bytes.sum() >= 3 * 8 * 4 * 4  # the variable and Adam's slots


@pytest.mark.parametrize("name", ["meta.pbtxt", "graph.pb", "graph.pbtxt"])
def test_every_form_of_a_graph_is_the_same_problem(
    files: Path, reference: hp.Problem, name: str
) -> None:
    problem = hp.load_problem(files / name, machine="1cpu-2xk40", batch_size=BATCH)
    assert problem.name == name
    assert problem.op_names == reference.op_names
    assert np.array_equal(problem.cost_ns, reference.cost_ns)
    assert np.array_equal(problem.edges, reference.edges)
    assert np.array_equal(problem.units, reference.units)


def test_a_graph_may_begin_as_json_does(files: Path) -> None:
    assert (files / "brace.pb").read_bytes().startswith(b"\n{")
    assert "y" in hp.load_problem(files / "brace.pb", machine="1cpu-2xk40").op_names


def test_targets_choose_the_step(files: Path) -> None:
    problem = hp.load_problem(files / "graph.meta", targets=["loss:0"])
    assert "ResourceApplyAdam" not in problem.op_types
    assert "loss" in problem.op_names


def test_this_machine_has_the_threads_that_tensorflow_has(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def described() -> list[Any]:
        problem = hp.load_problem(files / "graph.meta", batch_size=100_000)
        return [problem.device_slots.tolist(), int(problem.cost_ns.max())]

    cores = int(host.usable_cores())
    slots, costs = described()
    assert slots == [1]
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    of_one_core = described()
    assert of_one_core[0] == [cores]
    assert cores == 1 or of_one_core[1] > costs
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "1")
    assert described() == [[1], of_one_core[1]]


def test_the_links_of_this_machines_gpus_are_those_of_the_driver(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def says(first: str, *_: str) -> str:
        rows = "GPU0\tX\tNV4\t0\nGPU1\tNV4\tX\t0\n"
        return rows if first == "topo" else "0000:06:00.0, 3, 16\n0000:07:00.0, 3, 16\n"

    monkeypatch.setattr(nvidia, "_nvidia_smi", says)
    task = "/job:localhost/replica:0/task:0"
    devices = [{"name": f"{task}/device:CPU:0", "type": "CPU"}]
    for number, bus in enumerate(("06", "07")):
        text = f"device: {number}, name: Tesla V100, pci bus id: 0000:{bus}:00.0, compute"
        name = f"{task}/device:GPU:{number}"
        devices.append({"name": name, "type": "GPU", "description": text})
    source = replace(
        describe(files / "graph.meta"),
        devices=tuple({"description": "", "memory_bytes": 2**30} | device for device in devices),
    )
    machine = load_graph(source, batch_size=BATCH).machine
    between = {link.bytes_per_s for link in machine.links if "CPU" not in link.src + link.dst}
    assert between == {100_000_000_000}


def test_a_frozen_graph_has_no_variables(files: Path) -> None:
    problem = hp.load_problem(files / "frozen.pb", machine="1cpu-2xk40")
    assert problem.persistent_bytes.sum() == 0
    assert type_counts(problem)["MatMul"] == 1


def test_the_saved_model_of_a_session(files: Path) -> None:
    problem = hp.load_problem(files / "saved_v1", machine="1cpu-2xk40")
    assert "loss" in problem.op_names
    assert "train" not in problem.op_names
    assert problem.persistent_bytes.sum() == 8 * 4 * 4


def test_the_saved_model_of_a_function_is_its_body(files: Path) -> None:
    loaded = load_graph(files / "saved_v2", machine="1cpu-2xk40", shapes={"x": [BATCH, 8]})
    counts = type_counts(loaded.problem)
    assert (counts["MatMul"], counts["_Arg"], counts["_Retval"]) == (1, 2, 2)
    assert "StatefulPartitionedCall" not in counts
    assert loaded.problem.persistent_bytes.sum() == 8 * 4 * 4
    (product,) = [i for i, t in enumerate(loaded.problem.op_types) if t == "MatMul"]
    assert loaded.problem.output_bytes[loaded.problem.output_ptr[product]] == BATCH * 4 * 4
    assert any("1 variables are on" in sentence for sentence in loaded.assumptions)


def test_an_exported_problem_simulates_alike(reference: hp.Problem, tmp_path: Path) -> None:
    hp.save_problem(reference, tmp_path / "graph.hplacer.json.gz")
    again = hp.load_problem(tmp_path / "graph.hplacer.json.gz")
    placement = np.arange(again.num_ops) % 3
    makespans_ns = [hp.simulate(p, placement).makespan_ns for p in (reference, again)]
    assert makespans_ns[0] == makespans_ns[1] > 0
    with pytest.raises(hp.GraphError, match="leave out machine, batch_size"):
        hp.load_problem(tmp_path / "graph.hplacer.json.gz", machine="8xv100", batch_size=3)
    with pytest.raises(hp.OptionError, match="did you mean 'batch_size'"):
        hp.load_problem(tmp_path / "graph.hplacer.json.gz", batchsize=3)


def test_measured_costs_replace_estimates(files: Path) -> None:
    estimated = load_graph(files / "graph.meta", machine="1cpu-2xk40")
    (product,) = [i for i, n in enumerate(estimated.problem.op_names) if n == "matmul"]
    from hplacer_optimizer.costs.table import CostTable, MeasuredCost

    table = CostTable()
    table.set(estimated.captured.op_signatures[product], "k40", MeasuredCost(time_ns=123_456))
    measured = load_graph(files / "graph.meta", machine="1cpu-2xk40", cost_table=table)
    kind = measured.problem.device_kinds.index("k40")
    assert measured.problem.cost_ns[product, kind] == 123_456
    assert any(sentence.startswith("cost table") for sentence in measured.assumptions)


def test_a_cost_table_of_other_kinds_is_told(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    from hplacer_optimizer.costs.table import CostTable, MeasuredCost

    table = CostTable("half.json")
    table.set("A", "CPU (1/2 of the cores)", MeasuredCost(time_ns=1))
    load_graph(files / "graph.meta", machine="1cpu-2xk40", cost_table=table)
    (line,) = [each.getMessage() for each in caplog.records if "half.json" in each.getMessage()]
    assert line == (
        "the cost table half.json has no cost of this graph's ops on haswell-18, k40, only costs "
        "for CPU (1/2 of the cores): all costs are estimated; calibrate the devices that the "
        "graph runs on"
    )


# ---- what cannot be loaded ----


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("none.meta", {}, "none.meta: no such file"),
        ("graph.meta", {"targets": "train"}, "pass a list"),
        ("graph.meta", {"batch_size": 0}, "batch_size: must be a positive integer"),
        ("graph.meta", {"targets": ["tran"]}, "'tran' is not in the graph; similar: train"),
        ("graph.meta", {"shapes": {"q": [1]}}, "q"),
        ("pinned.pb", {}, "GPU:7"),
        ("script.py", {}, "is no GraphDef"),
    ],
    ids=str,
)
def test_the_error_names_the_file_and_the_fault(
    files: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(hp.GraphError) as error:
        hp.load_problem(files / name, **options)
    assert message in str(error.value)


READ = """
from pathlib import Path
from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.capture import graph_files
messages = []
for name, signature in CASES:
    try:
        graph_files.read_graph(Path(name), signature, [])
    except GraphError as error:
        messages.append(str(error))
report(messages=messages)
"""


def test_signatures_that_do_not_exist(files: Path) -> None:
    cases = [
        ("graph.meta", "score", "no signature 'score'; there are: none"),
        ("graph.pb", "score", "a GraphDef has none"),
        ("saved_v1", "scor", "no signature or function 'scor'; similar: score"),
        (".", None, "without saved_model.pb"),
    ]
    code = f"CASES = {[case[:2] for case in cases]}\n{READ}"
    messages = processes.run(code, files).report["messages"]
    for (_, _, expected), message in zip(cases, messages, strict=True):
        assert expected in message


def test_soft_placement_replaces_what_the_machine_lacks(files: Path) -> None:
    problem = hp.load_problem(files / "pinned.pb", allow_soft_placement=True)
    assert allowed(problem, problem.op_names.index("y")) == [0]


def test_text_errors_have_their_line(files: Path, tmp_path: Path) -> None:
    lines = (files / "graph.pbtxt").read_text().splitlines()
    lines[3] = "  nonsense: 1"
    (tmp_path / "bad.pbtxt").write_text("\n".join(lines))
    with pytest.raises(hp.GraphError, match=r"bad.pbtxt: line 4: .*nonsense"):
        hp.load_problem(tmp_path / "bad.pbtxt")


COLLECTIVE = """
node {
  name: "x" op: "Placeholder"
  attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 4 } } } }
}
node {
  name: "sum" op: "CollectiveReduce" input: "x"
  attr { key: "T" value { type: DT_FLOAT } }
  attr { key: "group_size" value { i: 2 } }
  attr { key: "group_key" value { i: 1 } }
  attr { key: "instance_key" value { i: 1 } }
  attr { key: "merge_op" value { s: "Add" } }
  attr { key: "final_op" value { s: "Id" } }
  attr { key: "subdiv_offsets" value { list { i: 0 } } }
}
"""


def test_a_step_with_collective_ops_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt"
    path.write_text(COLLECTIVE)
    with pytest.raises(hp.GraphError, match="CollectiveReduce is in the graph: its replicas"):
        hp.load_problem(path, machine="1cpu-2xk40", targets=["sum"])


def test_other_objects_are_refused() -> None:
    with pytest.raises(hp.GraphError, match="cannot load a int"):
        hp.load_problem(3)


def test_a_graph_that_takes_too_long(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "_BASE_LIMIT_S", 0.001)
    with pytest.raises(hp.GraphError, match="did not take this graph in within 0 s"):
        hp.load_problem(files / "graph.meta")


def test_an_abort_of_tensorflow_is_an_error(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying.py").write_text(
        "import os\nos.write(2, b'F0000 00:00 op.cc:1] Check failed: x')\nos.abort()\n"
    )
    monkeypatch.setattr(capturing, "_MODULE", "dying")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(hp.GraphError, match=r"graph.meta: TensorFlow ended with SIGABRT.*Check"):
        hp.load_problem(files / "graph.meta")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut off, repeated or inserted."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed))
        kind = rng.randrange(4)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at : at + rng.randint(1, 40)]
        elif kind == 2:
            changed[at:at] = changed[at : at + rng.randint(1, 40)]
        else:
            changed[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(changed)


# One process for many files: what a mutation does to this process, it would do to the child.
MUTANTS = """
import random
import signal
from pathlib import Path
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.capture import graph_files
read = failed = 0
for path in sorted(Path("mutants").iterdir()):
    try:
        graph = graph_files.read_graph(path, None, [])
        graph_files.check_targets(graph.graph_def, graph.targets)
        read += 1
    except HPlacerError:
        failed += 1
report(read=read, failed=failed)
"""


@pytest.mark.parametrize("name", ["graph.meta", "meta.pbtxt", "frozen.pb"])
def test_mutated_files_are_read_or_refused(files: Path, tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    (tmp_path / "mutants").mkdir()
    data = (files / name).read_bytes()
    for number in range(100):
        (tmp_path / "mutants" / f"{number}{Path(name).suffix}").write_bytes(mutated(data, rng))
    report = processes.run(MUTANTS, tmp_path).report
    assert report["read"] + report["failed"] == 100
    assert report["failed"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_mutated_meta_graphs_raise_typed_errors_only(files: Path, tmp_path: Path) -> None:
    """Anything but a typed error escapes."""
    rng, data = random.Random(7), (files / "graph.meta").read_bytes()
    failed = 0
    for number in range(60):
        path = tmp_path / f"{number}.meta"
        path.write_bytes(mutated(data, rng))
        try:
            hp.load_problem(path, machine="1cpu-2xk40")
        except (hp.GraphError, hp.ProblemError):
            failed += 1
    assert 0 < failed < 60


# ---- the plugin sees the same ----

WATCH = """
import pickle
from hplacer_optimizer.planners import etf

def watch(problem, **options):
    with open("seen", "wb") as file:
        pickle.dump(problem, file)
    return etf.plan(problem, **options).placement
"""
AGREEMENT = """
import pickle
from hplacer_optimizer.capture.loading import load_graph

def seen():
    with open("seen", "rb") as file:
        return pickle.load(file)

def same(name, planned, fingerprint, loaded):
    arrays = ("cost_ns", "output_bytes", "persistent_bytes", "temp_bytes", "edges",
              "control_edges", "units", "allowed_device", "device_memory_bytes", "device_slots")
    return {
        "name": name,
        "ops": planned.num_ops,
        "names": planned.op_names == loaded.problem.op_names,
        "arrays": [key for key in arrays
                   if not np.array_equal(getattr(planned, key), getattr(loaded.problem, key))],
        "devices": planned.device_names == loaded.problem.device_names,
        "fingerprint": fingerprint == loaded.captured.fingerprint,
    }
"""


def run_watched(code: str, directory: Path) -> dict[str, Any]:
    (directory / "watching.py").write_text(WATCH)
    return processes.run(AGREEMENT + code, directory).report


def check_agreement(report: dict[str, Any]) -> None:
    assert report["ops"] > 10
    assert (report["names"], report["devices"], report["fingerprint"]) == (True, True, True)
    assert report["arrays"] == []


def test_a_function_is_captured_as_in_training(tmp_path: Path) -> None:
    code = """
on(planner="watching:watch", min_ops=5)
weights = [tf.Variable(normal([8, 8], seed)) for seed in (1, 2)]

@tf.function
def helper(x):
    return tf.tanh(x @ weights[1])

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(x @ weights[0])
        for _ in tf.range(3):
            hidden = helper(hidden)
        loss = tf.reduce_sum(hidden ** 2)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.01 * gradient)
    return loss

x = normal([4, 8], 3)
step(x)
fingerprint = plugin.history()[0].fingerprint
off()
loaded = load_graph(step.get_concrete_function(x))
report(**same("function", seen(), fingerprint, loaded))
"""
    check_agreement(run_watched(code, tmp_path))


def test_a_session_is_captured_as_in_training(tmp_path: Path) -> None:
    code = """
graph = tf.Graph()
with graph.as_default():
    x = v1.placeholder(tf.float32, [None, 8], name="x")
    hidden = x
    for layer in range(3):
        hidden = tf.nn.relu(hidden @ v1.get_variable(f"w{layer}", [8, 8]))
    train = v1.train.AdamOptimizer().minimize(tf.reduce_sum(hidden ** 2), name="train")
    v1.train.Saver().export_meta_graph("graph.meta")
with session(graph, planner="watching:watch", min_ops=5) as running:
    running.run(v1.global_variables_initializer())
    running.run(train, {x: np.ones([4, 8])})
fingerprint = plugin.history()[0].fingerprint
from types import SimpleNamespace
from hplacer_optimizer import machines
cpus = [SimpleNamespace(name=n, type="CPU", description="", memory_bytes=0) for n in DEVICES]
machine = machines.detect(cpus)
report(file=same("file", seen(), fingerprint, load_graph("graph.meta", machine=machine)),
       graph=same("graph", seen(), fingerprint, load_graph(graph, machine=machine)))
"""
    report = run_watched(code, tmp_path)
    check_agreement(report["graph"])
    check_agreement(report["file"])


def test_a_function_without_a_signature_is_refused(tmp_path: Path) -> None:
    code = """
try:
    hp.load_problem(tf.function(lambda x: x))
except hp.GraphError as error:
    report(message=str(error))
"""
    report = processes.run(code, tmp_path).report
    assert "get_concrete_function" in report["message"]


# ---- GPU kernels ----


def test_gpu_kernels_of_the_table_are_looked_up(tmp_path: Path) -> None:
    code = """
from tensorflow.python.framework import kernels
from hplacer_optimizer.capture import gpu_kernels
from hplacer_optimizer.capture import native
def count(op):
    return sum(k.device_type == "GPU" for k in kernels.get_registered_kernels_for_op(op).kernel)
before = [count("MatMul"), count("Conv2D"), count("Identity")]
version = gpu_kernels.ensure_registered()
after = [count("MatMul"), count("Conv2D"), count("Identity")]
report(before=before, after=after, version=version, again=gpu_kernels.ensure_registered(),
       host_only=count("StringJoin"))
"""
    report = processes.run(code, tmp_path).report
    if report["version"] is None:
        pytest.skip("this TensorFlow has GPU kernels of its own")
    assert report["before"][:2] == [0, 0]
    assert min(report["after"]) > 3
    assert report["again"] is None  # they are there now
    assert report["host_only"] == 0


# ---- the command ----


def test_the_command_takes_graphs(
    files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    output = str(tmp_path / "graph.hplacer.json")
    graph = [str(files / "graph.meta"), "--machine", "1cpu-2xk40", "--shape", "x=5,8"]
    with caplog.at_level("INFO", logger="hplacer"):
        assert main(["export", *graph, "-o", output]) == 0
    # The package tensorflow-cpu has none of its own.
    is_for_gpus = "tensorflow" in {found.name for found in metadata.distributions()}
    assert ("GPU kernels are those of" in caplog.text) != is_for_gpus
    capsys.readouterr()
    assert main(["simulate", output, "--placement", "random:3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["feasible"]
    assert all(0 < device["busy"] <= 1 for device in report["devices"])
    assert main(["simulate", output, "--placement", "gpu_only", "--machine", "8xv100"]) == 1
    assert "leave out machine" in capsys.readouterr().err


def test_an_interrupt_ends_the_capturing_process_too(files: Path) -> None:
    command = ["simulate", files / "graph.meta", "--placement", "round_robin"]
    parent = subprocess.Popen(
        [sys.executable, "-m", "hplacer_optimizer", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=processes.ROOT,
    )
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    processes.wait_for(children.read_text)
    child = int(children.read_text().split()[0])
    parent.send_signal(signal.SIGINT)
    assert parent.wait(120) == 130
    processes.wait_for(lambda: processes.has_ended(child))
