"""Valid problem files to mutate."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.processes import ROOT

__all__ = ["problem_document"]

_GOLDEN = ROOT / "tests" / "golden" / "two_towers.hplacer.json"


# A problem that uses every field of the format.
_SMALL_PROBLEM = """\
{"format": "hplacer-problem/2", "name": "\u00e9\\n", "device_kinds": ["cpu", "gpu"],
 "devices": [
   {"name": "a", "kind": "cpu", "memory_bytes": 50, "slots": 2, "cores": "c", "turn_ns": 7,
    "cold_ns": 3},
   {"name": "b", "kind": "cpu", "memory_bytes": 50, "slots": 2, "cores": "c", "turn_ns": 7,
    "cold_ns": 3, "start_ns": 3},
   {"name": "d", "kind": "gpu", "memory_bytes": 1000000, "launch_ns": 2, "turn_ns": 7}],
 "links": [
   {"src": 0, "dst": 1, "channel": "x", "latency_ns": 1, "bytes_per_s": 1000000000},
   {"src": 1, "dst": 0, "channel": "x", "latency_ns": 1, "bytes_per_s": 300000000},
   {"src": 0, "dst": 2, "channel": "y", "latency_ns": 0, "bytes_per_s": 1000000000000000000,
    "send_ns": 2, "send_bytes_per_s": 1, "receive_ns": 4, "receive_bytes_per_s": 1000000000},
   {"src": 2, "dst": 0, "channel": "z", "latency_ns": 3, "bytes_per_s": 1000000000}],
 "ops": [
   {"name": "v", "type": "T", "cost_ns": {"cpu": 3, "gpu": 1}, "output_bytes": [4],
    "output_alias": ["persistent"], "persistent_bytes": 4, "default_device": 0},
   {"name": "w", "type": "T", "cost_ns": {"cpu": 8, "gpu": 0}, "output_bytes": [2, 0],
    "output_alias": [[0, 0], null], "temp_bytes": 3, "colocation_group": "g",
    "default_device": 1},
   {"name": "x", "type": "U", "cost_ns": {"cpu": 5}, "allowed_devices": [0, 1],
    "default_device": 0},
   {"name": "y", "type": "U", "cost_ns": {"cpu": 2, "gpu": 2}, "colocation_group": "g",
    "output_bytes": [1], "same_as": 2, "default_device": 2}],
 "edges": [[0, 0, 1], [1, 0, 2], [1, 1, 3]], "control_edges": [[0, 2], [2, 3]],
 "order": {"nodes": [{"op": 3, "inputs": [[2, 1], [1]]}, {"op": 0}, {"op": 1, "inputs": [[1, 0]]}],
           "targets": [0]}}
"""


def problem_document(random: Random) -> dict[str, Any]:
    """A document: mostly the small one, at times that of a captured graph."""
    text = _GOLDEN.read_text() if random.random() < 0.1 else _SMALL_PROBLEM
    document: dict[str, Any] = json.loads(text)
    return document
