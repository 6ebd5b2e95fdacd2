"""Scripts, plans and detection on emulated devices, with the real TensorFlow."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hplacer_optimizer as hp
from hplacer_optimizer import emulation
from hplacer_optimizer.machines import load_machine, save_machine
from hplacer_optimizer.machines.describe import describe_host
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.scripts.step_timing import time_script
from hplacer_optimizer.workloads.graphs import write_graph
from tests.processes import clean_environment, run_script

MACHINE = "1cpu-4xk40"
# Four towers, which TensorFlow has on one GPU: no plan is as slow as that.
TOWERS = """
import numpy as np
import tensorflow as tf

SIZE, BATCH = 1024, 512
rng = np.random.RandomState(0)

def tower(x, name, depth=6):
    for layer in range(depth):
        start = rng.randn(SIZE, SIZE).astype("f") / SIZE**0.5
        x = tf.nn.relu(x @ v1.get_variable(f"{name}_{layer}", initializer=start))
    return x

v1 = tf.compat.v1
with tf.Graph().as_default():
    x = v1.placeholder(tf.float32, [BATCH, SIZE])
    loss = tf.reduce_mean(tf.square(tf.add_n([tower(x, f"t{i}") for i in range(4)])))
    train = v1.train.GradientDescentOptimizer(1e-3).minimize(loss, name="train")
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for step in range(1000):
            session.run(train, {x: rng.randn(BATCH, SIZE).astype("f")})
"""
# A function: its calls return before the GPUs have done their part.
FUNCTION = """
import tensorflow as tf

weights = [tf.Variable(tf.random.stateless_normal([512, 512], [0, i]) / 23) for i in range(8)]
x = tf.random.stateless_normal([256, 512], [1, 1])

@tf.function
def train_step():
    with tf.GradientTape() as tape:
        hidden = x
        for weight in weights:
            hidden = tf.nn.relu(hidden @ weight)
        loss = tf.reduce_mean(hidden**2)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(1e-3 * gradient)
    return loss

for step in range({steps}):
    loss = train_step()
print("gpus", len(tf.config.list_physical_devices("GPU")), loss.device, float(loss))
"""
KERAS = """
import keras
import numpy as np

model = keras.Sequential([keras.layers.Dense(256, "relu") for _ in range(3)])
model.compile("sgd", "mse", jit_compile=False)
model.fit(np.ones([64 * 60, 64], "f"), np.ones([64 * 60, 256], "f"), batch_size=64, verbose=0)
"""


def hplacer(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    cache = {"XDG_CACHE_HOME": str(directory / "cache")}
    return run_script(
        ["-m", "hplacer_optimizer", *arguments],
        cwd=directory,
        environment=clean_environment(directory) | cache | variables,
        timeout_s=600,
    )


def written(directory: Path, text: str) -> Path:
    work = directory / "work"
    work.mkdir()
    (work / "train.py").write_text(text)
    return work


def tried(work: Path, machine: str, *more: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and log of `hplacer try`."""
    done = hplacer(work, "try", "--emulate", machine, "--json", *more, "train.py")
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_a_script_runs_on_gpus_that_are_not_there(tmp_path: Path) -> None:
    work = written(tmp_path, FUNCTION.format(steps=3))
    done = hplacer(work, "run", "--emulate", MACHINE, "train.py", HPLACER_DISABLE="1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^gpus 4 \S+/device:GPU:0 \d", done.stdout, re.MULTILINE)
    emulated, passed = (
        line for line in done.stderr.splitlines() if line.startswith("hplacer: emulated GPUs: ")
    )
    assert "4 x k40" in emulated
    times = re.search(r": ([\d.]+) (us|ms) of virtual time passed, in \S+ \S+ of real", passed)
    assert times is not None, passed
    assert float(times[1]) > 0


def test_the_emulated_machine_is_detected() -> None:
    with emulation.environment(MACHINE) as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        found = describe_host(timeout_s=300)
    given = load_machine(MACHINE)
    assert [d.name for d in found.devices] == [*given.device_names]
    assert (found.name, found.kinds) == (given.name, given.kinds)
    assert found.links == given.links
    assert found.memory_bytes == given.memory_bytes


