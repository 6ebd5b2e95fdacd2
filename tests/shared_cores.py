"""A small problem on two devices that share one slot, for tests that work out its step by hand."""

from __future__ import annotations

from typing import Any


def shared_cores() -> dict[str, Any]:
    """Ops a -> c, b and d, of 10, 6, 4 and 5 ns; a's tensor takes 2 + 5 ns to the other device."""
    device = {"kind": "cpu", "memory_bytes": 100, "cores": "all"}
    link = {"latency_ns": 2, "bytes_per_s": 10**9}
    costs = {"a": 10, "b": 4, "c": 6, "d": 5}
    return {
        "format": "hplacer-problem/2",
        "name": "shared cores",
        "device_kinds": ["cpu"],
        "devices": [{"name": f"/device:CPU:{i}", **device} for i in range(2)],
        "links": [{"src": i, "dst": 1 - i, "channel": f"from {i}", **link} for i in range(2)],
        "ops": [
            {"name": name, "type": "T", "cost_ns": {"cpu": cost}, "output_bytes": [5]}
            for name, cost in costs.items()
        ],
        "edges": [[0, 0, 2]],
    }
