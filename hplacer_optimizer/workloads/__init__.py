"""Small training runs that the demo and the tests share, each in a process of its own.

    run_in_fresh_process(name, setup)  ->  python -m hplacer_optimizer.workloads NAME  ->  Result

A module per workload has `train(setup) -> Training`. Seeds are fixed: two runs of the same workload
with the same setup print the same losses, bit by bit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.workloads.setup import ExecutedGraph, ExecutedNode, Setup

WORKLOADS = ("inception_v3", "keras_digits", "lstm2", "while_function")
_TIMEOUT_S = 300
_TENSORFLOW_ERRORS_ONLY = {"TF_CPP_MIN_LOG_LEVEL": "2"}


class WorkloadError(HPlacerError):
    """A workload did not run to its end; the message holds the last lines it wrote to stderr."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a workload's process reports.

    `graphs` are the partition graphs that TensorFlow executed, joined over the devices, largest
    first; `history` is what the optimizer says of each graph it handled.
    """

    losses: list[float]
    graphs: list[ExecutedGraph]
    history: list[dict[str, Any]]


def run_in_fresh_process(name: str, setup: Setup) -> Result:
    """Runs the workload of this name; raises WorkloadError if it fails or takes too long."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HPLACER_")}
    switch = {"HPLACER_DISABLE": "1"} if setup.options is None else {"HPLACER_LOG": "warning"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, name],
            input=json.dumps(asdict(setup)),
            capture_output=True,
            text=True,
            env={**inherited, **_TENSORFLOW_ERRORS_ONLY, **switch},
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise WorkloadError(f"{name} did not end within {_TIMEOUT_S} seconds") from None
    if done.returncode != 0:
        end = "\n".join(done.stderr.splitlines()[-12:])
        raise WorkloadError(f"{name} ended with exit code {done.returncode}: {end}")
    # TensorFlow and Keras may print to stdout as well: the report is the last line.
    report = json.loads(done.stdout.splitlines()[-1])
    graphs = [[ExecutedNode(*node) for node in graph] for graph in report["graphs"]]
    return Result(losses=report["losses"], graphs=graphs, history=report["history"])
