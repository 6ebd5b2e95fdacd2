"""The memory of emulated GPUs: what does not fit, and TensorFlow's settings of what is used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from tests import processes
from tests.emulation import gpus

GPU_MEMORY = "60 MiB"
LARGE = """
def trained(**options):
    "Losses of eight tables of 8 MiB in a session, and the most that each GPU held; or the error."
    graph = tf.Graph()
    with graph.as_default():
        tables = [v1.get_variable(f"table{i}", initializer=tf.fill([2 << 10, 1 << 10], 1.0),
                                  use_resource=True) for i in range(8)]
        rows = v1.placeholder(tf.int32, [16])
        loss = tf.reduce_mean(tf.add_n([tf.tanh(tf.gather(table, rows)) for table in tables]))
        train = v1.train.GradientDescentOptimizer(1000.0).minimize(loss, name="train")
        config = hp.session_config(targets=["train"], **options) if options else None
        try:
            with v1.Session(config=config) as session:
                session.run(v1.global_variables_initializer())
                feeds = {rows: np.arange(16)}
                found = [session.run([loss, train], feeds)[0] for _ in range(2)]
        except tf.errors.ResourceExhaustedError as error:
            return {"error": error.message}
    peaks = [tf.config.experimental.get_memory_info(f"GPU:{gpu}")["peak"] for gpu in range(2)]
    return {"losses": found, "peaks": peaks}
"""


def test_a_plan_for_two_trains_what_does_not_fit_on_one(tmp_path: Path) -> None:
    code = """
from hplacer_optimizer.plans.store import PlanStore

planned = trained(cache=CACHE, budget_s=1.0)
entry, (stored,) = plugin.history()[-1], PlanStore(CACHE).list()
report(planned=planned, outcome=entry.outcome, reason=entry.reason,
       fits=[stored.plan.baseline.feasible, stored.plan.feasible])
"""
    seen = gpus.run(LARGE + code, tmp_path, gpu_memory=GPU_MEMORY).report
    assert seen["fits"] == [False, True]
    assert seen["outcome"] == "planned", seen["reason"]  # whatever the gain
    first, second = seen["planned"]["losses"]
    assert second < first
    assert all(16 << 20 <= peak <= 60 << 20 for peak in seen["planned"]["peaks"])
    assert sum(seen["planned"]["peaks"]) >= 64 << 20


def test_tensors_that_would_not_fit_go_to_the_host_and_back(tmp_path: Path) -> None:
    """Grappler's memory optimizer sees to that, with ops that only builds for GPUs have."""
    code = """
def slope(device):
    "Of a chain whose ten matrices of 4 MiB are all read again in the end."
    with tf.Graph().as_default() as graph, graph.device(device):
        weight = v1.get_variable("w", initializer=tf.fill([1024, 1024], 0.001), use_resource=True)
        end = weight
        for _ in range(8):
            end = tf.tanh(end) @ weight
        total = tf.reduce_sum(tf.gradients(end, [weight])[0])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            with emulation.traced() as ran:
                found = float(session.run(total))
    return found, [copy.source for copy in ran if copy.kind == "copy" and copy.bytes == 4 << 20]

gpu, cpu = slope("/GPU:0"), slope("/CPU:0")
report(gpu=gpu[0], cpu=cpu[0], sources=gpu[1])
"""
    seen = gpus.run(code, tmp_path, gpu_memory=GPU_MEMORY).report
    assert seen["gpu"] == pytest.approx(seen["cpu"], rel=1e-4)
    assert seen["sources"].count(0) >= 3  # to the host
    assert seen["sources"].count(-1) >= seen["sources"].count(0)


ONLY_ALLOCATED = """
from hplacer_optimizer import emulation
emulation.enable("2xa100", compute=False)
SIZE = 1 << 20

def found():
    "The last of numbers that lie on the host where matrices were that are only allocated."
    with tf.Graph().as_default():
        with tf.device("/GPU:0"):
            matrix = v1.random_uniform([SIZE, 2])
            matrices = [tf.tanh(matrix + i) for i in range(4)]
        with tf.device("/CPU:0"):
            read = [tf.reduce_max(matrix) for matrix in matrices]  # their copies are free then
            start = v1.placeholder(tf.int64, [])
            with tf.control_dependencies(read):
                numbers = [tf.range(start + i, start + i + SIZE) for i in range(4)]
        with tf.device("/GPU:0"):
            far = [tf.identity(row) + 1 for row in numbers]
        with tf.device("/CPU:0"):
            last = [tf.reduce_max(row) for row in far]
        with v1.Session() as session:
            return [session.run([last, read], {start: 1000 * run})[0] for run in range(6)]

report(found=np.array(found()).tolist())
"""


