"""Trains one workload: `python -m hplacer_optimizer.workloads NAME`, the setup as JSON on stdin.

The last line of stdout is the report, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys

from hplacer_optimizer.workloads import WORKLOADS
from hplacer_optimizer.workloads.setup import Setup


def main(name: str) -> None:
    """Runs the workload and prints its report."""
    if name not in WORKLOADS:
        raise SystemExit(f"no workload {name!r}; there are {', '.join(WORKLOADS)}")
    setup = Setup(**json.load(sys.stdin))
    training = importlib.import_module(f"hplacer_optimizer.workloads.{name}").train(setup)
    history = []
    if setup.options is not None:
        from hplacer_optimizer import plugin

        history = plugin.history()
    report = {"losses": training.losses, "graphs": training.graphs, "history": history}
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
