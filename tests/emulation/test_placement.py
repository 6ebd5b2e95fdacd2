"""Where ops run on a machine with emulated GPUs: pins, ops without GPU kernels, TensorFlow's own.

Devices are those of the partitions that a session ran.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.machines import machine_from_yaml
from tests import executed_graphs
from tests.emulation import gpus
from tests.workloads.test_workload_graphs import SMALL

PINS = """
def built(pins):
    "Ops with and without GPU kernels, a loop, shapes; `pins` are devices by kind of op."
    graph = tf.Graph()
    with graph.as_default():
        pinned = lambda kind: v1.device(pins.get(kind))
        words = v1.placeholder(tf.string, [64])
        with pinned("strings"):
            lengths = tf.raw_ops.StringLength(input=words, name="lengths")
        x = v1.placeholder(tf.float32, [None, WIDTH])
        with pinned("tanh"):
            hidden = tf.tanh(x, name="tanh")
        _, hidden = v1.while_loop(
            lambda i, _: i < 3, lambda i, h: (i + 1, tf.sin(h, name="sine")),
            (tf.constant(0), hidden), name="loop")
        shape = tf.shape(hidden, name="shape")
        hidden = tf.reshape(tf.reshape(hidden, [shape[0] // 2, -1]), shape)
        variables = [v1.get_variable(f"w{i}", initializer=value, use_resource=True)
                     for i, value in enumerate(weights())]
        total = tf.cast(tf.reduce_sum(lengths), tf.float32, name="total")
        loss = towers_loss(hidden, variables) * total / 100
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        feeds = {x: batch(), words: ["a b", "c d e"] * 32}
        return graph, feeds, [loss, train], v1.global_variables_initializer()

def trained(pins, soft, gpus=2, **options):
    "Losses and devices; or the error."
    graph, feeds, fetches, init = built(pins)
    config = v1.ConfigProto(allow_soft_placement=soft, device_count={"GPU": gpus})
    if options:
        config = hp.session_config(config, targets=["train"], **options)
    told, asked = v1.RunMetadata(), v1.RunOptions(output_partition_graphs=True)
    start = len(plugin.history())
    try:
        with v1.Session(graph=graph, config=config) as session:
            session.run(init)
            found = [session.run(fetches, feeds, asked, told)[0] for _ in range(2)]
    except tf.errors.OpError as error:
        return {"error": type(error).__name__}
    devices = {node.name: node.device.rpartition("/device:")[2]
               for part in told.partition_graphs for node in part.node}
    return {"losses": found, "devices": devices, "history": history_since(start)}

def planned(pins, soft, seed=1):
    return trained(pins, soft, **PLANNED | {"seed": seed})

kept = {"tanh": "/device:GPU:1", "strings": "/device:CPU:0"}
wrong = {"strings": "/device:GPU:0"}
report(
    of_cpu=trained({}, True, gpus=0),
    free={soft: {"alone": trained({}, soft), "planned": planned({}, soft)} for soft in (1, 0)},
    kept={soft: {"alone": trained(kept, soft), "planned": planned(kept, soft, 2)}
          for soft in (1, 0)},
    wrong={soft: {"alone": trained(wrong, soft), "planned": planned(wrong, soft)}
           for soft in (1, 0)},
    differences=differences(),
)
"""


@pytest.fixture(scope="module")
def pins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return gpus.run(PINS, tmp_path_factory.mktemp("pins")).report


def runs(pins: dict[str, Any], *kinds: str) -> dict[str, dict[str, Any]]:
    """Those without an error, by a name for messages."""
    return {
        f"{kind}, soft placement {soft}, {how}": run
        for kind in kinds
        for soft, both in pins[kind].items()
        for how, run in both.items()
        if "error" not in run
    }


def test_a_pin_to_the_second_gpu_is_kept(pins: dict[str, Any]) -> None:
    for name, run in runs(pins, "kept").items():
        assert run["devices"]["tanh"] == "GPU:1", name
        assert run["devices"]["lengths"] == "CPU:0", name
    alone = pins["kept"]["1"]["alone"]["devices"]
    assert alone["matmul"] == "GPU:0"  # what is not pinned
    assert pins["differences"] == []


def test_plans_use_both_gpus_and_change_no_loss(pins: dict[str, Any]) -> None:
    for name, run in runs(pins, "free", "kept", "wrong").items():
        assert run["losses"] == pytest.approx(pins["of_cpu"]["losses"], rel=1e-5, abs=0), name
        products = {run["devices"][f"matmul{suffix}"] for suffix in ("", "_1", "_2", "_3")}
        if name.endswith("planned"):
            (entry,) = run["history"]
            assert entry["outcome"] == "planned", name
            assert {"GPU:0", "GPU:1"} <= {*run["devices"].values()}, name
        else:
            assert products == {"GPU:0"}, name
            assert run["history"] == [], name


def test_what_has_no_gpu_kernel_runs_on_the_cpu(pins: dict[str, Any]) -> None:
    for name, run in runs(pins, "free", "kept", "wrong").items():
        assert run["devices"]["lengths"] == "CPU:0", name
    assert {run["devices"]["lengths"] for run in runs(pins, "wrong").values()} == {"CPU:0"}


@pytest.mark.parametrize("how", ["alone", "planned"])
def test_a_pin_to_a_gpu_without_such_a_kernel(pins: dict[str, Any], how: str) -> None:
    assert pins["wrong"]["0"][how] == {"error": "InvalidArgumentError"}
    assert pins["wrong"]["1"][how]["devices"]["lengths"] == "CPU:0"


def test_shapes_and_counters_are_kernels_of_the_gpu_on_host_memory(pins: dict[str, Any]) -> None:
    for soft in ("1", "0"):
        devices = pins["free"][soft]["alone"]["devices"]
        assert devices["shape"] == "GPU:0"
        assert devices["loop/cond/_0/Less"] == devices["loop/body/_1/add_0"] == "GPU:0"
        assert {device for name, device in devices.items() if "sine" in name} == {"GPU:0"}


# ---- TensorFlow's own placement ----

LEAST_EXECUTED = 0.5  # of the ops that compute: TensorFlow's optimizers merge some into others
RUN = """
from hplacer_optimizer.workloads.graphs import build_graph
from tests import executed_graphs

emulation.allocate_only()
targets = {}
for name, sizes in SIZES.items():
    built = build_graph(name, **sizes)
    with built.graph.as_default():
        v1.train.export_meta_graph(name + ".meta")
    told, asked = v1.RunMetadata(), v1.RunOptions(output_partition_graphs=True)
    with v1.Session(graph=built.graph) as session:
        session.run(built.init)
        session.run([built.loss, built.train_op], options=asked, run_metadata=told)
    executed_graphs.save(Path(name), told.partition_graphs)
    targets[name] = [built.loss.op.name, built.train_op.name]
report(targets=targets)
"""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["rnnlm"], id="rnnlm"),
        pytest.param(
            ["bert_base", "mobilenet_v2", "nmt", "two_tower"], id="others", marks=pytest.mark.slow
        ),
    ],
)
def test_workloads_run_where_a_capture_has_them(names: list[str], tmp_path: Path) -> None:
    code = f"from pathlib import Path\nSIZES = { ({name: SMALL[name] for name in names})!r}\n{RUN}"
    targets = gpus.run(code, tmp_path, HPLACER_DISABLE="1").report["targets"]
    for name in names:
        problem = load_graph(
            tmp_path / f"{name}.meta",
            machine=machine_from_yaml(gpus.machine_text()),
            targets=targets[name],
        ).problem
        executed_graphs.check(problem, executed_graphs.read(tmp_path / name), LEAST_EXECUTED)
        used = set(executed_graphs.default_devices(problem).values())
        assert {device.rpartition("/device:")[2] for device in used} <= {"CPU:0", "GPU:0"}, name
        assert any("GPU:0" in device for device in used), name
