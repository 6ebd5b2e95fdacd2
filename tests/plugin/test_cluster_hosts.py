"""Which tasks share a host, by the addresses of a cluster."""

from __future__ import annotations

import json
import socket

import pytest

from hplacer_optimizer.plugin.cluster_hosts import host_of, hosts_of_tasks


@pytest.mark.parametrize(
    "address",
    [
        "localhost:1",
        "127.0.0.1:2",
        "127.0.1.1:2",
        "[::1]:3",
        "0.0.0.0:4",
        "grpc://localhost:5",
        f"{socket.gethostname()}:6",
    ],
)
def test_addresses_of_this_host_are_one(address: str) -> None:
    assert host_of(address) == host_of("localhost:2222")


def test_other_hosts_are_told_apart() -> None:
    addresses = ["10.0.0.1:1", "10.0.0.2:1", "[fe80::1]:1", "worker-1.cluster:1", "localhost:1"]
    assert len(set(map(host_of, addresses))) == len(addresses)
    assert host_of("10.0.0.1:1") == host_of("grpc://10.0.0.1:2")


@pytest.mark.parametrize("as_dict", [False, True])
def test_the_environment_tells_a_cluster(as_dict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = ["a:1", "b:1", "a:2"]
    cluster = {
        "worker": {str(i): each for i, each in enumerate(workers)} if as_dict else workers,
        "chief": ["b:2"],
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"index": 0}}))
    assert hosts_of_tasks() == {
        "/job:worker/replica:0/task:0": "a",
        "/job:worker/replica:0/task:1": "b",
        "/job:worker/replica:0/task:2": "a",
        "/job:chief/replica:0/task:0": "b",
    }


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"cluster": 3}', '{"cluster": {"worker": 3}}']
)
def test_a_malformed_environment_tells_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    assert hosts_of_tasks() == {}
