"""Four trainings with and without a plan: same losses, and the plan is what TensorFlow ran.

Without a plan TensorFlow ran what the problem of the plan says of TensorFlow's own placement.
"""

from __future__ import annotations

import pytest

from hplacer_optimizer.capture import native
from hplacer_optimizer.workloads import WORKLOADS
from hplacer_optimizer.workloads.setup import ExecutedGraph
from tests import executed_graphs
from tests.workload_runner import (
    MODES,
    ONE_DEVICE,
    WorkloadRunner,
    differences,
    executed_graph,
    handled,
)

needs_plugin = pytest.mark.skipif(native.is_missing(), reason="needs the native module _tf")


def cases(*, slow: set[tuple[str, str]]) -> list[object]:
    """Every workload in every mode; those in `slow` are marked."""
    return [
        pytest.param(
            workload,
            mode,
            id=f"{workload}-{mode}",
            marks=[pytest.mark.slow] if (workload, mode) in slow else [],
        )
        for workload in WORKLOADS
        for mode in MODES
    ]


LARGE = {("inception_v3", mode) for mode in MODES}
CASES = cases(slow=LARGE)
LEAST_EXECUTED = 0.6  # of the ops that compute; TensorFlow's optimizers remove the others
HIT_CASES = cases(slow=LARGE | {("keras_digits", mode) for mode in MODES} | {("lstm2", "default")})


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> WorkloadRunner:
    return WorkloadRunner(tmp_path_factory.mktemp("plans"))


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "inception_v3" else [])
        for name in WORKLOADS
    ],
)
def test_the_workload_learns_without_the_optimizer(workload: str, runner: WorkloadRunner) -> None:
    result = runner.result(workload, "exact", "without")
    assert result.losses[-1] < result.losses[0]
    assert {node.device[-5:] for node in result.graphs[0]} == {"CPU:0"}
    assert result.history == []


@needs_plugin
@pytest.mark.parametrize(("workload", "mode"), CASES)
def test_a_plan_leaves_the_losses_as_they_are(
    workload: str, mode: str, runner: WorkloadRunner
) -> None:
    alone = runner.result(workload, mode, "without").losses
    planned = runner.result(workload, mode, "miss").losses
    assert planned == (alone if mode == "exact" else pytest.approx(alone, rel=1e-5, abs=0))


@needs_plugin
@pytest.mark.parametrize(("workload", "mode"), CASES)
def test_every_graph_was_planned(workload: str, mode: str, runner: WorkloadRunner) -> None:
    history = handled(runner.result(workload, mode, "miss").history)
    assert history
    assert [entry for entry in history if entry["outcome"] != "planned"] == []


@needs_plugin
@pytest.mark.parametrize(("workload", "mode"), CASES)
def test_both_devices_ran_part_of_the_step(
    workload: str, mode: str, runner: WorkloadRunner
) -> None:
    step = runner.result(workload, mode, "miss").graphs[0]
    assert {node.device[-5:] for node in step} == {"CPU:0", "CPU:1"}


@needs_plugin
@pytest.mark.parametrize(("workload", "mode"), CASES)
def test_the_plan_is_what_ran(workload: str, mode: str, runner: WorkloadRunner) -> None:
    check_devices(workload, mode, "miss", runner)


@needs_plugin
@pytest.mark.parametrize(("workload", "mode"), HIT_CASES)
def test_the_next_process_loads_the_plan(workload: str, mode: str, runner: WorkloadRunner) -> None:
    first = runner.result(workload, mode, "miss")
    second = runner.result(workload, mode, "hit")
    planned, loaded = handled(first.history), handled(second.history)
    assert [entry["outcome"] for entry in loaded] == ["loaded"] * len(planned)
    assert fingerprints(loaded) == fingerprints(planned)
    assert second.losses == first.losses
    check_devices(workload, mode, "hit", runner)


@needs_plugin
@pytest.mark.parametrize(("workload", "mode"), CASES)
def test_the_default_placement_is_what_ran_without_a_plan(
    workload: str, mode: str, runner: WorkloadRunner
) -> None:
    executed = runner.result(workload, mode, "without").graphs
    graphs = [executed_graphs.graph_of(nodes) for nodes in executed]
    for plan in runner.plans(workload, mode, "miss"):
        problem = plan.problem()
        assert problem is not None
        executed_graphs.check(problem, graphs, LEAST_EXECUTED)


@needs_plugin
@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(name, marks=[] if name == "while_function" else [pytest.mark.slow])
        for name in WORKLOADS
    ],
)
def test_one_device_runs_the_same_with_the_optimizer(workload: str, runner: WorkloadRunner) -> None:
    alone, optimized = (runner.result(workload, ONE_DEVICE, run) for run in ("without", "miss"))
    assert {entry["reason"] for entry in optimized.history} == {"one device: nothing to place"}
    assert in_order(optimized.graphs) == in_order(alone.graphs)
    assert {node.device[-5:] for graph in alone.graphs for node in graph} == {"CPU:0"}
    assert optimized.losses == alone.losses


def in_order(graphs: list[ExecutedGraph]) -> list[ExecutedGraph]:
    """TensorFlow reports graphs and their nodes in an order that differs between processes."""
    return sorted(sorted(graph) for graph in graphs)


def check_devices(workload: str, mode: str, run: str, runner: WorkloadRunner) -> None:
    graphs = runner.result(workload, mode, run).graphs
    for plan in runner.plans(workload, mode, run):
        graph = executed_graph(plan, graphs)
        assert {node.name for node in graph} & set(plan.node_names)
        assert list(differences(plan, graph)) == [], plan.label  # no reason is accepted


def fingerprints(history: list[dict[str, str]]) -> list[str]:
    return sorted(entry["fingerprint"] for entry in history)
