"""Plans that are made outside of training are found by the training script, in real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.plans.store import PlanStore
from tests import processes

# Names as in the scripts; memory and rates as nowhere.
MACHINE = """
format: hplacer-machine/1
name: two-slow-cpus
kinds:
  slow:
    type: CPU
    flops: {float32: 1 GFLOP/s}
    memory: 3 GiB
    memory_bandwidth: 1 GB/s
    launch_overhead: 3 us
devices:
  - {name: /device:CPU:0, kind: slow}
  - {name: /device:CPU:1, kind: slow, memory: 1 GiB}
links:
  - memory: {latency: 7 us, bandwidth: 3 GB/s, devices: [/device:CPU:0, /device:CPU:1]}
"""
START = """
import json, os, sys
import numpy as np
import tensorflow as tf
import hplacer_optimizer as hp
from hplacer_optimizer.plugin import service as plugin
v1 = tf.compat.v1
OPTIONS = {"cache": os.environ["TEST_CACHE"], "planner": "own:last", "min_ops": 15,
           "min_gain": -1, **json.loads(os.environ.get("TEST_OPTIONS", "{}"))}

def two_cpus():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    tf.config.optimizer.set_experimental_options({"hierarchical_placer": OPTIONS})

def report(**values):
    open("trained", "w").close()
    keys = ("graph", "outcome", "planner", "ops", "reason", "planning_s", "fingerprint")
    history = [{key: getattr(entry, key) for key in keys} for entry in plugin.history()]
    print("REPORT " + json.dumps({"history": history, **values}), flush=True)
"""
SESSION = (
    START
    + """
v1.disable_eager_execution()
x = v1.placeholder(tf.float32, [None, 8], name="x")
hidden = x
for layer in range(3):
    hidden = tf.nn.relu(hidden @ v1.get_variable(f"w{layer}", [8, 8]))
train = v1.train.AdamOptimizer().minimize(tf.reduce_sum(hidden ** 2), name="train")
if sys.argv[1:] == ["export"]:
    v1.train.Saver().export_meta_graph("graph.meta")
    sys.exit()
config = hp.session_config(v1.ConfigProto(device_count={"CPU": 2}), **OPTIONS)
with v1.Session(config=config) as session:
    session.run(v1.global_variables_initializer())
    for _ in range(3):
        session.run(train, {x: np.ones([4, 8])})
report()
"""
)
SAVED_MODEL = (
    START
    + """
class Trainer(tf.Module):
    def __init__(self):
        self.weights = [tf.Variable(tf.ones([16, 16]) / (8.0 + n)) for n in range(4)]

    @tf.function(input_signature=[tf.TensorSpec([4, 16], name="x")])
    def train_step(self, x):
        with tf.GradientTape() as tape:
            a, b = (f(x @ w) for f, w in zip([tf.nn.relu, tf.tanh], self.weights))
            loss = tf.reduce_mean((a * b @ self.weights[2] @ self.weights[3]) ** 2)
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights)):
            weight.assign_sub(0.01 * gradient)
        return {"loss": loss}

if sys.argv[1:] == ["export"]:
    trainer = Trainer()
    tf.saved_model.save(trainer, "saved", {"train": trainer.train_step})
    sys.exit()
two_cpus()
if sys.argv[1:] == ["load"]:
    model = tf.saved_model.load("saved")
    losses = [float(model.signatures["train"](tf.ones([4, 16]))["loss"])]
else:
    model = Trainer()
    losses = [1e9]
losses += [float(model.train_step(tf.ones([4, 16]))["loss"]) for _ in range(3)]
report(falls=losses == sorted(losses, reverse=True) and losses[-1] < losses[0])
"""
)
KERAS = (
    START
    + """
two_cpus()
import keras
keras.utils.set_random_seed(1)
inputs = keras.Input([8])
a = keras.layers.Dense(8, activation="relu")(inputs)
b = keras.layers.Dense(8, activation="tanh")(inputs)
model = keras.Model(inputs, keras.layers.Dense(1)(a + b))
model.compile("adam", "mse", jit_compile=sys.argv[1:] == ["jit"])
data = np.ones([24, 8], np.float32)
model.evaluate(data, data[:, :1], batch_size=4, verbose=0)
fitted = model.fit(data, data[:, :1], batch_size=4, epochs=2, verbose=0)
report(losses=fitted.history["loss"])
"""
)
# Planners that a busy machine does not change.
STEADY = """
from hplacer_optimizer.planners import Budget, get_planner
from own import climb

def climb_in_sight(problem, *, on_progress, **options):
    "Leaves a file after two steps."
    def tell(progress):
        if progress.steps == 2:
            open("climbing", "w").close()
        on_progress(progress)
    return climb(problem, on_progress=tell, **options)

def learn_two_steps(problem, *, budget, **options):
    "The policy, for two updates, whatever time they take."
    return get_planner("hierarchical").plan(problem, budget=Budget(steps=2), **options)
