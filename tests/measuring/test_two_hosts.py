"""A session over two workers that are two hosts to TensorFlow: each has a network of its own.

The networks are namespaces of Linux with a pair of virtual adapters between them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.processes import run

# The process is host 0 from here on, and it forks before TensorFlow has threads.
HOSTS = """
import ctypes, os, signal, subprocess, sys

NEW_USER, NEW_NETWORK, DIE_WITH_PARENT = 0x10000000, 0x40000000, 1
ADDRESSES = ["10.0.0.1:2222", "10.0.0.2:2222"]
libc = ctypes.CDLL(None, use_errno=True)

def unshare(flags):
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")

def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)

def connect(name, address):
    ip("address", "add", address.replace(":2222", "/24"), "dev", name)
    ip("link", "set", name, "up")
    ip("link", "set", "lo", "up")

def fork_worker(task):
    "A worker on its host; returns a function that tells it to start."
    read, write = os.pipe()
    ready, is_ready = os.pipe()
    pid = os.fork()
    if pid:
        os.close(read)
        os.close(is_ready)
        os.read(ready, 1)
        return pid, lambda: os.write(write, b"!")
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if task:
        unshare(NEW_NETWORK)
    os.write(is_ready, b"!")
    os.read(read, 1)
    if task:
        connect("far", ADDRESSES[task])
    forever, _ = os.pipe()
    os.dup2(forever, 0)
    from hplacer_optimizer.plugin import cluster_worker
    cluster_worker.main(task, sorted(os.sched_getaffinity(0)), ADDRESSES)

user, group = os.getuid(), os.getgid()
unshare(NEW_USER | NEW_NETWORK)
for name, text in (("uid_map", f"0 {user} 1"), ("setgroups", "deny"), ("gid_map", f"0 {group} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
workers = [fork_worker(task) for task in range(2)]
ip("link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(workers[1][0]))
connect("near", ADDRESSES[0])
for _, start in workers:
    start()
"""

TRAINING = """
import json
import tensorflow as tf
import hplacer_optimizer as hp
from hplacer_optimizer.workloads.graphs import build_graph

v1 = tf.compat.v1
sizes = dict(batch_size=32, features=2, rows=100, width=16, hidden=64, layers=2)
model = build_graph("two_tower", pin_tables=False, **sizes)

def train(**options):
    config = hp.session_config(devices=["/job:worker"], **options) if options else None
    with v1.Session(f"grpc://{ADDRESSES[0]}", graph=model.graph, config=config) as session:
        session.run(model.init)
        losses = [float(session.run([model.loss, model.train_op])[0]) for _ in range(3)]
        metadata = v1.RunMetadata()
        traced = v1.RunOptions(output_partition_graphs=True)
        session.run(model.train_op, options=traced, run_metadata=metadata)
        nodes = [node.device for graph in metadata.partition_graphs for node in graph.node]
        return losses, sorted(set(nodes))

expected, _ = train()
losses, used = train(cache=os.environ["TEST_CACHE"], planner="round_robin", min_gain=-1)
with open("/proc/net/dev") as file:
    (counts,) = (line.split(":")[1].split() for line in file if line.strip().startswith("near:"))
print("REPORT " + json.dumps(dict(
    expected=expected, losses=losses, used=used, received_bytes=int(counts[0])
)), flush=True)
os._exit(0)  # the workers end with this process
"""
NAMESPACES = ("unshare", "--user", "--map-root-user", "--net")
VETH = "ip link add near type veth peer name far"


def test_a_session_over_workers_with_networks_of_their_own(tmp_path: Path) -> None:
    probe = subprocess.run([*NAMESPACES, "sh", "-c", VETH], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no networks of one's own can be made here: {probe.stderr.strip()}")
    outcome = run(HOSTS + TRAINING, tmp_path, prelude="", log="info")
    report = outcome.report
    assert report["losses"] == pytest.approx(report["expected"], rel=1e-5)
    assert report["used"] == [f"/job:worker/replica:0/task:{n}/device:CPU:0" for n in range(2)]
    assert [line for line in outcome.log if " made for session graph" in line], outcome.stderr