def test_steps_of_a_function_end_when_the_gpus_have_done_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight layers of 2 x 256 x 512 x 512 operations, and twice that for the gradients but one."""
    work = written(tmp_path, FUNCTION.format(steps=1000))
    found = []
    with emulation.environment(MACHINE) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for steps in (10, 20):
            found.append(time_script(["train.py"], directory=work, steps=steps, limit_s=300))
        # It ends before as many steps as are wanted, and never waits for its GPUs.
        (work / "train.py").write_text(FUNCTION.format(steps=12).partition("print")[0])
        short = time_script(["train.py"], directory=work, limit_s=300)
    assert short.step_s == pytest.approx(found[0].step_s, rel=0.05)
    assert short.inside_share is None
    kind = next(kind for kind in load_machine(MACHINE).kinds if kind.type == "GPU")
    least_s = (3 * 8 - 1) * 2 * 256 * 512 * 512 / kind.flops_per_s["float32"]
    assert found[0].step_s >= least_s
    assert found[1].step_s == pytest.approx(found[0].step_s, rel=0.05)
    assert found[0].own_s is not None
    assert found[0].own_s > 0


@pytest.mark.slow
def test_a_plan_for_four_emulated_gpus_pays(tmp_path: Path) -> None:
    work = written(tmp_path, TOWERS)
    code, told, log = tried(work, MACHINE, "--planner", "local_search", "--budget", "5s")
    assert code == 0, log
    assert (told["outcome"], told["emulated"]) == ("faster", MACHINE)
    assert told["speedup"] > 1.2
    assert told["own_work_s"] > 0
    assert 1.0 < told["speedup_with_own_work"] < told["speedup"]
    plan = PlanStore(work / "cache" / "hplacer").get(told["plans"][0]["fingerprint"])
    assert plan is not None
    assert plan.verdict is not None
    assert plan.verdict.emulated == MACHINE
    assert not plan.is_confirmed  # here
    assert len({name for name in plan.device_names if "GPU" in name}) == 4
    assert {device.kind for device in hp.machines.machine_from_yaml(plan.machine or "").devices}


@pytest.mark.slow
def test_figures_are_the_same_from_start_to_start(tmp_path: Path) -> None:
    work = written(tmp_path, TOWERS)
    found = [tried(work, MACHINE, "--planner", "etf", "--steps", "5")[1] for _ in range(2)]
    times = [told["without_plan"]["step_time_ns"] for told in found]
    assert times[0] == pytest.approx(times[1], rel=0.02)


@pytest.mark.slow
def test_keras_is_tried(tmp_path: Path) -> None:
    work = written(tmp_path, KERAS)
    code, told, log = tried(work, "1cpu-2xk40", "--planner", "random", "--seed", "1")
    assert code in (0, 3), log
    assert told["timed"].startswith("function ")
    assert told["emulated"] == "1cpu-2xk40"


@pytest.mark.slow
def test_what_does_not_fit_fails_as_it_would(tmp_path: Path) -> None:
    machine = load_machine("1cpu-2xk40")
    small = replace(
        machine,
        name="small",
        devices=tuple(
            replace(device, memory_bytes=64 << 20) if device.type == "GPU" else device
            for device in machine.devices
        ),
    )
    work = written(tmp_path, TOWERS)
    save_machine(small, work / "small.yaml")
    code, told, log = tried(work, "small.yaml")
    assert (code, told) == (1, {})
    assert "ResourceExhaustedError" in log
    assert "failed with exit code 1 before its first training step" in log


@pytest.mark.slow
def test_a_plan_is_measured_without_a_script(tmp_path: Path) -> None:
    graph, path = tmp_path / "g.meta", tmp_path / "p.hplan"
    write_graph("nmt", graph, layers=1, steps=3, batch_size=16, hidden=128, vocabulary=200)
    hp.plan(str(graph), "random", MACHINE).save(path)
    done = hplacer(
        tmp_path, "measure", str(path), "--graph", str(graph), "--emulate", MACHINE, "--json"
    )
    told = json.loads(done.stdout)
    assert told["emulated"] == MACHINE
    assert told["outcome"] == "slower", done.stderr  # than all on one GPU
    judged = hp.load_plan(path)
    assert judged.verdict is not None
    assert judged.verdict.emulated == MACHINE
    assert not judged.is_retired  # here


@pytest.mark.slow
def test_a_verdict_of_emulated_gpus_retires_the_plan_on_these_alone(tmp_path: Path) -> None:
    work = written(tmp_path, TOWERS)
    code, told, log = tried(work, MACHINE, "--planner", "random", "--seed", "1", "--steps", "5")
    assert (code, told["outcome"]) == (3, "slower"), log
    (work / "train.py").write_text(TOWERS.replace("range(1000)", "range(2)"))
    for machine, is_retired in ((MACHINE, True), ("twin.yaml", False)):
        if not is_retired:  # the same devices under another name
            save_machine(replace(load_machine(MACHINE), name="twin"), work / machine)
        done = hplacer(
            *(work, "run", "--emulate", machine, "--options", "on_miss=skip,min_gain=-1"),
            "train.py",
            HPLACER_LOG="info",
        )
        assert done.returncode == 0, done.stderr
        assert ("so that the plan is retired" in done.stderr) is is_retired, done.stderr
        assert ("plan loaded for session graph" in done.stderr) is not is_retired, done.stderr


def test_this_process_stays_as_it_was() -> None:
    before = dict(os.environ)
    with emulation.environment(MACHINE):
        assert not emulation.is_on()
    assert dict(os.environ) == before
