"""What a plan store costs when many plans are in it: opening, a lookup, a put, a listing.

    python benchmarks/plan_store.py [--plans 10 100 1000 10000] [--nodes 2000] [--json]

A lookup opens the store and reads one plan, as a training process does; the medians are over plans
drawn at random, whose files are in the system's cache. Goal: a lookup among the most plans takes
less than twice the time of one among the fewest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore

GOAL = 2.0
_REPEATS = 100


def main(argv: Sequence[str] | None = None) -> int:
    """Fills stores of each size, measures, prints medians. Exit code 1: the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--nodes", type=int, default=2000, help="of each plan; default: 2000")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="hplacer-benchmark-") as directory:
        rows = [
            measure(Path(directory, str(count)), count, options.nodes)
            for count in sorted(options.plans)
        ]
    ratio = rows[-1]["lookup_s"] / rows[0]["lookup_s"]
    if options.json:
        print(json.dumps({"stores": rows, "lookup_ratio": ratio, "goal": GOAL}, indent=2))
    else:
        print("  plans   opening    lookup       put   listing")
        for row in rows:
            times = [row[f"{what}_s"] for what in ("opening", "lookup", "put", "listing")]
            print(f"{row['plans']:7d}" + "".join(f"{seconds * 1e3:8.2f}ms" for seconds in times))
        print(f"a lookup among the most over one among the fewest: {ratio:.2f} (goal: < {GOAL:g})")
    return 0 if ratio < GOAL else 1


def measure(directory: Path, count: int, nodes: int) -> dict[str, Any]:
    """Medians of one store with so many plans, in seconds."""
    random, store = Random(0), PlanStore(directory)
    fingerprints = [f"{random.getrandbits(128):032x}" for _ in range(count)]
    for done, fingerprint in enumerate(fingerprints):
        store.put(plan_of(fingerprint, nodes))
        if done % 1000 == 999:
            print(f"{done + 1} of {count} plans", file=sys.stderr, flush=True)

    def look_up() -> None:
        assert PlanStore(directory).get(random.choice(fingerprints)) is not None

    new_plans = [plan_of(f"{random.getrandbits(128):032x}", nodes) for _ in range(_REPEATS)]

    def put() -> None:
        PlanStore(directory).put(new_plans.pop())

    return {
        "plans": count,
        "opening_s": median_s(lambda: PlanStore(directory)),
        "lookup_s": median_s(look_up),
        "put_s": median_s(put),
        "listing_s": median_s(lambda: sum(1 for _ in PlanStore(directory).entries()), repeats=1),
    }


def median_s(work: Callable[[], object], *, repeats: int = _REPEATS) -> float:
    """Wall-clock seconds of one call."""
    seconds = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start_s)
    return statistics.median(seconds)


def plan_of(fingerprint: str, nodes: int) -> Plan:
    """A plan of so many nodes on two devices; its content depends on the fingerprint."""
    rng = np.random.default_rng(int(fingerprint[:16], 16))
    return Plan(
        fingerprint=fingerprint,
        fingerprint_parts={"graph": fingerprint[:16]},
        label="benchmark",
        planner="random",
        planner_options={},
        seed=0,
        budget={},
        step_time_ns=int(rng.integers(1, 10**9)),
        feasible=True,
        peak_bytes=[0, 0],
        device_names=["/device:CPU:0", "/device:CPU:1"],
        device_kinds=["CPU", "CPU"],
        num_ops=nodes,
        num_units=nodes,
        planning_s=0.0,
        cost_source="none",
        assumptions=[],
        versions={},
        created="2024-01-01T00:00:00Z",
        host="benchmark",
        node_names=[f"block_{i // 50}/layer_{i % 50}/MatMul" for i in range(nodes)],
        node_hashes=rng.integers(0, 2**64, nodes, dtype=np.uint64),
        node_devices=rng.integers(0, 2, nodes),
    )


if __name__ == "__main__":
    sys.exit(main())
