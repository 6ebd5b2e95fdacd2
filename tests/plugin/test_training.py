"""Four trainings with and without a plan: same losses, and the plan is what TensorFlow ran."""

from __future__ import annotations

import pytest

from hplacer_optimizer.capture import native
from hplacer_optimizer.workloads import WORKLOADS
from tests.workload_runner import MODES, WorkloadRunner, differences, executed_graph, handled

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
@pytest.mark.parametrize(("workload", "mode"), cases(slow=LARGE))
def test_the_plan_is_what_ran_and_changes_no_loss(
    workload: str, mode: str, runner: WorkloadRunner
) -> None:
    alone, planned = (runner.result(workload, mode, run) for run in ("without", "miss"))
    equal = alone.losses if mode == "exact" else pytest.approx(alone.losses, rel=1e-5, abs=0)
    assert planned.losses == equal
    assert {entry["outcome"] for entry in handled(planned.history)} == {"planned"}
    assert {node.device[-5:] for node in planned.graphs[0]} == {"CPU:0", "CPU:1"}
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


def check_devices(workload: str, mode: str, run: str, runner: WorkloadRunner) -> None:
    graphs = runner.result(workload, mode, run).graphs
    for plan in runner.plans(workload, mode, run):
        graph = executed_graph(plan, graphs)
        assert {node.name for node in graph} & set(plan.node_names)
        assert list(differences(plan, graph)) == [], plan.label  # no reason is accepted


def fingerprints(history: list[dict[str, str]]) -> list[str]:
    return sorted(entry["fingerprint"] for entry in history)
