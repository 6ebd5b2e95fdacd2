"""How fast the step simulator is, against TensorFlow's virtual cluster and on graphs of any size.

    python benchmarks/simulator.py [--repeats 200] [--sizes 1000 10000 100000 1000000] [--json]
    python benchmarks/simulator.py --parts scaling

Parts, each a process of its own that is pinned to one core:

    measure_costs  tf-slim's Inception-V3 training graph (batch 32, 299 x 299) on a CPU and 2 K40:
                   `hp.simulate` under a fresh random placement each call, against `MeasureCosts` of
                   `tensorflow.python.grappler.cluster.Cluster` for the same graph and placements.
                   Both simulate one order of launches.
    scaling        layered random graphs, all on one of 4 devices and uniformly at random on all 4:
                   sqrt(n) layers of sqrt(n) ops, each reads two random outputs of the layer before;
                   one output per op, one slot per device, a channel for every pair of devices.
    memory         peak memory of a process that loads a problem file of 1,000,000 ops and 4,000,000
                   edges (a layered graph that reads four outputs) and simulates one step.

Times are CPU times of the process, the least of the repeats, since a shared machine only ever adds
to them. Goals: 2,000 times as fast as MeasureCosts; at 100,000 ops at most twice the time per op
of 1,000; below 1 GB.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hplacer_optimizer as hp

PARTS = ("measure_costs", "scaling", "memory")
SPEEDUP_GOAL, SCALING_GOAL, MEMORY_GOAL_BYTES = 2_000, 2.0, 10**9
MACHINE, BATCH_SIZE = "1cpu-2xk40", 32
_DEVICES, _READS = 4, 2
_LARGE_OPS, _LARGE_READS = 1_000_000, 4
_SIMULATED_OPS = 2_000_000  # per repeat of a small graph, so that a repeat is worth timing


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the parts and prints what they found. Exit code 1: a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--repeats", type=int, default=200, help="simulations; default: 200")
    parser.add_argument("--measured", type=int, default=5, help="MeasureCosts calls; default: 5")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6], help="ops"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        print("\n" + json.dumps(run_child(options, *options.child)))
        return 0
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="hplacer-benchmark-") as directory:
        if "measure_costs" in options.parts:
            result |= child(options, "measure_costs", os.path.join(directory, "inception.meta"))
        if "scaling" in options.parts:
            result["scaling"] = [child(options, "scaling", str(n)) for n in options.sizes]
        if "memory" in options.parts:
            path = os.path.join(directory, "large.hplacer.json")
            child(options, "write_large", path)
            result |= child(options, "simulate_large", path)
    missed = missed_goals(result)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_result(result)
    for goal in missed:
        print(f"missed: {goal}", file=sys.stderr)
    return 1 if missed else 0


def child(options: argparse.Namespace, *arguments: str) -> dict[str, Any]:
    """Runs one measurement in a process of its own; its last line of output is the result."""
    print(f"measuring {' '.join(arguments)}", file=sys.stderr, flush=True)
    counts = ["--repeats", str(options.repeats), "--measured", str(options.measured)]
    done = subprocess.run(
        [sys.executable, __file__, *counts, "--child", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""},
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_child(options: argparse.Namespace, part: str, argument: str) -> dict[str, Any]:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if part == "measure_costs":
        return compare_with_measure_costs(argument, options.repeats, options.measured)
    if part == "scaling":
        return time_per_op(int(argument), options.repeats)
    if part == "write_large":
        hp.save_problem(layered(_LARGE_OPS, reads=_LARGE_READS), argument)
        return {}
    return simulate_large(argument)


def cpu_s(call: Callable[[], object]) -> float:
    start_s = time.process_time()
    call()
    return time.process_time() - start_s


# ---- against MeasureCosts ----


def compare_with_measure_costs(path: str, repeats: int, measured: int) -> dict[str, Any]:
    """Both sides on the graph at `path`, which is written first, under the same placements."""
    from hplacer_optimizer.planners import get_planner
    from hplacer_optimizer.workloads.graphs import write_graph

    write_graph("inception_v3", path, batch_size=BATCH_SIZE)
    problem = hp.load_problem(path, machine=MACHINE, batch_size=BATCH_SIZE)
    random = get_planner("random").plan
    placements = [random(problem, seed=seed).placement for seed in range(max(repeats, measured))]
    simulated_s = [
        cpu_s(lambda p=p: hp.simulate(problem, p, launch_orders=1)) for p in placements[:repeats]
    ]
    nodes, measured_s = measure_costs(path, problem, placements[:measured])
    ours_s, theirs_s = min(simulated_s), min(measured_s)
    return {
        "nodes": nodes,
        "ops": problem.num_ops,
        "units": problem.num_units,
        "simulate_s": ours_s,
        "simulate_median_s": sorted(simulated_s)[repeats // 2],
        "simulations_per_s": 1 / ours_s,
        "ns_per_op": ours_s * 1e9 / problem.num_ops,
        "measure_costs_s": theirs_s,
        "speedup_vs_measure_costs": theirs_s / ours_s,
    }


def measure_costs(path: str, problem: hp.Problem, placements: Sequence[Any]) -> tuple[int, Any]:
    """The graph's number of nodes, and the CPU time of MeasureCosts under each placement."""
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import cluster, item

    meta_graph = meta_graph_pb2.MetaGraphDef.FromString(Path(path).read_bytes())
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    virtual = cluster.Cluster(devices=[virtual_device(name) for name in problem.device_names])
    times_s = []
    for placement in placements:
        for name, device in zip(problem.op_names, placement, strict=True):
            nodes[name].device = problem.device_names[device]
        placed = item.Item(meta_graph)
        times_s.append(cpu_s(lambda placed=placed: virtual.MeasureCosts(placed)))
    return len(nodes), times_s


