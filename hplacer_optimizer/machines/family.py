"""Machines named NxKIND, such as 4xa100: N GPUs of a kind in one host, by `data/families.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from hplacer_optimizer.support.document import parse_yaml

MAX_GPUS = 16
_TABLE = Path(__file__).with_name("data") / "families.yaml"
_CPU = "/device:CPU:0"


@functools.cache
def family_kinds() -> tuple[str, ...]:
    """The kinds of GPUs of which there are machines."""
    return tuple(dict.fromkeys(kind for host in _table()["hosts"] for kind in host["cpu"]))


def family_names() -> tuple[str, ...]:
    """Every NxKIND."""
    return tuple(f"{n}x{kind}" for kind in family_kinds() for n in range(1, MAX_GPUS + 1))


def family_rule() -> str:
    """As "NxKIND with N from 1 to 16 and KIND one of k40, v100", for people."""
    return f"NxKIND with N from 1 to {MAX_GPUS} and KIND one of {', '.join(family_kinds())}"


def family_document(name: str) -> dict[str, Any]:
    """What a machine file has below its format; the name is one of `family_names`."""
    number, _, kind = name.partition("x")
    count = int(number)
    hosts = [host for host in _table()["hosts"] if kind in host["cpu"]]
    host = next((host for host in hosts if count <= int(host.get("gpus", count))), hosts[-1])
    cpu = {"name": _CPU, **host["cpu"][kind]}
    gpus = [f"/device:GPU:{index}" for index in range(count)]
    return {
        "name": name,
        "assumptions": [*_assumptions(host, count)],
        "devices": [cpu, *({"name": gpu, "kind": kind} for gpu in gpus)],
        "links": [*_links(host, gpus)],
    }


@functools.cache
def _table() -> Any:
    return parse_yaml(_TABLE.read_bytes()).value


def _assumptions(host: Any, count: int) -> Iterator[str]:
    if int(host.get("gpus", count)) != count:
        yield f"The machine is a {host['name']}, but has {count} instead of {host['gpus']} GPUs."
    if count > int(host["pcie"]["links"]):
        yield f"The GPUs share {host['pcie']['links']} PCIe links to the host evenly."
    else:
        yield "Each GPU has a PCIe link of its own to the host."
    yield from host.get("assumptions", [])


def _links(host: Any, gpus: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The elements of `links`; where two of them link a pair, the first one counts."""
    latency = {"latency": _table()["latency"]}
    if "nvswitch" in host:
        yield {"nvswitch": {**latency, "bandwidth": host["nvswitch"], "devices": gpus}}
    if "nvlink" in host:
        bricks = [
            [gpus[int(a)], gpus[int(b)], number]
            for a, b, number in host["nvlink"]["bricks"]
            if max(int(a), int(b)) < len(gpus)
        ]
        yield {"nvlink": {**latency, **host["nvlink"], "bricks": bricks}}
    bandwidth, ports = host["pcie"]["bandwidth"], int(host["pcie"]["links"])
    children: list[Any] = []
    for port, indices in groupby(range(len(gpus)), lambda index: index * ports // len(gpus)):
        below = [gpus[index] for index in indices]
        children += below if len(below) == 1 else [{"switch": f"plx{port}", "children": below}]
    yield {"pcie": {**latency, "bandwidth": bandwidth, "host": [_CPU], "children": children}}
