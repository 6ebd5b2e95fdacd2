"""A large problem of known shape, to time planners on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem


def large_problem(
    num_ops: int, num_devices: int = 8, width: int = 50, reads_per_op: int = 2
) -> Problem:
    """A random layered graph with colocation groups of ten on equal devices and a slower one."""
    rng = np.random.default_rng(0)
    src = np.maximum(0, np.arange(1, num_ops) - rng.integers(1, width, (reads_per_op, num_ops - 1)))
    dst = np.broadcast_to(np.arange(1, num_ops), src.shape)
    edges = np.stack([src.ravel(), np.zeros(src.size, np.int64), dst.ravel()], axis=1)
    cost = rng.integers(1_000, 100_000, num_ops)
    groups = np.where(rng.random(num_ops) < 0.2, np.arange(num_ops) // 10, -1)
    return layered_problem(
        device_names=["/device:CPU:0", *(f"/device:GPU:{d}" for d in range(num_devices - 1))],
        device_memory_bytes=2**40,
        channel="up{src}",
        latency_ns=1_000,
        cost_ns=np.stack([10 * cost, cost], axis=1),
        output_bytes=rng.integers(0, 100_000, num_ops),
        persistent_bytes=rng.integers(0, 1_000, num_ops),
        edges=edges,
        groups=groups,
    )


def layered_problem(
    *,
    device_names: list[str],
    device_memory_bytes: int,
    channel: str,
    latency_ns: int,
    cost_ns: NDArray[np.int64],
    output_bytes: NDArray[np.int64],
    persistent_bytes: NDArray[np.int64],
    edges: NDArray[np.int64],
    groups: NDArray[np.int64] | None = None,
) -> Problem:
    """One CPU and equal GPUs, all linked at 10 GB/s; each op has one output, nothing else.

    `channel` is a format with `src` and `dst`; `cost_ns` is [n, 2]: on the CPU, on a GPU.
    """
    num_ops, num_devices = len(cost_ns), len(device_names)
    pairs = [(a, b) for a in range(num_devices) for b in range(num_devices) if a != b]
    group = np.full(num_ops, -1) if groups is None else groups
    return Problem(
        name="layered",
        device_kinds=["cpu", "gpu"],
        device_names=device_names,
        device_kind=np.minimum(np.arange(num_devices), 1).astype(np.int32),
        device_memory_bytes=np.full(num_devices, device_memory_bytes),
        device_slots=np.ones(num_devices, np.int32),
        link_src=np.array([src for src, _ in pairs], np.int32),
        link_dst=np.array([dst for _, dst in pairs], np.int32),
        link_channel=[channel.format(src=src, dst=dst) for src, dst in pairs],
        link_latency_ns=np.full(len(pairs), latency_ns),
        link_bytes_per_s=np.full(len(pairs), 10**10),
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        cost_ns=cost_ns,
        output_ptr=np.arange(num_ops + 1),
        output_bytes=output_bytes,
        output_alias_src=np.full(num_ops, -1, np.int32),
        output_alias_output=np.zeros(num_ops, np.int32),
        temp_bytes=np.zeros(num_ops, np.int64),
        persistent_bytes=persistent_bytes,
        edges=edges.astype(np.int32),
        control_edges=np.zeros((0, 2), np.int32),
        allowed_ptr=np.zeros(num_ops + 1, np.int64),
        allowed_device=np.zeros(0, np.int32),
        allowed_given=np.zeros(num_ops, np.bool_),
        colocation_group=group.astype(np.int32),
        colocation_group_names=[f"g{i}" for i in range(int(group.max(initial=-1)) + 1)],
    )
