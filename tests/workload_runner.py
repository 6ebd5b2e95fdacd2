"""Runs of the workloads for the tests: each one once per session, and checked against its plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from hplacer_optimizer.bench.train_workload import Result, run_in_fresh_process
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.workloads.setup import ExecutedGraph, Setup
from tests import processes

STEPS = 20
MODES: dict[str, dict[str, Any]] = {
    # The same arithmetic in the same order, wherever the ops are: bitwise equal losses.
    "exact": {"folding": False, "soft_placement": False},
    "default": {"folding": True, "soft_placement": True},
}
NOTHING_TO_PLACE = "every op is pinned to one device"


class Difference(NamedTuple):
    """A node that TensorFlow executed elsewhere than planned."""

    name: str
    op: str
    planned: str
    executed: str


class WorkloadRunner:
    """Results by workload, mode and run, computed on first use; plans lie under `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._results: dict[tuple[str, str, str], Result] = {}

    def result(self, workload: str, mode: str, run: str) -> Result:
        """`without` the optimizer, or with it and an empty store (`miss`), or once more (`hit`).

        The last is a process that shares nothing with the others, neither hash seeds nor addresses.
        """
        key = (workload, mode, run)
        if key not in self._results:
            options = None
            if run != "without":
                options = {"cache": str(self.cache(workload, mode)), "budget_s": 1.0}
                options |= {"planner": "random", "min_gain": -1}  # uses both devices, takes effect
            if run == "hit":
                self.result(workload, mode, "miss")
            setup = Setup(steps=STEPS, options=options, **MODES[mode])
            train = run_in_fresh_process if run == "hit" else self._train
            self._results[key] = train(workload, setup)
        return self._results[key]

    def _train(self, workload: str, setup: Setup) -> Result:
        code = f"""
import json
from hplacer_optimizer.bench import train_workload
report = train_workload.train({workload!r}, train_workload.Setup(**{asdict(setup)!r}))
print("\\nREPORT " + json.dumps(report))
"""
        switch = {"HPLACER_DISABLE": "1"} if setup.options is None else {}
        outcome = processes.run(code, self._directory, prelude="", timeout_s=280, **switch)
        return Result.from_report(outcome.report)

    def cache(self, workload: str, mode: str) -> Path:
        return self._directory / f"{workload}-{mode}"

    def plans(self, workload: str, mode: str, run: str) -> list[Plan]:
        """The plan of every graph that this run planned or loaded."""
        store = PlanStore(self.cache(workload, mode))
        plans = []
        for entry in handled(self.result(workload, mode, run).history):
            plan = store.get(entry["fingerprint"])
            assert plan is not None, f"{entry['graph']}: no plan in the store"
            plans.append(plan)
        return plans


def handled(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the graphs in which nothing can be placed, such as an initialization of variables."""
    return [entry for entry in history if entry["reason"] != NOTHING_TO_PLACE]


def executed_graph(plan: Plan, graphs: list[ExecutedGraph]) -> ExecutedGraph:
    """The graph with most of the planned names: TensorFlow reports graphs without their name."""
    names = set(plan.node_names)
    return max(graphs, key=lambda graph: sum(node.name in names for node in graph))


def differences(plan: Plan, graph: ExecutedGraph) -> Iterator[Difference]:
    """Planned nodes of the executed graph whose device is another than the planned one."""
    planned = {
        name: plan.device_names[device]
        for name, device in zip(plan.node_names, plan.node_devices, strict=True)
    }
    for node in graph:
        wanted = planned.get(node.name, node.device)
        if node.device != wanted:
            yield Difference(node.name, node.op, wanted, node.device)
