"""Local clusters: real TensorFlow servers in processes of their own, and plans over them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import hplacer_optimizer as hp
from hplacer_optimizer.measuring.clusters.local_workers import _share
from tests.processes import PYTHON, ROOT, clean_environment, has_ended, run, wait_for

STARTER = """
import time
import hplacer_optimizer as hp
with hp.local_cluster(workers=1) as cluster:
    print(*cluster.pids, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("cores", "workers", "shares"),
    [
        ([0, 1], 2, ((0,), (1,))),
        ([4, 5, 6, 7, 8], 2, ((4, 5), (6, 7, 8))),
        ([0, 1], 3, ((0,), (1,), (0,))),
        ([3], 1, ((3,),)),
    ],
)
def test_shares_of_cores(cores: list[int], workers: int, shares: tuple[object, ...]) -> None:
    assert _share(cores, workers) == shares


def test_workers_with_cores_and_addresses_of_their_own_and_one_that_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", PYTHON)  # for workers that are no forks
    with hp.local_cluster(workers=2) as cluster:
        assert cluster.spec == {"worker": list(cluster.addresses)}
        assert len(set(cluster.addresses)) == 2
        for pid, cores in zip(cluster.pids, cluster.cores, strict=True):
            assert os.sched_getaffinity(pid) == set(cores)
        cluster.check()
        os.kill(cluster.pids[1], signal.SIGKILL)
        cluster.processes[1].wait(60)
        with pytest.raises(hp.ClusterError, match=rf"worker 1 \(pid {cluster.pids[1]}, .*code -9"):
            cluster.check()
    assert all(map(has_ended, cluster.pids))
    for address in cluster.addresses:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=1)


def test_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER],
        env=clean_environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        try:
            assert starter.stdout is not None
            pid = int(starter.stdout.readline())
            assert not has_ended(pid)
        finally:
            starter.kill()
    wait_for(lambda: has_ended(pid))


