"""Costs of ops as TensorFlow's virtual cluster has them, against ours, op by op."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

TOLERANCE = 0.01
_CORES, _MEGAHERTZ, _KILOBYTES_PER_S = 16, 2300, 34_000_000
_MEMORY_BYTES = 1 << 40


def compare(graph: Any) -> dict[str, Any]:
    """Compares a training graph (`workloads.training_graph.TrainingGraph`), op by op."""
    from hplacer_optimizer.capture import native

    tf_module = native.load()
    on_purpose = tf_module.op_estimates()
    ours = our_costs_ns(graph)
    theirs = their_costs_ns(graph)
    types = {op.name: op.type for op in graph.graph.get_operations()}
    real = set(tf_module.tensorflow_cost_functions()) - set(on_purpose)
    compared, within, wrong = 0, 0, []
    purposes: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for name in sorted(ours.keys() & theirs.keys()):
        op_type = types[name]
        if op_type in real:
            compared += 1
            if abs(ours[name] - theirs[name]) <= max(1, TOLERANCE * theirs[name]):
                within += 1
            else:
                wrong.append([op_type, name, ours[name], theirs[name]])
        elif op_type in on_purpose:
            sums = purposes[op_type]
            sums[:] = sums[0] + 1, sums[1] + ours[name], sums[2] + theirs[name]
    return {
        "ops": len(ours),
        "ops_measured_by_both": len(ours.keys() & theirs.keys()),
        "compared": compared,
        "share_within": within / compared,
        "compared_op_types": sorted({types[name] for name in ours.keys() & theirs.keys()} & real),
        "outside": wrong[:20],
        "on_purpose": {
            op_type: {
                "ops": sums[0],
                "ours_ns": sums[1],
                "theirs_ns": sums[2],
                "estimate": on_purpose[op_type],
            }
            for op_type, sums in sorted(purposes.items())
            if sums[1] != sums[2]
        },
    }


def our_costs_ns(graph: Any) -> dict[str, int]:
    """By op name: the captured step, on a machine without launch overhead.

    Ops that TensorFlow replaces by constants are left out: they are not estimated. So are sums that
    it makes of several: the virtual cluster costs the graph as it is written.
    """
    from hplacer_optimizer.capture.loading import load_graph
    from hplacer_optimizer.machines import Device, DeviceKind, Machine

    kind = DeviceKind(
        name="cpu",
        type="CPU",
        flops_per_s={"float32": _CORES * _MEGAHERTZ * 1e6},
        memory_bytes_per_s=_KILOBYTES_PER_S * 1000,
        memory_bytes=_MEMORY_BYTES,
        launch_overhead_ns=0,
        executor_overhead_ns=0,
    )
    machine = Machine(
        name="virtual", kinds=(kind,), devices=(Device(name="/device:CPU:0", kind="cpu"),), links=()
    )
    loaded = load_graph(graph.graph, machine=machine, targets=[graph.train_op])
    problem = loaded.problem
    inputs = np.bincount(problem.edges[:, 2], minlength=problem.num_ops).tolist()
    does_not_run = (loaded.captured.is_static | loaded.captured.is_removed).tolist()
    rows = zip(problem.op_names, problem.cost_ns[:, 0].tolist(), inputs, does_not_run, strict=True)
    written = {op.name: len(op.inputs) for op in graph.graph.get_operations()}
    return {op: cost for op, cost, read, skip in rows if not skip and read <= written[op]}


def their_costs_ns(graph: Any) -> dict[str, int]:
    """By op name: TensorFlow's virtual cluster, with everything on one CPU."""
    import tensorflow as tf
    from tensorflow.core.protobuf import device_properties_pb2
    from tensorflow.python.grappler import cluster, item

    with graph.graph.as_default():
        tf.compat.v1.add_to_collection("train_op", graph.train_op)
        metagraph = tf.compat.v1.train.export_meta_graph(clear_devices=True)
    device = device_properties_pb2.NamedDevice(name="/CPU:0")
    device.properties.type = "CPU"
    device.properties.num_cores = _CORES
    device.properties.frequency = _MEGAHERTZ
    device.properties.bandwidth = _KILOBYTES_PER_S
    device.properties.memory_size = _MEMORY_BYTES
    virtual = cluster.Cluster(disable_timeline=False, devices=[device])
    _, _, step_stats = virtual.MeasureCosts(item.Item(metagraph))
    return {
        stats.node_name: stats.op_end_rel_nanos - stats.op_start_rel_nanos
        for dev_stats in step_stats.dev_stats
        for stats in dev_stats.node_stats
    }