"""
SCRIPTS = {"session.py": SESSION, "saved_model.py": SAVED_MODEL, "keras_fit.py": KERAS}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the scripts, the machine, graph.meta and saved/."""
    directory = tmp_path_factory.mktemp("exported")
    (directory / "own.py").write_text(processes.OWN_PLANNERS)
    (directory / "steady.py").write_text(STEADY)
    (directory / "machine.yaml").write_text(MACHINE)
    for name, code in SCRIPTS.items():
        (directory / name).write_text(code)
    for name in ("session.py", "saved_model.py"):
        done = python(directory, directory, name, "export")
        assert done.returncode == 0, done.stderr
    return directory


def python(
    exported: Path, work: Path, *arguments: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A process in the directory of the files, whose plans lie under `work`."""
    return processes.run_script(
        [str(argument) for argument in arguments],
        cwd=exported,
        environment=processes.clean_environment(exported)
        | {"TEST_CACHE": str(work / "cache")}
        | environment,
        timeout_s=120,
    )


def pretrain(
    exported: Path, work: Path, *arguments: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    own = ("--planner", "own:climb", "--machine", "machine.yaml")
    command = ("-m", "hplacer_optimizer", "pretrain", *own, *arguments)
    return python(exported, work, *command, **environment)


def train(exported: Path, work: Path, *arguments: object, **options: Any) -> dict[str, Any]:
    """The report of a training script that ended well."""
    text = json.dumps(options)
    done = python(exported, work, *arguments, TEST_OPTIONS=text, HPLACER_LOG="debug")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    return {"stderr": done.stderr, **json.loads(line.removeprefix("REPORT "))}


def check_hit(report: dict[str, Any], fingerprint: str) -> None:
    """The training step ran with the plan that was pretrained; nothing of its size was planned."""
    steps = [entry for entry in report["history"] if entry["fingerprint"] == fingerprint]
    assert steps, report["history"]
    assert {(entry["outcome"], entry["planner"]) for entry in steps} == {("loaded", "own:climb")}
    largest = max(report["history"], key=lambda entry: entry["ops"])
    assert largest["fingerprint"] == fingerprint


# ---- pretrain, then start the script: a hit ----


def test_a_session_finds_the_plan_of_its_meta_graph(exported: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = pretrain(exported, tmp_path, "graph.meta", "--steps", 5, "--cache", cache, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["stored"]
    assert document["budget"] == {"steps": 5, "steps_done": 5, "placements_scored": 5}
    check_hit(train(exported, tmp_path, "session.py"), document["fingerprint"])
    plan = PlanStore(cache).get(document["fingerprint"])
    assert plan is not None
    assert plan.machine is not None
    assert "two-slow-cpus" in plan.machine
    assert [point["steps"] for point in plan.learning_curve] == [1, 2, 3, 4, 5]
    problem, placement = plan.problem(), plan.placement
    assert problem is not None
    assert placement is not None
    assert problem.device_memory_bytes.tolist() == [3 << 30, 1 << 30]
    assert 0 < plan.lower_bound_ns <= plan.step_time_ns


@pytest.mark.parametrize(
    ("signature", "arguments"),
    [pytest.param("train", ["load"], marks=pytest.mark.slow), ("train_step", [])],
)
def test_a_function_finds_the_plan_of_its_saved_model(
    exported: Path, tmp_path: Path, signature: str, arguments: list[str]
) -> None:
    graph = ("saved", "--signature", signature, "--cache", tmp_path / "cache", "--json")
    done = pretrain(exported, tmp_path, *graph, "--steps", 5)
    assert done.returncode == 0, done.stderr
    report = train(exported, tmp_path, "saved_model.py", *arguments)
    check_hit(report, json.loads(done.stdout)["fingerprint"])
    assert report["falls"]


@pytest.mark.parametrize("script", ["session.py", "keras_fit.py"])
def test_a_script_finds_the_plan_of_its_capture(
    exported: Path, tmp_path: Path, script: str
) -> None:
    (exported / "trained").unlink(missing_ok=True)
    # Without --cache: the store is the one that the script names.
    options = ("--steps", 5, "--json", "--in-place")
    done = pretrain(exported, tmp_path, *options, "--capture", script)
    assert done.returncode == 0, done.stderr
    assert not (exported / "trained").exists(), "the script went on after its capture"
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == ["", ".hplan"]
    report = train(exported, tmp_path, script)
    check_hit(report, json.loads(done.stdout)["fingerprint"])
    if "losses" in report:
        assert report["losses"][1] < report["losses"][0]


# ---- scripts that cannot be captured ----

RUNS_ON = """
import tensorflow as tf, hplacer_optimizer, os, time
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 3)
@tf.function
def step(x, v=tf.Variable(tf.ones([8, 8]))):
    for _ in range(9):
        x = tf.tanh(x @ v)
    v.assign_sub(x)
