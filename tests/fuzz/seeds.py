"""Valid files to mutate, and a small graph on a given machine."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hplacer_optimizer.machines import Machine, shipped_machines
from hplacer_optimizer.problem.files import Problem

__all__ = ["golden_problem", "machine_text", "problem_on", "random_problem"]

_MACHINES = Path(__file__).parents[2] / "hplacer_optimizer" / "machines" / "data"

# Own kinds, explicit links and every kind of quantity; the shipped ones have the topologies.
_SMALL_MACHINE = """\
format: hplacer-machine/1
name: small
kinds:
  slow:
    type: CPU
    flops: {float32: 100 GFLOP/s, float64: 5.0e10 FLOP/s}
    memory_bandwidth: 20 GB/s
    memory: 64 GiB
    launch_overhead: 400 ns
    slots: 4
    turn: 3 ms
devices:
  - {name: /device:CPU:0, kind: slow, cores: all}
  - {name: /device:CPU:1, kind: slow, memory: 1 GB, cores: all, start: 140 us}
links:
  - link:
      {src: /device:CPU:0, dst: [/device:CPU:1], channel: x, latency: 0 ns, bandwidth: 8 Gbit/s,
       send: 20 us, send_bandwidth: 5 GB/s, receive: 40 us, receive_bandwidth: 4 GB/s}
  - memory: {latency: 1 ms, bandwidth: 10 GB/s, devices: [/device:CPU:0, /device:CPU:1]}
"""


def machine_text(random: Random) -> str:
    """The text of a shipped machine file, or of a small one."""
    name = random.choice([*shipped_machines(), "", "", ""])
    return (_MACHINES / f"{name}.yaml").read_text() if name else _SMALL_MACHINE


def problem_on(machine: Machine) -> Problem:
    """Two ops of one kilobyte each, one after the other, on this machine."""
    kinds = len(machine.kinds)
    return Problem(
        name=machine.name,
        op_names=["a", "b"],
        op_types=["T", "T"],
        cost_ns=np.full((2, kinds), 1000),
        output_ptr=np.array([0, 1, 2]),
        output_bytes=np.array([1024, 1024]),
        output_alias_src=np.full(2, -1, np.int32),
        output_alias_output=np.zeros(2, np.int32),
        temp_bytes=np.zeros(2, np.int64),
        persistent_bytes=np.zeros(2, np.int64),
        edges=np.array([[0, 0, 1]], np.int32),
        control_edges=np.zeros((0, 2), np.int32),
        allowed_ptr=np.zeros(3, np.int64),
        allowed_device=np.zeros(0, np.int32),
        allowed_given=np.zeros(2, np.bool_),
        colocation_group=np.full(2, -1, np.int32),
        colocation_group_names=[],
        **machine.problem_arrays(),
    )


def golden_problem() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def random_problem(random: Random) -> dict[str, Any]:
    """A valid problem that uses every field of the format."""
    kinds = ["cpu", "gpu", "tpu"][: random.randint(1, 3)]
    num_devices, num_ops = random.randint(1, 5), random.choice([0, 1, 2, 5, 10, 20])
    document: dict[str, Any] = {
        "format": "hplacer-problem/2",
        "name": random.choice(["", "random", "\u00e9\n"]),
        "device_kinds": kinds,
        "devices": [
            {
                "name": f"/device:{d}",
                "kind": random.choice(kinds),
                "memory_bytes": random.choice([50, 10**6, 2**40]),
            }
            | random.choice([{}, {"slots": random.randint(1, 4)}, {"slots": 2, "cores": "c"}])
            | random.choice([{}, {"start_ns": random.randrange(5)}])
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
            | random.choice([{}, _work(random)])
            for a in range(num_devices)
            for b in range(num_devices)
            if a != b and random.random() < 0.95
        ],
        "ops": [],
        "edges": [],
        "control_edges": [],
    }
    turn_ns = random.choice([0, 0, 7])
    for device in document["devices"]:
        device |= {"turn_ns": turn_ns} if turn_ns else {}
    for i in range(num_ops):
        _add_op(random, document, i)
    if random.random() < 0.3:
        for op in document["ops"]:
            op["default_device"] = random.randrange(num_devices)
    return document


def _work(random: Random) -> dict[str, int]:
    """Of a transfer at both ends."""
    return {
        "send_ns": random.randrange(5),
        "send_bytes_per_s": random.choice([1, 10**9, 10**18]),
        "receive_ns": random.randrange(5),
        "receive_bytes_per_s": random.choice([1, 10**9, 10**18]),
    }


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
