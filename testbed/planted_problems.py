"""Problems whose optimal step time is known by construction."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np


def machine(
    devices: int | Sequence[str],
    memory_bytes: int = 10**12,
    latency_ns: int = 10,
    *,
    is_linked: bool = True,
) -> dict[str, Any]:
    """So many equal devices, or those of these names, whose types are the kinds.

    Each pair has a channel of its own at one byte per nanosecond, unless they are not linked.
    """
    names = [f"/device:GPU:{d}" for d in range(devices)] if isinstance(devices, int) else devices
    types = [re.search(r"device:(\w+):", name) for name in names]
    kinds = [found[1].lower() if found else "gpu" for found in types]
    pairs = itertools.permutations(range(len(names)), 2) if is_linked else ()
    return {
        "format": "hplacer-problem/2",
        "name": "planted",
        "device_kinds": sorted(set(kinds)),
        "devices": [
            {"name": name, "kind": kind, "memory_bytes": memory_bytes}
            for name, kind in zip(names, kinds, strict=True)
        ],
        "links": [
            {"src": a, "dst": b, "channel": f"{a}-{b}", "latency_ns": latency_ns}
            | {"bytes_per_s": 10**9}
            for a, b in pairs
        ],
    }


def chains(count: int, length: int, cost_ns: int, size_bytes: int) -> tuple[dict[str, Any], int]:
    """`count` chains for as many devices, joined at the end; returns (document, optimum).

    Passing a tensor on costs more than an op, so that a chain that changes its device only loses.
    Either all chains end together, and the last op waits for the others' tensors, which travel side
    by side; or everything is on one device, and nothing is sent.
    """
    ops, edges, ends = [], [], []
    for chain in range(count):
        for i in range(length):
            op = {"name": f"c{chain}/{i}", "type": "T", "cost_ns": {"gpu": cost_ns}}
            ops.append(op | {"output_bytes": [size_bytes]})
            if i:
                edges.append([len(ops) - 2, 0, len(ops) - 1])
        ends.append(len(ops) - 1)
    ops.append({"name": "join", "type": "T", "cost_ns": {"gpu": 1}, "output_bytes": []})
    edges += [[end, 0, len(ops) - 1] for end in ends]
    optimum = min(length * cost_ns + 10 + size_bytes, count * length * cost_ns) + 1
    return machine(count) | {"ops": ops, "edges": edges}, optimum


def fork_join(
    branch: int, cost_ns: int, cheap_bytes: int, dear_bytes: int
) -> tuple[dict[str, Any], int]:
    """Two branches of `branch` ops on two devices; returns (document, optimum).

    Within the second branch one tensor is dear to send, so that the only cut that pays is at the
    fork and at the join.
    """
    ops: list[dict[str, Any]] = []
    edges = []

    def add(name: str, output_bytes: int, inputs: list[int]) -> int:
        ops.append(
            {"name": name, "type": "T", "cost_ns": {"gpu": cost_ns}, "output_bytes": [output_bytes]}
        )
        edges.extend([i, 0, len(ops) - 1] for i in inputs)
        return len(ops) - 1

    fork = add("fork", cheap_bytes, [])
    tails = []
    for b in range(2):
        last = fork
        for i in range(branch):
            dear = b == 1 and i < branch - 1
            last = add(f"b{b}/{i}", dear_bytes if dear else cheap_bytes, [last])
        tails.append(last)
    add("join", 0, tails)
    # Fork, transfer, second branch, join beside it; the first branch has sent its end by then.
    optimum = cost_ns + (10 + cheap_bytes) + branch * cost_ns + cost_ns
    return machine(2) | {"ops": ops, "edges": edges}, optimum


def tight_memory(devices: int, per_device: int, fill: float, seed: int) -> dict[str, Any]:
    """Variables that fill `fill` of all memory, and can be packed by construction."""
    rng = np.random.default_rng(seed)
    memory_bytes = 1_000_000
    sizes: list[int] = []
    for _ in range(devices):
        shares = rng.dirichlet(np.ones(per_device)) * fill * memory_bytes
        sizes += [int(share) for share in shares]
    order = rng.permutation(len(sizes))
    ops = [
        {
            "name": f"v{i}",
            "type": "Variable",
            "cost_ns": {"gpu": 1000},
            "persistent_bytes": sizes[order[i]],
            "output_bytes": [1],
        }
        for i in range(len(sizes))
    ]
    edges = [[i, 0, i + 1] for i in range(0, len(ops) - 1, 2)]
    return machine(devices, memory_bytes) | {"ops": ops, "edges": edges}
