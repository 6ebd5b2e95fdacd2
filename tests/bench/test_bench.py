"""The experiment: cells, the journal, tables. Small problem files stand in for the big graphs."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hplacer_optimizer.bench import charts, tables
from hplacer_optimizer.bench import experiment as runner
from hplacer_optimizer.bench.tasks import (
    OUT_OF_MEMORY,
    PAPER,
    PUBLISHED_PLANNER,
    Task,
)
from hplacer_optimizer.errors import BenchError, PlanError
from hplacer_optimizer.machines import load_machine
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.planners.learning import PRESETS
from hplacer_optimizer.problem.problem_file import load_problem_file
from hplacer_optimizer.problem.simulator import simulate
from testbed.papers_machine import Efficiency, Observation, fit
from tests.commands import hplacer_process
from tests.processes import ROOT

TOWERS = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"
# As docs/results/paper.md has them.
FITTED = (Efficiency(rates=0.5, overhead=91.0), Efficiency(rates=0.45, overhead=8.4))
TASK = Task(
    name="towers",
    title="Two towers",
    workload="none",
    parameters={"batch_size": 4},
    machine="any",
    published_s={"cpu_only": 2.0, "human_expert": 1.0, "gpu_only": OUT_OF_MEMORY},
)


def refusing(problem: object, **_: object) -> object:
    raise PlanError("there is no expert for this graph")


def experiment_of(*planners: str, seeds: int = 1) -> runner.Experiment:
    return runner.Experiment(tasks=(TASK,), planners=planners, seeds=range(seeds))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An output directory in which the task's problem has been built already."""
    shutil.copy(TOWERS, tmp_path / f"towers-{runner._digest(TASK)}.hplacer.json.gz")
    return tmp_path


def run(experiment: runner.Experiment, directory: Path, **options: object) -> runner.Results:
    results = runner.Results()
    runner.run(experiment, directory, results, **options)  # type: ignore[arg-type]
    return results


def test_cells_hold_what_the_simulator_says(directory: Path) -> None:
    results = run(experiment_of("etf"), directory)
    problem = load_problem_file(TOWERS)
    trace = simulate(problem, get_planner("etf").plan(problem).placement)
    cell = results.cells["towers", "etf", 0]
    assert cell.step_time_ns == trace.makespan_ns
    assert cell.feasible
    facts = results.facts["towers"]
    assert facts.num_ops == problem.num_ops
    assert 0 < facts.lower_bound_ns <= trace.makespan_ns


def test_a_planner_that_cannot_plan_is_a_row_that_says_why(directory: Path) -> None:
    planner = f"{__name__}:refusing"
    results = run(experiment_of("etf", planner), directory)
    cell = results.cells["towers", planner, 0]
    assert (cell.step_time_ns, cell.error) == (None, "there is no expert for this graph")
    _, task_table = tables.tables(experiment_of("etf", planner), results)
    assert task_table.rows[1][1] == "there is no expert for this graph"


def test_a_stopped_run_goes_on_where_it_was(directory: Path) -> None:
    experiment = experiment_of("etf", "random", seeds=3)
    seen = []

    def stop_after_two(cell: runner.Cell) -> None:
        seen.append(cell)
        if len(seen) == 2:
            raise KeyboardInterrupt

    interrupted = runner.Results()
    with pytest.raises(KeyboardInterrupt):
        runner.run(experiment, directory, interrupted, on_cell=stop_after_two)
    assert list(interrupted.cells.values()) == seen
    with (directory / runner.JOURNAL).open("a") as journal:
        journal.write('{"kind": "cell", "task": "tow')  # killed while it wrote

    started: list[str] = []
    results = run(experiment, directory, resume=True, on_start=started.append)
    assert len(results.cells) == 6
    assert [results.cells[c.task, c.planner, c.seed] for c in seen] == seen
    assert sum("etf" in what or "random" in what for what in started) == 4


def test_an_earlier_run_is_kept_and_cells_of_another_setup_are_run_again(directory: Path) -> None:
    run(experiment_of("etf"), directory)
    before = (directory / runner.JOURNAL).read_bytes()
    with pytest.raises(BenchError, match="--resume"):
        run(experiment_of("etf"), directory)
    assert (directory / runner.JOURNAL).read_bytes() == before
    longer = runner.Experiment(tasks=(TASK,), planners=("etf",), budget_s=5.0)
    started: list[str] = []
    run(longer, directory, resume=True, on_start=started.append)
    assert "Two towers: etf" in started


# ---- tables, with figures worked out by hand ----


def results_by_hand() -> runner.Results:
    results = runner.Results()
    results.add(
        runner.TaskFacts(
            task="towers",
            num_ops=10,
            num_units=5,
            device_names=("/device:CPU:0", "/device:GPU:0"),
            lower_bound_ns=500_000_000,
            lower_bound_term="critical path",
        )
    )
    for planner, seed, step_time_ns, missing in (
        ("human_expert", 0, 2_000_000_000, {}),
        ("human_expert", 1, 2_000_000_000, {}),
        ("random", 0, 1_000_000_000, {}),
        ("random", 1, 2_000_000_000, {}),
        ("gpu_only", 0, 700_000_000, {"/device:GPU:0": 3 * 2**29}),
        ("gpu_only", 1, 700_000_000, {"/device:GPU:0": 3 * 2**29}),
    ):
        results.add(
            runner.Cell(
                task="towers",
                planner=planner,
                seed=seed,
                step_time_ns=step_time_ns,
                missing_bytes=missing,
            )
        )
    return results


