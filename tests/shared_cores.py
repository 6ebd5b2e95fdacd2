"""A small problem on two devices that share one slot, for tests that work out its step by hand."""

from __future__ import annotations

from typing import Any

from testbed.planted_problems import machine


def shared_cores() -> dict[str, Any]:
    """Ops a -> c, b and d, of 10, 6, 4 and 5 ns; a's tensor takes 2 + 5 ns to the other device."""
    costs = {"a": 10, "b": 4, "c": 6, "d": 5}
    document = machine(["/device:CPU:0", "/device:CPU:1"], 100, 2)
    for device in document["devices"]:
        device["cores"] = "all"
    ops = [
        {"name": name, "type": "T", "cost_ns": {"cpu": cost}, "output_bytes": [5]}
        for name, cost in costs.items()
    ]
    return document | {"ops": ops, "edges": [[0, 0, 2]]}
