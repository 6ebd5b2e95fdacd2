"""Local clusters: real TensorFlow servers in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import hplacer_optimizer as hp
from hplacer_optimizer.clusters.local import LocalCluster, _share
from tests.processes import ROOT, clean_environment

STARTER = """
import time
import hplacer_optimizer as hp
with hp.local_cluster(workers=1) as cluster:
    print(*cluster.pids, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with hp.local_cluster(workers=2) as started:
        yield started


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


def test_workers_have_cores_and_addresses_of_their_own(cluster: LocalCluster) -> None:
    assert cluster.spec == {"worker": list(cluster.addresses)}
    assert len(set(cluster.addresses)) == 2
    for pid, cores in zip(cluster.pids, cluster.cores, strict=True):
        assert os.sched_getaffinity(pid) == set(cores)
    cluster.check()


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


def test_the_block_stops_the_workers_and_a_lost_one_is_named() -> None:
    with hp.local_cluster(workers=1) as started:
        (pid,) = started.pids
        assert is_running(pid)
        os.kill(pid, signal.SIGKILL)
        started.processes[0].wait(10)
        with pytest.raises(hp.ClusterError, match=rf"worker 0 \(pid {pid}, .*exit code -9"):
            started.check()
    (address,) = started.addresses
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
            assert is_running(pid)
        finally:
            starter.kill()
    assert ends(pid)


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
            assert all(map(is_running, told["pids"]))
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 0
        finally:
            running.kill()
    assert all(map(ends, told["pids"]))
    described = hp.load_machine(str(machine))
    assert described.device_names == tuple(told["device_names"])
    assert len(described.links) == 2
