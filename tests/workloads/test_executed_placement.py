"""The workloads' graphs run where a capture says that TensorFlow would place them.

Each graph runs a step in a session without the optimizer, with and without TensorFlow's own graph
optimizers, and is captured from its file for a machine with the same devices. Its ops are free, or
pinned to devices of which some do not exist.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.workloads import graphs
from tests import executed_graphs
from tests.processes import run
from tests.workloads.test_workload_graphs import SMALL

RUN = """
from pathlib import Path
from hplacer_optimizer.workloads.graphs import build_graph
from tests import executed_graphs

def pin(graph):
    "Every fifth op to a second CPU and others to a GPU, and every third variable to that CPU."
    for number, op in enumerate(graph.get_operations()):
        if any(tensor.dtype == tf.resource for tensor in [*op.inputs, *op.outputs]):
            continue  # TensorFlow refuses what would be away from its variable
        if number % 5 == 1:
            op._set_device("/device:CPU:1")
        elif number % 7 == 2:
            op._set_device("/device:GPU:0")
    for variable in graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)[::3]:
        if not variable.op.device:
            variable.op._set_device("/device:CPU:1")

def config(soft_placement, optimizes):
    config = v1.ConfigProto(device_count={"CPU": DEVICES}, allow_soft_placement=soft_placement)
    if not optimizes:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    return config

def step(built, config, directory):
    "Runs one; writes the graph as executed."
    options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    with v1.Session(graph=built.graph, config=config) as session:
        session.run(built.init)
        session.run([built.loss, built.train_op], options=options, run_metadata=metadata)
    executed_graphs.save(directory, metadata.partition_graphs)

for kind in ("free", "pinned"):
    built = build_graph(NAME, **SIZES)
    if kind == "pinned":
        pin(built.graph)
    with built.graph.as_default():
        v1.train.export_meta_graph(kind + ".meta")
    for optimizes, how in ((False, "as_built"), (True, "optimized")):
        step(built, config(kind == "pinned", optimizes), Path(kind + "_" + how))
report(targets=[built.loss.op.name, built.train_op.name])
"""
MACHINE = """
format: hplacer-machine/1
name: cpus
kinds:
  cpu:
    type: CPU
    flops: {{float32: 1 GFLOP/s}}
    memory: 3 GiB
    memory_bandwidth: 1 GB/s
    launch_overhead: 3 us
devices: [{devices}]
links:
  - memory: {{latency: 7 us, bandwidth: 3 GB/s, devices: [{names}]}}
"""
FAST = {("rnnlm", 2)}
# Of the ops that compute: TensorFlow's optimizers remove reshapes, and merge biases into products.
LEAST_EXECUTED = {"as_built": 0.95, "optimized": 0.5}


def cases() -> list[object]:
    """Every graph on one and on two devices."""
    return [
        pytest.param(name, count, marks=[] if (name, count) in FAST else [pytest.mark.slow])
        for name in sorted(graphs.GRAPHS)
        for count in (1, 2)
    ]


def machine(directory: Path, count: int) -> Path:
    """A file that describes so many CPUs."""
    names = [f"/device:CPU:{number}" for number in range(count)]
    devices = ", ".join(f"{{name: {name}, kind: cpu}}" for name in names)
    path = directory / "machine.yaml"
    path.write_text(MACHINE.format(devices=devices, names=", ".join(names)))
    return path


@pytest.mark.parametrize(("name", "count"), cases())
def test_a_graph_runs_where_a_capture_has_it(name: str, count: int, tmp_path: Path) -> None:
    code = f"NAME, SIZES, DEVICES = {name!r}, {SMALL[name]!r}, {count}\n{RUN}"
    targets = run(code, tmp_path, HPLACER_DISABLE="1").report["targets"]
    for kind in ("free", "pinned"):
        problem = load_graph(
            tmp_path / f"{kind}.meta",
            machine=machine(tmp_path, count),
            targets=targets,
            allow_soft_placement=kind == "pinned",
        ).problem
        for how, least in LEAST_EXECUTED.items():
            graph = executed_graphs.read(tmp_path / f"{kind}_{how}")
            executed_graphs.check(problem, graph, least)
        used = set(executed_graphs.default_devices(problem).values())
        assert len(used) == (2 if kind == "pinned" and count == 2 else 1)
