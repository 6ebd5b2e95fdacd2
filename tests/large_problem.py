"""A large problem of known shape, to time planners on."""

from __future__ import annotations

import numpy as np

from hplacer_optimizer._engine import Problem


def large_problem(
    num_ops: int, num_devices: int = 8, width: int = 50, reads_per_op: int = 2
) -> Problem:
    """A random layered graph with colocation groups of ten on equal devices and a slower one."""
    rng = np.random.default_rng(0)
    src = np.maximum(0, np.arange(1, num_ops) - rng.integers(1, width, (reads_per_op, num_ops - 1)))
    dst = np.broadcast_to(np.arange(1, num_ops), src.shape)
    edges = np.stack([src.ravel(), np.zeros(src.size, np.int64), dst.ravel()], axis=1)
    pairs = [(a, b) for a in range(num_devices) for b in range(num_devices) if a != b]
    cost = rng.integers(1_000, 100_000, num_ops)
    groups = np.where(rng.random(num_ops) < 0.2, np.arange(num_ops) // 10, -1)
    return Problem(
        name="large",
        device_kinds=["cpu", "gpu"],
        device_names=["/device:CPU:0", *(f"/device:GPU:{d}" for d in range(num_devices - 1))],
        device_kind=np.array([0] + [1] * (num_devices - 1), np.int32),
        device_memory_bytes=np.full(num_devices, 2**40),
        device_slots=np.ones(num_devices, np.int32),
        link_src=np.array([a for a, _ in pairs], np.int32),
        link_dst=np.array([b for _, b in pairs], np.int32),
        link_channel=[f"up{a}" for a, _ in pairs],
        link_latency_ns=np.full(len(pairs), 1_000),
        link_bytes_per_s=np.full(len(pairs), 10**10),
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        cost_ns=np.stack([10 * cost, cost], axis=1),
        output_ptr=np.arange(num_ops + 1),
        output_bytes=rng.integers(0, 100_000, num_ops),
        output_alias_src=np.full(num_ops, -1, np.int32),
        output_alias_output=np.zeros(num_ops, np.int32),
        temp_bytes=np.zeros(num_ops, np.int64),
        persistent_bytes=rng.integers(0, 1_000, num_ops),
        edges=edges.astype(np.int32),
        control_edges=np.zeros((0, 2), np.int32),
        allowed_ptr=np.zeros(num_ops + 1, np.int64),
        allowed_device=np.zeros(0, np.int32),
        allowed_given=np.zeros(num_ops, np.bool_),
        colocation_group=groups.astype(np.int32),
        colocation_group_names=[f"g{i}" for i in range(num_ops // 10 + 1)],
    )