step(tf.ones([8, 8]))
"""
NOT_CAPTURED = {
    "ends": ("import sys; assert sys.argv[1:] == ['--x', '1']", "the pass saw no graph of it"),
    "other_machine": (RUNS_ON, "the script runs on /job:localhost/replica:0/task:0/device:CPU:0, "),
}


@pytest.mark.parametrize("name", NOT_CAPTURED)
def test_why_a_script_is_not_captured(exported: Path, tmp_path: Path, name: str) -> None:
    code, message = NOT_CAPTURED[name]
    script = tmp_path / "script.py"
    script.write_text(code)
    done = pretrain(exported, tmp_path, "--capture", script, "--x", "1")
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert not (tmp_path / "cache").exists()


# ---- lists ----


def test_the_exit_code_of_a_list_tells_of_a_failed_job(exported: Path, tmp_path: Path) -> None:
    (exported / "jobs.yaml").write_text(
        "format: hplacer-pretrain/1\ndefaults: {machines: machine.yaml, steps: 3}\njobs:\n"
        "  - {graphs: none.meta, planners: etf}\n"
        "  - {graphs: graph.meta, planners: ['own:climb', heft]}\n"
    )
    command = ("-m", "hplacer_optimizer", "pretrain", "--list", "jobs.yaml", "--json")
    done = python(exported, tmp_path, *command, "--cache", tmp_path)
    assert done.returncode == 1
    found = [(job["planner"], job["error"] is None) for job in json.loads(done.stdout)]
    assert found == [("etf", False), ("own:climb", True), ("heft", True)]
    assert "none.meta: no such file" in done.stderr
    assert len(PlanStore(tmp_path).fingerprints()) == 1


# ---- signals ----


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_a_signal_keeps_the_best_plan(
    exported: Path, tmp_path: Path, number: int, code: int
) -> None:
    (exported / "climbing").unlink(missing_ok=True)
    command = [sys.executable, "-m", "hplacer_optimizer", "pretrain", "graph.meta"]
    own = ["--planner", "steady:climb_in_sight", "--machine", "machine.yaml"]
    process = subprocess.Popen(
        [*command, *own, "--cache", tmp_path],
        stderr=subprocess.PIPE,
        text=True,
        env=processes.clean_environment(exported),
        cwd=exported,
    )
    processes.wait_for((exported / "climbing").exists)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert "the best plan was kept" in errors
    (entry,) = PlanStore(tmp_path).list()
    assert entry.plan is not None
    assert entry.plan.budget["seconds"] == 600
    assert 1 < entry.plan.budget["steps_done"] < 20_000


# ---- on a miss ----


def test_a_background_search_leaves_a_better_plan(exported: Path, tmp_path: Path) -> None:
    options = {"on_miss": "background", "planner": "own:climb", "budget_s": 3}
    report = train(exported, tmp_path, "session.py", **options)
    (step,) = report["history"]
    assert (step["outcome"], step["planner"]) == ("kept", None)
    assert "in the background, log" in report["stderr"]
    pretraining = tmp_path / "cache" / "pretraining"
    log = pretraining / f"{step['fingerprint']}.log"
    processes.wait_for(lambda: os.listdir(pretraining) == [log.name])
    assert "own:climb for 3 s" in log.read_text()
    assert log.read_text().endswith("steps: stored\n")
    check_hit(train(exported, tmp_path, "session.py", **options), step["fingerprint"])
    assert os.listdir(pretraining) == [log.name]


def test_learning_has_its_whole_budget(exported: Path, tmp_path: Path) -> None:
    options = {"on_miss": "learn", "planner": "own:climb", "budget_s": 4, "timeout_s": 4}
    report = train(exported, tmp_path, "session.py", **options)
    (step,) = report["history"]
    assert (step["outcome"], step["planner"]) == ("planned", "own:climb")
    assert step["planning_s"] >= 4
    assert re.search(r"planner of session graph: \d+ steps, \d+ placements", report["stderr"])


def test_training_goes_on_where_no_search_can_begin(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "pretraining").write_text("not a directory")
    report = train(exported, tmp_path, "session.py", on_miss="background")
    assert [entry["outcome"] for entry in report["history"]] == ["kept"]
    assert report["stderr"].count("no search in the background: ") == 1


def test_the_policy_is_trained_inside_of_the_pass(exported: Path, tmp_path: Path) -> None:
    options = {"planner": "steady:learn_two_steps", "on_miss": "learn", "budget_s": 30}
    report = train(exported, tmp_path, "session.py", **options)
    (step,) = report["history"]
    assert (step["outcome"], step["planner"]) == ("planned", options["planner"])
    found = re.search(r"(\d+) steps, (\d+) placements", report["stderr"])
    assert found
    assert 1 < int(found[1]) < int(found[2])
    (step,) = train(exported, tmp_path, "session.py", **options)["history"]
    assert (step["outcome"], step["planner"]) == ("loaded", options["planner"])