def test_integers_are_copied_wherever_they_lie(tmp_path: Path) -> None:
    seen = processes.run(ONLY_ALLOCATED, tmp_path, fresh=True).report
    assert seen["found"] == [[1000 * run + i + (1 << 20) for i in range(4)] for run in range(6)]


@pytest.mark.slow  # TensorFlow's allocator tries again for 10 s
def test_without_a_plan_it_fails(tmp_path: Path) -> None:
    seen = gpus.run(LARGE + "report(**trained())", tmp_path, gpu_memory=GPU_MEMORY).report
    # Which op finds no memory first is up to the order of threads: one of a table, or of its rows.
    assert re.search(
        r"OOM when allocating tensor with shape\[(2048|16),1024\] and type float on \S+"
        r"device:GPU:0 by allocator",
        seen["error"],
    )


# ---- settings ----

SETTINGS = """
gpus = tf.config.list_physical_devices("GPU")

def ran_on(name):
    "The numbers of the emulated GPUs whose kernels run for a device of TensorFlow."
    with emulation.traced() as ran, tf.device(name):
        tf.ones([64]) + 1
    return sorted({r.source for r in ran if r.kind == "kernel"})

def found():
    "What TensorFlow has, what the optimizer takes it for, and a step with a plan on it."
    names = [device.name.rpartition("/device:")[2] for device in tf.config.list_logical_devices()]
    ran = {name: ran_on(name) for name in names if "GPU" in name}
    from hplacer_optimizer import machines
    described = []
    def detect(*arguments, original=machines.detect, **options):
        described.append(original(*arguments, **options))
        return described[-1]
    machines.detect = detect
    on(planner="etf")
    start = len(plugin.history())
    values = losses(towers())
    machine = described[0]
    report(devices=names, ran=ran, losses=values, reserved=reserved(),
           history=[entry["outcome"] for entry in history_since(start)],
           machine=machine.name, memory=dict(zip(names, machine.memory_bytes)))

def reserved():
    "The largest region that this process has mapped for a device, in MiB."
    sizes = [0]
    for line in open("/proc/self/smaps"):
        if line.startswith("Size:"):
            size = int(line.split()[1])
        if line.startswith("VmFlags:") and " nr " in line + " ":
            sizes.append(size // 1024)
    return max(sizes)
"""


def settings(directory: Path, code: str, gpu_memory: str = "512 MiB") -> dict[str, Any]:
    return gpus.run(SETTINGS + code, directory, gpu_memory=gpu_memory).report


def test_memory_that_grows_is_not_reserved_at_once(tmp_path: Path) -> None:
    whole = settings(tmp_path, "found()")
    assert whole["devices"] == ["CPU:0", "GPU:0", "GPU:1"]
    assert whole["ran"] == {"GPU:0": [0], "GPU:1": [1]}
    assert whole["reserved"] >= 512
    code = "for gpu in gpus: tf.config.experimental.set_memory_growth(gpu, True)\nfound()"
    growing = settings(tmp_path / "growing", code)
    assert 0 < growing["reserved"] < 64
    for seen in (whole, growing):
        assert seen["machine"] == "slow-gpus"
        assert seen["memory"]["GPU:1"] == 512 << 20
        assert seen["history"] == ["planned"]
    assert growing["losses"] == whole["losses"]


def test_one_of_two_gpus_is_visible(tmp_path: Path) -> None:
    one = settings(tmp_path, "tf.config.set_visible_devices(gpus[1], 'GPU')\nfound()")
    assert one["devices"] == ["CPU:0", "GPU:0"]
    assert one["ran"] == {"GPU:0": [1]}
    assert one["machine"] == "slow-gpus"
    assert one["history"] == ["planned"]


def test_a_gpu_is_divided_by_its_memory(tmp_path: Path) -> None:
    code = """
tf.config.set_logical_device_configuration(gpus[0], [
    tf.config.LogicalDeviceConfiguration(memory_limit=limit) for limit in (96, 64)])
found()
"""
    seen = settings(tmp_path, code)
    assert seen["devices"] == ["CPU:0", "GPU:0", "GPU:1", "GPU:2"]
    assert seen["ran"] == {"GPU:0": [0], "GPU:1": [0], "GPU:2": [1]}
    assert seen["machine"] == "slow-gpus"
    del seen["memory"]["CPU:0"]
    assert seen["memory"] == {"GPU:0": 96 << 20, "GPU:1": 64 << 20, "GPU:2": 512 << 20}
    assert seen["history"] == ["planned"]