@pytest.mark.slow
def test_the_command_runs_until_ctrl_c(tmp_path: Path) -> None:
    machine = tmp_path / "cluster.yaml"
    command = [sys.executable, "-m", "hplacer_optimizer", "cluster", "start", "--json"]
    with subprocess.Popen(
        [*command, "-o", str(machine)],
        cwd=ROOT,
        env=clean_environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            told = json.loads("".join(iter(running.stdout.readline, "}\n")) + "}")
            assert len(told["addresses"]) == 2
            assert not any(map(has_ended, told["pids"]))
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 0
        finally:
            running.kill()
    wait_for(lambda: all(map(has_ended, told["pids"])))
    described = hp.load_machine(str(machine))
    assert described.device_names == tuple(told["device_names"])
    assert len(described.links) == 2


# ---- plans over workers ----

V1 = """
import json, os, signal
import tensorflow as tf
import hplacer_optimizer as hp
from hplacer_optimizer.workloads.graphs import build_graph

v1 = tf.compat.v1
CACHE = os.environ["TEST_CACHE"]
sizes = dict(batch_size=32, features=2, rows=100, width=16, hidden=64, layers=2)
model = build_graph("two_tower", pin_tables=False, **sizes)

def train(session, steps=3):
    session.run(model.init)
    return [float(session.run([model.loss, model.train_op])[0]) for _ in range(steps)]

def planned():
    return hp.session_config(devices=["/job:worker"], cache=CACHE, planner="round_robin",
                             min_gain=-1)

with hp.local_cluster(workers=2) as cluster:
    with v1.Session(cluster.target, graph=model.graph) as session:
        expected = train(session)
    with v1.Session(cluster.target, graph=model.graph, config=planned()) as session:
        losses = train(session)
        metadata = v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        session.run(model.train_op, options=options, run_metadata=metadata)
        used = {node.device for graph in metadata.partition_graphs for node in graph.node}
        os.kill(cluster.pids[1], signal.SIGKILL)
        cluster.processes[1].wait(60)  # else it may run the step
        try:
            session.run(model.train_op)
            error = ""
        except tf.errors.OpError as raised:
            error = type(raised).__name__
        print("REPORT " + json.dumps(dict(
            expected=expected, losses=losses, used=sorted(used), names=cluster.device_names,
            error=error,
        )), flush=True)
        os._exit(0)  # closing the session would wait for the worker that is lost
"""

TF2 = """
import json, os, signal
import tensorflow as tf
import hplacer_optimizer as hp
from hplacer_optimizer.plugin import service as plugin

with hp.local_cluster(workers=2) as cluster:
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(cluster.spec))
    weights = []
    for index, device in enumerate(cluster.device_names):
        with tf.device(device):
            weights.append(tf.Variable(tf.random.stateless_normal((16, 16), (index, 1))))

    def step(inputs):
        with tf.GradientTape() as tape:
            values = [tf.tanh(tf.tanh(inputs @ weight) * 2.0 + 1.0) for weight in weights]
            loss = tf.reduce_mean((values[0] - values[1]) ** 2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(0.01 * gradient)
        return loss

    inputs = tf.random.stateless_normal((8, 16), (7, 7))

    def train(**options):
        for index, weight in enumerate(weights):
            weight.assign(tf.random.stateless_normal((16, 16), (index, 1)))
        tf.config.optimizer.set_experimental_options({"hierarchical_placer": options or False})
        function = tf.function(step)
        return function, [float(function(inputs)) for _ in range(3)]

    _, expected = train()
    function, losses = train(
        devices=["/job:worker"], cache=os.environ["TEST_CACHE"], planner="round_robin", min_gain=-1
    )
    outcomes = [entry.outcome for entry in plugin.history()]
    os.kill(cluster.pids[1], signal.SIGKILL)
    cluster.processes[1].wait(60)  # else it may run the step
    try:
        function(inputs)
        error = ""
    except tf.errors.OpError as raised:
        error = type(raised).__name__
    print("REPORT " + json.dumps(dict(
        expected=expected, losses=losses, outcomes=outcomes, error=error,
    )), flush=True)
    os._exit(0)
"""


def stored(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "cache").glob("*.hplan")}


def kinds(directory: Path) -> list[str]:
    """Of the workers' devices in the plan that is stored."""
    (file,) = (directory / "cache").glob("*.hplan")
    plan = hp.load_plan(file)
    devices = zip(plan.device_names, plan.device_kinds, strict=True)
    return [kind for name, kind in devices if name.startswith("/job:worker/")]


@pytest.mark.slow
def test_a_session_over_two_workers_and_one_that_is_lost(tmp_path: Path) -> None:
    plans: dict[str, bytes] = {}
    for made in ("made", "loaded"):
        outcome = run(V1, tmp_path, prelude="", log="info")
        report = outcome.report
        assert report["losses"] == pytest.approx(report["expected"], rel=1e-5)
        assert report["used"] == report["names"]
        assert report["error"] in ("UnavailableError", "AbortedError")
        assert [line for line in outcome.log if f" {made} for session graph" in line], (
            outcome.stderr
        )
        plans = plans or stored(tmp_path)
        assert len(plans) == 1
        assert stored(tmp_path) == plans  # what was lost left no trace
        assert kinds(tmp_path) == ["CPU (1/2 of the cores)"] * 2


@pytest.mark.slow
def test_a_function_over_two_workers_and_one_that_is_lost(tmp_path: Path) -> None:
    plans: dict[str, bytes] = {}
    for outcome in ("planned", "loaded"):
        report = run(TF2, tmp_path, prelude="").report
        assert report["losses"] == pytest.approx(report["expected"], rel=1e-5)
        assert report["outcomes"] == [outcome]
        assert report["error"] in ("UnavailableError", "AbortedError")
        plans = plans or stored(tmp_path)
        assert len(plans) == 1
        assert stored(tmp_path) == plans
        assert kinds(tmp_path) == ["CPU (1/2 of the cores)"] * 2
