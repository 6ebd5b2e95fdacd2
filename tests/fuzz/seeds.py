"""Valid files to mutate."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from hplacer_optimizer import machines

__all__ = ["golden_problem", "random_machine", "random_problem"]


def golden_problem() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def random_machine(random: Random) -> str:
    """A shipped machine, in its topology or as its single links."""
    folder = Path(machines.__file__).with_name("data")
    path = folder / f"{random.choice(machines.shipped_machines())}.yaml"
    if random.random() < 0.7:
        return path.read_text()
    return machines.machine_to_yaml(machines.load_machine(path))


def random_problem(random: Random) -> dict[str, Any]:
    """A valid problem that uses every field of the format."""
    kinds = ["cpu", "gpu", "tpu"][: random.randint(1, 3)]
    num_devices, num_ops = random.randint(1, 5), random.choice([0, 1, 2, 5, 10, 20])
    document: dict[str, Any] = {
        "format": "hplacer-problem/1",
        "name": random.choice(["", "random", "\u00e9\n"]),
        "device_kinds": kinds,
        "devices": [
            {
                "name": f"/device:{d}",
                "kind": random.choice(kinds),
                "memory_bytes": random.choice([50, 10**6, 2**40]),
            }
            | random.choice([{}, {"slots": random.randint(1, 4)}])
            for d in range(num_devices)
        ],
        "links": [
            {
                "src": a,
                "dst": b,
                "channel": random.choice("xyz"),
                "latency_ns": random.randrange(5),
                "bytes_per_s": random.choice([10**9, 3 * 10**8, 10**18]),
            }
            for a in range(num_devices)
            for b in range(num_devices)
            if a != b and random.random() < 0.95
        ],
        "ops": [],
        "edges": [],
        "control_edges": [],
    }
    for i in range(num_ops):
        _add_op(random, document, i)
    return document


def _add_op(random: Random, document: dict[str, Any], i: int) -> None:
    ops, kinds = document["ops"], document["device_kinds"]
    reads = []
    for src in random.sample(range(i), min(i, random.randrange(4))):
        outputs = len(ops[src].get("output_bytes", ()))
        if outputs and random.random() < 0.8:
            reads.append([src, random.randrange(outputs)])
        else:
            document["control_edges"].append([src, i])
    document["edges"] += [[*read, i] for read in reads]
    sizes = [random.randrange(5) for _ in range(random.randrange(4))]
    op: dict[str, Any] = {
        "name": f"op{i}",
        "type": "T",
        "cost_ns": {kind: random.randrange(9) for kind in kinds if random.random() < 0.95},
        "output_bytes": sizes,
        "output_alias": [random.choice([None, None, "persistent", *reads]) for _ in sizes],
        "temp_bytes": random.randrange(4),
        "persistent_bytes": random.randrange(4),
        "allowed_devices": random.sample(range(len(document["devices"])), 1),
        "colocation_group": random.choice("gh"),
    }
    for field in list(op)[3:]:
        if field == "output_bytes" or random.random() < 0.7:
            continue  # "output_alias" would need its "output_bytes"
        del op[field]
    if random.random() < 0.8:
        op.pop("allowed_devices", None)
        op.pop("colocation_group", None)
    ops.append(op)
