"""Trains a workload in a process of its own, for the demo and the tests.

    run_in_fresh_process(name, setup)  ->  python -m hplacer_optimizer.bench.train_workload NAME

The process gets the setup as JSON on stdin; the last line of its stdout is the report, as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.plugin import service
from hplacer_optimizer.workloads import WORKLOADS
from hplacer_optimizer.workloads.setup import ExecutedGraph, ExecutedNode, Setup

_MODULE = "hplacer_optimizer.bench.train_workload"
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

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> Result:
        """Of what `train` returned, sent as JSON."""
        graphs = [[ExecutedNode(*node) for node in graph] for graph in report["graphs"]]
        return cls(losses=report["losses"], graphs=graphs, history=report["history"])


def run_in_fresh_process(name: str, setup: Setup) -> Result:
    """Runs the workload of this name; raises WorkloadError if it fails or takes too long."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HPLACER_")}
    switch = {"HPLACER_DISABLE": "1"} if setup.options is None else {"HPLACER_LOG": "warning"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE, name],
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
    return Result.from_report(json.loads(done.stdout.splitlines()[-1]))


def train(name: str, setup: Setup) -> dict[str, Any]:
    """Runs the workload in this process, which must not have run any op; returns its report."""
    training = importlib.import_module(f"hplacer_optimizer.workloads.{name}").train(setup)
    history = [] if setup.options is None else [vars(one) for one in service.history()]
    return {"losses": training.losses, "graphs": training.graphs, "history": history}


def main(name: str) -> None:
    """Runs the workload in this process and prints its report."""
    if name not in WORKLOADS:
        raise SystemExit(f"no workload {name!r}; there are {', '.join(WORKLOADS)}")
    print("\n" + json.dumps(train(name, Setup(**json.load(sys.stdin)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