def virtual_device(name: str) -> Any:
    """A device of the virtual cluster with the rates of a Haswell processor or a K40."""
    from tensorflow.core.protobuf import device_properties_pb2

    device = device_properties_pb2.NamedDevice(name=name.replace("/device:", "/"))
    properties = device.properties
    if ":GPU:" in name:
        properties.type = "GPU"
        properties.environment["architecture"] = "3"
        properties.num_cores, properties.frequency = 15, 745
        properties.bandwidth, properties.memory_size = 288_000_000, 12 << 30
    else:
        properties.type = "CPU"
        properties.num_cores, properties.frequency = 16, 2300
        properties.bandwidth, properties.memory_size = 34_000_000, 1 << 36
    return device


# ---- any size ----


def time_per_op(num_ops: int, repeats: int) -> dict[str, Any]:
    """Nanoseconds per op of `hp.simulate`, on one device and on random ones."""
    problem = layered(num_ops, reads=_READS)
    rng = np.random.default_rng(0)
    count = max(3, min(repeats, _SIMULATED_OPS // num_ops))
    result: dict[str, Any] = {"ops": num_ops, "edges": len(problem.edges), "repeats": count}
    one = np.zeros(num_ops, np.int32)
    for name in ("one_device", "random"):
        times_s = []
        for _ in range(count):
            placement = one if name == "one_device" else rng.integers(0, _DEVICES, num_ops)
            times_s.append(cpu_s(lambda p=placement: hp.simulate(problem, p)))
        result[f"{name}_ns_per_op"] = min(times_s) * 1e9 / num_ops
    return result


def layered(num_ops: int, *, reads: int) -> hp.Problem:
    """Layers of sqrt(n) ops; every op reads `reads` random outputs of the layer before."""
    rng = np.random.default_rng(0)
    width = max(1, math.isqrt(num_ops))
    dst = np.repeat(np.arange(width, num_ops), reads)
    src = (dst // width - 1) * width + rng.integers(0, width, len(dst))
    edges = np.stack([src, np.zeros_like(src), dst], axis=1).astype(np.int32)
    pairs = [(a, b) for a in range(_DEVICES) for b in range(_DEVICES) if a != b]
    return hp.Problem(
        name=f"layered-{num_ops}",
        device_kinds=["gpu"],
        device_names=[f"/device:GPU:{d}" for d in range(_DEVICES)],
        device_kind=np.zeros(_DEVICES, np.int32),
        device_memory_bytes=np.full(_DEVICES, 2**50),
        device_slots=np.ones(_DEVICES, np.int32),
        link_src=np.array([a for a, _ in pairs], np.int32),
        link_dst=np.array([b for _, b in pairs], np.int32),
        link_channel=[f"{a}-{b}" for a, b in pairs],
        link_latency_ns=np.full(len(pairs), 10_000),
        link_bytes_per_s=np.full(len(pairs), 10**10),
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        cost_ns=rng.integers(1_000, 100_000, (num_ops, 1)),
        output_ptr=np.arange(num_ops + 1),
        output_bytes=rng.integers(0, 2**20, num_ops),
        output_alias_src=np.full(num_ops, -1, np.int32),
        output_alias_output=np.zeros(num_ops, np.int32),
        temp_bytes=rng.integers(0, 2**20, num_ops),
        persistent_bytes=np.zeros(num_ops, np.int64),
        edges=edges,
        control_edges=np.zeros((0, 2), np.int32),
        allowed_ptr=np.zeros(num_ops + 1, np.int64),
        allowed_device=np.zeros(0, np.int32),
        allowed_given=np.zeros(num_ops, np.bool_),
        colocation_group=np.full(num_ops, -1, np.int32),
        colocation_group_names=[],
    )


def simulate_large(path: str) -> dict[str, Any]:
    """Loads and simulates under a random placement; the peak is of this whole process."""
    import resource

    problem = hp.load_problem(path)
    placement = np.random.default_rng(0).integers(0, problem.num_devices, problem.num_ops)
    trace = hp.simulate(problem, placement)
    if trace.makespan_ns is None or "tensorflow" in sys.modules:
        raise SystemExit("the step has no trace, or TensorFlow was imported")
    return {
        "large_ops": problem.num_ops,
        "large_edges": len(problem.edges),
        "large_file_bytes": os.path.getsize(path),
        "large_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


# ---- what was found ----


def missed_goals(result: dict[str, Any]) -> list[str]:
    missed = []
    if result.get("speedup_vs_measure_costs", math.inf) < SPEEDUP_GOAL:
        missed.append(f"{SPEEDUP_GOAL} times as fast as MeasureCosts")
    rows = {row["ops"]: row for row in result.get("scaling", [])}
    if rows.keys() >= {10**3, 10**5}:
        for name in ("one_device", "random"):
            growth = rows[10**5][f"{name}_ns_per_op"] / rows[10**3][f"{name}_ns_per_op"]
            result[f"{name}_growth"] = growth
            if growth > SCALING_GOAL:
                missed.append(f"{name}: at most {SCALING_GOAL} times the time per op")
    if result.get("large_peak_bytes", 0) >= MEMORY_GOAL_BYTES:
        missed.append(f"at most {MEMORY_GOAL_BYTES} bytes for the large problem")
    return missed


def print_result(result: dict[str, Any]) -> None:
    if "speedup_vs_measure_costs" in result:
        print(
            f"Inception-V3, {result['nodes']} nodes, {result['ops']} ops: "
            f"{result['simulate_s'] * 1e6:.0f} us a simulation ({result['ns_per_op']:.0f} ns per "
            f"op), {result['simulations_per_s']:.0f} per second; MeasureCosts "
            f"{result['measure_costs_s'] * 1e3:.0f} ms: {result['speedup_vs_measure_costs']:.0f} "
            f"times as fast (goal: {SPEEDUP_GOAL})"
        )
    for row in result.get("scaling", []):
        print(
            f"layered, {row['ops']:>9,} ops: {row['one_device_ns_per_op']:6.0f} ns per op on one "
            f"device, {row['random_ns_per_op']:6.0f} on random ones"
        )
    if "large_peak_bytes" in result:
        print(
            f"{result['large_ops']:,} ops, {result['large_edges']:,} edges: a file of "
            f"{result['large_file_bytes'] / 1e6:.0f} MB, loaded and simulated in "
            f"{result['large_peak_bytes'] / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    sys.exit(main())
