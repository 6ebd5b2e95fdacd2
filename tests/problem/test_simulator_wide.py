"""Against the reference where small random problems do not reach: many devices, big barriers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.problem.test_simulator import assert_equals_reference


def wide_problem(
    seed: int, num_devices: int, num_ops: int = 90
) -> tuple[dict[str, Any], list[int]]:
    """Few distinct times and sizes, two sets of ops that wait for each other, all pairs linked."""
    rng = random.Random(seed)
    pairs = [(a, b) for a in range(num_devices) for b in range(num_devices) if a != b]
    ops: list[dict[str, Any]] = []
    edges, control_edges = [], []
    for i in range(90):
        reads = [
            [j, rng.randrange(len(ops[j]["output_bytes"]))]
            for j in rng.sample(range(i), min(i, rng.randrange(4)))
        ]
        sizes = [rng.randrange(5) for _ in range(rng.randrange(1, 4))]
        edges += [[j, k, i] for j, k in reads]
        ops.append(
            {
                "name": f"op{i}",
                "type": "T",
                "cost_ns": {"cpu": rng.randrange(6)},
                "output_bytes": sizes,
                "output_alias": [rng.choice([None, None, "persistent", *reads]) for _ in sizes],
                "temp_bytes": rng.randrange(5),
                "persistent_bytes": rng.randrange(3),
            }
        )
    for first in (10, 50):
        control_edges += [[i, j] for i in range(first, first + 8) for j in range(first + 20, 80, 3)]
    document = {
        "format": "hplacer-problem/2",
        "name": "wide",
        "device_kinds": ["cpu"],
        "devices": [
            {"name": f"d{d}", "kind": "cpu", "memory_bytes": 100, "slots": rng.randrange(1, 4)}
            for d in range(num_devices)
        ],
        "links": [
            {
                "src": a,
                "dst": b,
                "channel": f"{a % 4}-{b % 3}",
                "latency_ns": rng.randrange(3),
                "bytes_per_s": 10**9,
            }
            for a, b in pairs
        ],
        "ops": ops,
        "edges": edges,
        "control_edges": control_edges,
    }
    return document, [rng.randrange(num_devices) for _ in ops]


@pytest.mark.parametrize(("seed", "num_devices"), [(0, 2), (1, 5), (2, 5), (3, 64), (4, 65)])
def test_equals_the_reference(seed: int, num_devices: int) -> None:
    assert_equals_reference(*wide_problem(seed, num_devices))