def test_tables_by_hand() -> None:
    experiment = experiment_of("human_expert", "random", "gpu_only", seeds=2)
    overview, detail = tables.tables(experiment, results_by_hand())
    assert list(overview.rows) == [["Two towers", "any", "2", "1.5", "OOM", "0.5"]]
    expert, random, gpu = detail.rows
    assert expert[1:4] == ["2 s (2 to 2)", "0.0%", "+300%"]
    assert random[1:4] == ["1.5 s (1 to 2)", "25.0%", "+200%"]
    assert gpu[1:4] == ["OOM (/device:GPU:0 lacks 1.50 GiB)", "", ""]
    assert (expert[6], gpu[6], random[6]) == ("1 s", "OOM", "")
    assert "lower bound 0.5 s (critical path)" in detail.title


def test_a_chart_by_hand(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import rc_context

    experiment = experiment_of("human_expert", "random", "gpu_only", "etf", seeds=2)
    results = results_by_hand()
    for seed in range(2):
        results.add(
            runner.Cell(task="towers", planner="etf", seed=seed, step_time_ns=None, error="none")
        )
    path = tmp_path / "towers.svg"
    with rc_context({"svg.fonttype": "none"}):  # words stay words
        charts.draw(experiment, results, TASK, path)
    words = re.findall("<text[^>]*>([^<]*)</text>", path.read_text())
    assert {"Two towers, any", "seconds per step (simulated)", "lower bound", "paper"} <= {*words}
    # From top to bottom, with two that have no bar.
    planners = [row.planner for row in tables.rows_of(experiment, results, TASK)]
    assert sorted(planners) == ["etf", "gpu_only", "human_expert", "random"]
    assert [word for word in words if word in planners] == planners
    assert [word.strip() for word in words if word.strip() in ("OOM", "-")] == ["OOM", "-"]


def test_tables_beside_tensorflows_placement() -> None:
    experiment, results = (
        experiment_of("human_expert", "random", "gpu_only", seeds=2),
        results_by_hand(),
    )
    for table in tables.tables(experiment, results):
        assert not any("TensorFlow" in text for text in (table.title, *table.columns))
    results.facts["towers"] = replace(results.facts["towers"], default_ns=3_000_000_000)
    overview, detail = tables.tables(experiment, results)
    assert overview.columns[2:4] == ("TensorFlow", "human_expert")
    assert overview.rows[0][2:4] == ["3", "2"]
    assert detail.title.endswith("; TensorFlow's placement 3 s")
    assert detail.columns[3] == "times as fast as TensorFlow"
    assert [row[3] for row in detail.rows] == ["1.5", "2.0", ""]
    (task,) = tables.document(experiment, results)["tasks"]
    assert [row["speedup"] for row in task["planners"]] == [1.5, 2.0, None]
    results.facts["towers"] = replace(results.facts["towers"], default_fits=False)
    overview, detail = tables.tables(experiment, results)
    assert overview.rows[0][2] == "OOM"
    assert detail.title.endswith("; TensorFlow's placement OOM")
    assert "times as fast as TensorFlow" not in detail.columns


def test_facts_hold_tensorflows_placement(directory: Path) -> None:
    assert run(experiment_of("etf"), directory).facts["towers"].default_ns is None
    problem = load_problem_file(TOWERS)
    on_cpu = np.zeros(problem.num_ops, np.int32)
    facts = runner._facts(TASK, problem.replace(default_device=on_cpu))
    assert (facts.default_ns, facts.default_fits) == (simulate(problem, on_cpu).makespan_ns, True)


def test_the_document_is_json_without_infinities() -> None:
    experiment = experiment_of("human_expert", "random", "gpu_only", seeds=2)
    text = json.dumps(tables.document(experiment, results_by_hand()), allow_nan=False)
    (task,) = json.loads(text)["tasks"]
    by_planner = {row["planner"]: row for row in task["planners"]}
    assert by_planner["random"]["step_time_ns"] == 1_500_000_000
    assert by_planner["random"]["reduction_vs_expert"] == 0.25
    assert by_planner["gpu_only"]["step_time_ns"] is None
    assert task["published_ns"] == {
        "cpu_only": 2_000_000_000,
        "human_expert": 1_000_000_000,
        "gpu_only": None,
    }


def test_the_papers_planner_has_a_row_of_its_own() -> None:
    for task in PAPER:
        assert "hierarchical" not in task.published_s
    published = get_planner(PUBLISHED_PLANNER)
    paper = PRESETS[published.preset or ""]
    experiment = replace(experiment_of(PUBLISHED_PLANNER), placements=400)
    budget = runner._budget(published, experiment)
    assert budget is not None
    assert budget.steps == 400 // paper.batch == 100


# ---- calibration ----


def observed(name: str, device: int, published_s: float = 1.0) -> Observation:
    """A step of a random problem on one device, which launches 10 us ahead if it is a GPU."""
    problem = load_problem_file(TOWERS)
    kind = replace(load_machine("1cpu-2xk40").kinds[device], name=problem.device_kinds[device])
    launch_ns = np.where(np.arange(problem.num_devices) == 0, 0, kind.launch_overhead_ns)
    work = np.random.default_rng(len(name)).integers(1, 10**6, problem.num_ops)
    cost_ns = np.array(problem.cost_ns)
    cost_ns[:, device] = work + (0 if device else kind.launch_overhead_ns)
    return Observation(
        task=name,
        problem=problem.replace(
            cost_ns=cost_ns,
            device_launch_ns=launch_ns,
            device_slots=np.ones(problem.num_devices, np.int32),
        ),
        placement=np.full(problem.num_ops, device, np.int32),
        kind=kind,
        published_s=published_s,
    )


@pytest.mark.parametrize("device", [0, 1])
def test_a_fit_finds_the_efficiency_that_made_the_times(device: int) -> None:
    truth = Efficiency(rates=0.4, overhead=90.0 if device == 0 else 20.0)
    observations = [observed("a" * length, device) for length in (1, 2, 3)]
    found = fit([replace(one, published_s=one.predicted_s(truth)) for one in observations])
    assert found.rates == pytest.approx(0.4, rel=1e-2)
    assert found.overhead == pytest.approx(truth.overhead, rel=5e-2)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_papers_machine_is_the_fitted_one(count: int) -> None:
    sheet, fitted = (load_machine(f"{name}-{count}xk40") for name in ("1cpu", "papers"))
    assert [kind.name for kind in fitted.kinds] == ["haswell-18-2018", "k40-2018"]
    for kind, before, efficiency in zip(fitted.kinds, sheet.kinds, FITTED, strict=True):
        for dtype, rate in before.flops_per_s.items():
            assert kind.flops_per_s[dtype] == pytest.approx(efficiency.rates * rate)
        rate = efficiency.rates * before.memory_bytes_per_s
        assert kind.memory_bytes_per_s == pytest.approx(rate)
        assert kind.launch_overhead_ns == efficiency.overhead * before.launch_overhead_ns
        assert kind.executor_overhead_ns == efficiency.overhead * before.executor_overhead_ns
        assert kind.memory_bytes == before.memory_bytes
    assert fitted.links == sheet.links
    assert "fitted" in fitted.assumptions[0]


def test_overheads_and_work_are_told_apart() -> None:
    seen = observed("towers", 0)
    cost_ns = np.asarray(seen.problem.cost_ns)[:, 0]
    overhead_ns = np.minimum(cost_ns, seen.kind.launch_overhead_ns)
    once = seen.predicted_s(Efficiency(rates=1.0, overhead=1.0))
    slower = seen.predicted_s(Efficiency(rates=0.5, overhead=3.0))
    assert once == pytest.approx(cost_ns.sum() / 1e9)
    expected_ns = 3 * overhead_ns.sum() + 2 * (cost_ns - overhead_ns).sum()
    assert slower == pytest.approx(expected_ns / 1e9)


# ---- the command, on a real workload ----


def bench(directory: Path, *arguments: str) -> list[str]:
    command = ["bench", "paper", "--workload", "rnnlm", "--planner", "gpu_only"]
    return [*command, *arguments, "-o", str(directory)]


@pytest.mark.slow
def test_the_command_writes_tables_and_charts_and_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "out"
    done = hplacer_process(*bench(directory, "--json"))
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(done.stdout)["tasks"]
    assert task == json.loads((directory / "results.json").read_text())["tasks"][0]
    assert task["planners"][0]["step_time_ns"] == pytest.approx(1.57e9, rel=0.3)  # the papers' K40
    assert "| gpu_only |" in (directory / "tables.md").read_text()
    assert (directory / "rnnlm.png").read_bytes().startswith(b"\x89PNG")

    again = hplacer_process(*bench(directory))
    assert again.returncode == 1
    assert "--resume" in again.stderr
    more = bench(directory, "--planner", "random", "--seeds", "3", "--resume", "--json")
    done = hplacer_process(*more)
    (task,) = json.loads(done.stdout)["tasks"]
    assert [len(row["cells"]) for row in task["planners"]] == [3, 3]


@pytest.mark.slow
def test_control_c_keeps_what_was_found(tmp_path: Path) -> None:
    directory = tmp_path / "out"
    command = [sys.executable, "-m", "hplacer_optimizer"]
    command += bench(directory, "--planner", "local_search", "--budget", "90s")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    journal = directory / runner.JOURNAL
    with process:
        while not journal.exists() or "gpu_only" not in journal.read_text():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "gpu_only" in output
    assert "gpu_only" in (directory / "tables.md").read_text()
