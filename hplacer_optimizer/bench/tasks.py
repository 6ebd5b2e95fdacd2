"""The tasks of `hplacer bench`: a workload with its parameters, and the machine it is planned for.

Published figures are from Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR
2018), table 1: seconds per step on 1 Intel Haswell CPU and up to 8 NVIDIA Tesla K40, TensorFlow
r1.3; the machines `papers-*` are fitted to them. The paper gives no batch sizes. The step times of
Inception-V3 fit a batch of 1 (0.61 s on the CPU are 56 GFLOP/s then, but 1.8 TFLOP/s with 32
images), those of ResNet-152 one of 32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OUT_OF_MEMORY = math.inf
PUBLISHED_PLANNER = "hierarchical:paper"
"""The planner that is the paper's own: in no other row stands what the paper's planner reached."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One column of the table."""

    name: str  # e.g. "nmt_2"
    title: str  # e.g. "NMT (2-layer)"
    workload: str  # a name of hplacer_optimizer.workloads
    parameters: Mapping[str, Any]  # of the workload, what differs from its defaults
    machine: str  # a shipped machine, or a path
    published_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds per step by planner, OUT_OF_MEMORY where the paper says OOM; empty: not published."""


def _published(
    cpu_only: float | None,
    gpu_only: float,
    human_expert: float,
    scotch: float,
    mincut: float,
    hierarchical: float,
) -> dict[str, float]:
    seconds = {
        "cpu_only": cpu_only,
        "gpu_only": gpu_only,
        "human_expert": human_expert,
        "scotch": scotch,
        "mincut": mincut,
        PUBLISHED_PLANNER: hierarchical,
    }
    return {planner: value for planner, value in seconds.items() if value is not None}


_OOM = OUT_OF_MEMORY

PAPER: tuple[Task, ...] = (
    Task(
        name="inception_v3",
        title="Inception-V3",
        workload="inception_v3",
        parameters={"batch_size": 1},
        machine="papers-2xk40",
        published_s=_published(0.61, 0.15, 0.15, 0.93, 0.82, 0.13),
    ),
    Task(
        name="resnet_152",
        title="ResNet-152",
        workload="resnet",
        parameters={"depth": 152, "batch_size": 32},
        machine="papers-2xk40",
        published_s=_published(None, 1.18, 1.18, 6.27, 2.92, 1.18),
    ),
    Task(
        name="rnnlm",
        title="RNNLM",
        workload="rnnlm",
        parameters={"batch_size": 64},
        machine="papers-2xk40",
        published_s=_published(6.89, 1.57, 1.57, 5.62, 5.21, 1.57),
    ),
    Task(
        name="nmt_2",
        title="NMT (2-layer)",
        workload="nmt",
        parameters={"batch_size": 64, "layers": 2},
        machine="papers-2xk40",
        published_s=_published(6.46, _OOM, 2.13, 3.21, 5.34, 0.84),
    ),
    Task(
        name="nmt_4",
        title="NMT (4-layer)",
        workload="nmt",
        parameters={"batch_size": 64, "layers": 4},
        machine="papers-4xk40",
        published_s=_published(10.68, _OOM, 3.64, 11.18, 11.63, 1.69),
    ),
    Task(
        name="nmt_8",
        title="NMT (8-layer)",
        workload="nmt",
        parameters={"batch_size": 64, "layers": 8},
        machine="papers-8xk40",
        published_s=_published(11.52, _OOM, 3.88, 17.85, 19.01, 4.07),
    ),
)


def modern_tasks(machines: tuple[str, ...] = ("8xv100", "8xa100", "8xh200")) -> tuple[Task, ...]:
    """The workloads beyond the papers, on machines of later years."""
    workloads = {
        "transformer": "Transformer",
        "bert_base": "BERT base",
        "efficientnet_b0": "EfficientNet-B0",
        "mobilenet_v2": "MobileNet-V2",
        "two_tower": "Two-tower recommender",
    }
    return tuple(
        Task(
            name=f"{workload}-{machine}",
            title=title,
            workload=workload,
            parameters={},
            machine=machine,
        )
        for machine in machines
        for workload, title in workloads.items()
    )
