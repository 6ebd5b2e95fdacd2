"""Jobs, lists of jobs, searches in the background, and Ray."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from hplacer_optimizer.capture.captured import CapturedGraph, load_captured, save_captured
from hplacer_optimizer.cli import pretrain as cli_pretrain
from hplacer_optimizer.errors import JobListError, OptionError, PlannerUnavailableError
from hplacer_optimizer.measuring import Effort
from hplacer_optimizer.measuring.planning import Measuring
from hplacer_optimizer.options import Options
from hplacer_optimizer.planners import Budget, Progress
from hplacer_optimizer.planners.progress import describe_progress, seconds_left
from hplacer_optimizer.plans.making import Search, make_plan
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.pretraining import background, jobs, on_ray
from hplacer_optimizer.pretraining.job_list import read_jobs
from tests import processes
from tests.plans.test_plan import BASELINE
from tests.plans.test_plan import make_plan as any_plan

EXPORT = """
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
x = v1.placeholder(tf.float32, [4, 8], name="x")
for layer in range(3):
    x = tf.nn.relu(x @ v1.get_variable(f"w{layer}", [8, 8]))
v1.train.AdamOptimizer().minimize(tf.reduce_sum(x ** 2), name="train")
v1.train.Saver().export_meta_graph("graph.meta")
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With graph.meta and the planners."""
    result = tmp_path_factory.mktemp("jobs")
    processes.run(EXPORT, result, prelude="")
    return result


@pytest.fixture(scope="module")
def loaded(directory: Path) -> jobs.Loaded:
    return jobs.load(jobs.GraphSpec(path=str(directory / "graph.meta"), machine="1cpu-2xk40"))


@pytest.fixture(autouse=True)
def _own_planners(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setenv("PYTHONPATH", f"{processes.ROOT}{os.pathsep}{directory}")


def search(**budget: Any) -> Search:
    return Search(planner="own:climb", budget=Budget(**budget))


# ---- plans ----


def test_a_search_by_time_is_repeated_by_its_steps(loaded: jobs.Loaded) -> None:
    timed, _ = make_plan(loaded.captured, loaded.machine, search(seconds=0.2))
    steps = timed.budget["steps_done"]
    assert timed.budget == {"seconds": 0.2, "steps_done": steps, "placements_scored": steps}
    again, _ = make_plan(loaded.captured, loaded.machine, search(steps=steps))
    assert np.array_equal(again.node_devices, timed.node_devices)
    assert again.step_time_ns == timed.step_time_ns


def test_a_plan_names_devices_as_sessions_do(loaded: jobs.Loaded) -> None:
    plan, trace = make_plan(loaded.captured, loaded.machine, search(steps=1))
    local = "/job:localhost/replica:0/task:0/device:"
    assert plan.device_names == [local + device for device in ("CPU:0", "GPU:0", "GPU:1")]
    problem = plan.problem()
    assert problem is not None
    assert problem.device_names == plan.device_names
    assert trace.makespan_ns == plan.step_time_ns


def test_a_long_learning_curve_is_thinned_out(loaded: jobs.Loaded) -> None:
    def many_steps(problem: Any, *, on_progress: Any, **_: Any) -> Any:
        for step in range(1, 4001):
            on_progress(Progress(steps=step, best_ns=5000 - step))
        return np.zeros(problem.num_ops, np.int32)

    importlib.import_module("own").many_steps = many_steps  # type: ignore[attr-defined]
    plan, _ = make_plan(loaded.captured, loaded.machine, Search(planner="own:many_steps"))
    steps = [point["steps"] for point in plan.learning_curve]
    assert 500 <= len(steps) <= 1000
    assert set(np.diff(steps)) == {4}
    assert plan.budget["steps_done"] == 4000


def on_cpu(plan: Plan) -> bool:
    """Whether something is there that a GPU could run."""
    problem = plan.problem()
    assert problem is not None
    gpu = problem.device_kind[1]
    return bool(((plan.placement == 0) & (problem.cost_ns[:, gpu] >= 0)).any())


def test_the_host_is_offered_on_request(loaded: jobs.Loaded) -> None:
    def on_cpu_for(search: Search, **options: Any) -> bool:
        changed = replace(loaded, options=Options(**options))
        return on_cpu(jobs.plan_job(changed, search))

    etf = Search(planner="etf")  # on a K40 a kernel of this size takes less than its launch
    assert not on_cpu_for(etf)
    assert on_cpu_for(replace(etf, host_offload=True))
    assert on_cpu_for(etf, host_offload=True)
    assert on_cpu_for(Search(planner="cpu_only"))


def test_only_the_graph_of_a_file_is_measured(loaded: jobs.Loaded, tmp_path: Path) -> None:
    measured = Search(planner="local_search", measuring=Measuring())
    with pytest.raises(OptionError, match="reward: only the graph of a file can be measured"):
        jobs.plan_job(loaded, measured)
    script = jobs.GraphSpec(script=("train.py",), keep_graph=True)
    with pytest.raises(OptionError, match="reward: a script's graph cannot be measured"):
        jobs.load(script)
    job = jobs.Job(graph=script, search=measured)
    with pytest.raises(OptionError, match="--ray: jobs that measure"):
        run_on_ray([job], tmp_path)


def test_a_captured_step_survives_its_files(loaded: jobs.Loaded, tmp_path: Path) -> None:
    save_captured(loaded.captured, tmp_path, assumed=["more"])
    again = load_captured(tmp_path)
    assert again.assumptions == [*loaded.captured.assumptions, "more"]
    same = [
        save_and_read(tmp_path / name, captured)
        for name, captured in (
            ("a", replace(again, assumptions=[])),
            ("b", replace(loaded.captured, assumptions=[])),
        )
    ]
    assert same[0] == same[1]
    plans = [make_plan(c, loaded.machine, search(steps=2))[0] for c in (again, loaded.captured)]
    assert np.array_equal(plans[0].node_devices, plans[1].node_devices)


def save_and_read(directory: Path, captured: CapturedGraph) -> list[bytes]:
    directory.mkdir()
    save_captured(captured, directory)
    with np.load(directory / "captured.npz") as archive:
        arrays = [archive[name].tobytes() for name in sorted(archive.files)]
    return [(directory / "captured.json").read_bytes(), *arrays]


# ---- progress ----


def test_progress_in_words() -> None:
    progress = Progress(
        steps=1412, best_ns=41_200_000, placements=5648, mean_ns=57_300_000.4, infeasible=0.034
    )
    assert describe_progress(progress) == (
        "step 1,412, 5,648 placements, best 41.2 ms, mean 57.3 ms, 3% infeasible"
    )
    assert describe_progress(Progress(steps=0, best_ns=None)) == "step 0, nothing that fits yet"
    measured = Progress(steps=3, best_ns=41_200_000, placements=48, measured=50, failed=2)
    assert describe_progress(measured) == "step 3, 50 measured, 2 failed, best 41.2 ms"


def test_time_left_is_that_of_the_nearest_limit() -> None:
    progress = Progress(steps=10, best_ns=None)
    assert seconds_left(Budget(), progress, 5.0) is None
    assert seconds_left(Budget(seconds=60), progress, 5.0) == 55
    assert seconds_left(Budget(seconds=60, steps=40), progress, 5.0) == 15
    assert seconds_left(Budget(seconds=60), progress, 61.0) == 0


# ---- lists ----


LIST = """
format: hplacer-pretrain/1
defaults:
  budget: 2m
  machines: [1cpu-2xk40, mine.yaml]
jobs:
  - graphs: [a.meta, /b/saved]
    planners: [etf, hierarchical]
    seeds: [0, 1, 2]
    targets: train
    preset: paper
    shapes: {x: [5, 8]}
  - graphs: a.meta
    machines: cluster.yaml
    reward: measure
    measure_on: ["a:1, b:2", "c:3,d:4"]
    measure_limit: 90s
  - capture: [train.py, --epochs, "1"]
    planners: heft
    machines: 4xv100
    steps: 7
    soft_placement: true
"""


def test_a_list_is_the_product_of_its_entries(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(LIST)
    found = read_jobs(tmp_path / "jobs.yaml")
    own, mine = str(tmp_path / "a.meta"), str(tmp_path / "mine.yaml")
    product = itertools.product(
        (own, "/b/saved"), ("1cpu-2xk40", mine), ("etf", "hierarchical"), range(3)
    )
    assert [
        (job.graph.path, job.graph.machine, job.search.planner, job.search.seed)
        for job in found[:-2]
    ] == list(product)
    assert {job.search.budget for job in found[:-1]} == {Budget(seconds=120)}
    assert found[0].graph.shapes == (("x", (5, 8)),)
    assert found[0].graph.targets == ("train",)
    assert {(job.search.planner, job.search.preset) for job in found} == {
        ("etf", "default"),
        ("hierarchical", "paper"),
        ("auto", "default"),
        ("heft", "default"),
    }
    *_, measured, last = found
    assert measured.graph.keep_graph
    assert measured.search.measuring == Measuring(
        on=(("a:1", "b:2"), ("c:3", "d:4")), effort=Effort(time_limit_s=90)
    )
    assert not any(job.graph.keep_graph or job.search.measuring for job in (*found[:-2], last))
    assert last.graph.script == (str(tmp_path / "train.py"), "--epochs", "1")
    assert last.search.budget == Budget(seconds=120, steps=7)
    assert last.graph.allow_soft_placement is True
    assert len({jobs.slug(job) for job in found}) == len(found)
    assert jobs.slug(last) == "train-4xv100-heft-0"


EVERY_OPTION = """
    --machine 1cpu-2xk40 --planner local_search --seed 3 --budget 2m --steps 7 --patience 5
    --preset default --host-offload --reward measure --measure-on a:1,b:2 --measure-on c:3
    --measure-steps 4 --measure-limit 90s --target train --target loss --signature s --batch-size 8
    --loop-trip-count 6 --shape x=5,8 --cost-table costs.json --soft-placement
    --capture-timeout 1m --in-place
"""
EVERY_FIELD = """
format: hplacer-pretrain/1
jobs:
  - graphs: a.meta
    machines: 1cpu-2xk40
    planners: local_search
    seeds: 3
    budget: 2m
    steps: 7
    patience: 5
    preset: default
    host_offload: true
    reward: measure
    measure_on: ["a:1,b:2", "c:3"]
    measure_steps: 4
    measure_limit: 90s
    targets: [train, loss]
    signature: s
    batch_size: 8
    loop_trip_count: 6
    shapes: {x: [5, 8]}
    cost_table: costs.json
    soft_placement: true
    capture_timeout: 1m
    in_place: true
"""


def jobs_of(*arguments: str) -> list[jobs.Job]:
    """As `hplacer pretrain` reads its command line."""
    parser = argparse.ArgumentParser()
    cli_pretrain.add_commands(parser.add_subparsers())
    return cli_pretrain._jobs(parser.parse_args(["pretrain", *arguments]))


def test_the_command_line_says_what_a_list_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("jobs.yaml")
    path.write_text(EVERY_FIELD)
    assert jobs_of("a.meta", *EVERY_OPTION.split()) == read_jobs(path)
    path.write_text("format: hplacer-pretrain/1\njobs:\n- capture: [t.py, --epochs, '1']\n")
    assert jobs_of("--capture", "t.py", "--epochs", "1") == read_jobs(path)
    assert jobs_of("--list", "jobs.yaml") == read_jobs(path)


def test_each_job_that_learns_has_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def directories(graphs: str, planners: str = "[hierarchical, auto]") -> list[str | None]:
        jobs = f"jobs:\n- {{graphs: {graphs}, machines: 4xv100, planners: {planners}}}\n"
        Path("jobs.yaml").write_text(f"format: hplacer-pretrain/1\n{jobs}")
        found = jobs_of("--list", "jobs.yaml", "--checkpoint", "kept")
        return [job.search.checkpoint for job in found]

    first = "kept/a-4xv100-hierarchical-0"
    assert directories("[a.meta, b.meta]") == [first, None, first.replace("a-", "b-"), None]
    nested = [f"kept/{name}_step-4xv100-hierarchical-0" for name in ("x_a", "x_b")]
    assert [name for name in directories("[/x/a/step.meta, /x/b/step.meta]") if name] == nested
    assert directories("[a.meta, a.meta]", "auto") == [None, None]
    with pytest.raises(OptionError, match="would share the directory"):
        directories("[a.meta, a.meta]")


def test_what_is_told_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = jobs_of("a.meta", "--planner", "etf", "--steps", "1")
    fields = {"planner_notes": ["a note"], "budget": {"steps_done": 0}, "baseline": BASELINE}
    plans = [any_plan(**fields, prediction_error=error) for error in (0.5, 1.5)]
    good, hardly = (jobs.Outcome(job=job, plan=plan, path="x.hplan", stored=True) for plan in plans)
    failed = jobs.Outcome(job=job, error="no such file")
    summary = "41.2 ms/step, 2.0 times as fast as TensorFlow's placement (82.4 ms), both predicted"
    title = "a.meta: etf, seed 0"
    *notes, last = cli_pretrain._lines(good, True)
    assert last == f"{title}: plan 3f9c2b1a (etf): {summary}: x.hplan"
    assert notes == [f"{title}: a note"]
    _, alone, last = cli_pretrain._lines(hardly, True)
    kept = "without a trial, training keeps TensorFlow's placement (option min_gain)"
    assert alone.startswith(f"{title}: {kept}: 41.2 ms")
    assert summary in last
    documents = [cli_pretrain._document(outcome) for outcome in (good, hardly, failed)]
    assert len({tuple(document) for document in documents}) == 1
    assert [document["speedup"] for document in documents] == [2.0, 2.0, None]
    assert [bool(document["why_left_alone"]) for document in documents] == [False, True, False]
    cli_pretrain._print_table([good, failed])
    header, *rows = filter(str.strip, capsys.readouterr().out.splitlines())
    assert "times as fast" in header
    assert [(" 2.0 " in row) for row in rows if "a.meta" in row] == [True, False]


def test_a_command_line_that_is_refused() -> None:
    for arguments in ([], ["a.meta", "--capture", "t.py"]):
        with pytest.raises(OptionError, match="give either GRAPH, or --capture"):
            jobs_of(*arguments)
    with pytest.raises(OptionError, match="--list: the file says planners, seeds; leave it out"):
        jobs_of("--list", "jobs.yaml", "--planner", "etf", "--seed", "0")
    with pytest.raises(SystemExit):
        jobs_of("a.meta", "--planner", "eft")
    with pytest.raises(OptionError, match="preset: the planner 'etf' does not learn"):
        jobs_of("a.meta", "--planner", "etf", "--preset", "paper")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format: other/1\njobs: []", "format: expected 'hplacer-pretrain/1', found 'other/1'"),
        ("format: hplacer-pretrain/1", "the key 'jobs' is missing"),
        ("format: hplacer-pretrain/1\njobs: []", "jobs: the list is empty"),
        ("- {}", "jobs[0]: give either graphs or capture"),
        ("- {graphs: a, capture: b}", "jobs[0]: give either graphs or capture"),
        ("- {graphs: []}", "jobs[0].graphs: the list is empty"),
        ("- {graphs: a, seed: 3}", "jobs[0]: unknown key 'seed'; keys here: graphs, capture"),
        ("- {graphs: a, seeds: [1, -3]}", "jobs[0].seeds[1]: expected a whole number, found '-3'"),
        ("- {graphs: a, planners: [eft]}", "jobs[0].planners[0]: planner: unknown name 'eft'"),
        ("- {graphs: a, budget: 10}", "jobs[0].budget: '10' is no duration; write 90s, 10m"),
        ("- {graphs: a, soft_placement: 1}", "jobs[0].soft_placement: expected true or false"),
        ("- {graphs: a, preset: big}", "jobs[0].preset: expected one of default, paper"),
        ("- {graphs: a, shapes: {x: 3}}", "jobs[0].shapes.x: expected a list"),
        ("- {graphs: a, steps: 0}", "jobs[0].steps: 0 is outside 1 to"),
        ("- {graphs: a, reward: time}", "jobs[0].reward: expected simulate or measure"),
        ("- {graphs: a, measure_on: 'a:1'}", "measure_on, measure_steps, measure_limit: need the"),
        ("- {graphs: a, reward: measure, measure_on: a}", "'a' is no address of a server"),
        ("- {graphs: a, reward: measure, planners: etf}", "'etf' does not measure"),
    ],
)
def test_an_error_of_a_list_names_the_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "jobs.yaml"
    whole = text.startswith("format")
    path.write_text(text if whole else f"format: hplacer-pretrain/1\njobs:\n{text}\n")
    with pytest.raises(JobListError) as caught:
        read_jobs(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def one_after_the_other(todo: list[jobs.Job], cache: Path) -> list[jobs.Outcome]:
    return list(
        jobs.run_serially(
            todo,
            PlanStore(cache),
            stop=threading.Event(),
            watched=contextlib.nullcontext,
            on_start=lambda job: None,
            on_progress=lambda progress: None,
        )
    )


def some_jobs(directory: Path) -> list[jobs.Job]:
    """Two seeds, a planner that raises between them, and a graph that does not exist."""
    (directory / "bad.py").write_text("def raises(problem, **_):\n    raise KeyError('no idea')\n")
    spec = jobs.GraphSpec(path=str(directory / "graph.meta"), machine="1cpu-2xk40")
    climb = search(steps=20)
    return [
        jobs.Job(graph=spec, search=climb),
        jobs.Job(graph=spec, search=replace(climb, planner="bad:raises")),
        jobs.Job(graph=spec, search=replace(climb, seed=1)),
        jobs.Job(graph=jobs.GraphSpec(path=str(directory / "none.meta")), search=climb),
    ]


def facts(outcomes: list[jobs.Outcome]) -> list[Any]:
    """What has to be equal, however the jobs were run."""
    return [
        (
            outcome.job.title,
            outcome.stored,
            outcome.error,
            outcome.plan and outcome.plan.step_time_ns,
            outcome.plan and outcome.plan.node_devices.tolist(),
        )
        for outcome in sorted(outcomes, key=lambda outcome: outcome.job.title)
    ]


def test_a_failed_job_does_not_end_the_others(directory: Path, tmp_path: Path) -> None:
    outcomes = one_after_the_other(some_jobs(directory), tmp_path)
    errors = [outcome.error for outcome in outcomes]
    assert (errors[0], errors[1], errors[2]) == (None, "KeyError('no idea')", None)
    assert "none.meta: no such file" in str(errors[3])
    (entry,) = PlanStore(tmp_path).list()
    times = [outcome.plan.step_time_ns for outcome in outcomes if outcome.plan]
    assert entry.plan is not None
    assert entry.plan.step_time_ns == min(times)


def test_no_search_begins_where_its_plan_cannot_be_kept(directory: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    job = some_jobs(directory)[0]
    endless = replace(job, search=replace(job.search, budget=Budget(seconds=600)))
    (outcome,) = one_after_the_other([endless], shared)
    assert "other users can write here" in str(outcome.error)
    (outcome,) = one_after_the_other([job], f"{shared};{tmp_path / 'own'}")
    assert outcome.error is None


# ---- in the background ----


def begin(loaded: jobs.Loaded, cache: Path, **options: Any) -> background.Detached | None:
    chosen = Options(planner="own:climb", cache=str(cache), **options)
    return background.start(loaded.captured, loaded.machine, chosen, PlanStore(cache))


def process_id(log: str) -> int:
    """Of the search that last began."""
    processes.wait_for(lambda: "searches for" in Path(log).read_text())
    lines = [line for line in Path(log).read_text().splitlines() if "searches for" in line]
    return int(lines[-1].split()[2])


def test_one_background_search_at_a_time(loaded: jobs.Loaded, tmp_path: Path) -> None:
    search = begin(loaded, tmp_path, budget_s=600)
    assert search is not None
    log, number, _ = search
    assert process_id(log) == number
    assert begin(loaded, tmp_path, budget_s=600) is None
    assert os.getpriority(os.PRIO_PROCESS, number) == 19
    assert os.getsid(number) != os.getsid(0)
    os.kill(number, signal.SIGTERM)
    job = tmp_path / "pretraining" / loaded.captured.fingerprint
    processes.wait_for(lambda: not job.exists())
    assert "stopped early, " in Path(log).read_text()
    (entry,) = PlanStore(tmp_path).list()
    assert entry.plan is not None
    assert entry.plan.planner == "own:climb"
    processes.wait_for(lambda: processes.has_ended(number))
    assert begin(loaded, tmp_path, budget_s=0.1) is not None  # the lock is free again
    processes.wait_for(lambda: not job.exists())


@pytest.mark.parametrize("gives_way", [True, False])
def test_a_search_beside_training_ends_with_it(
    gives_way: bool, loaded: jobs.Loaded, tmp_path: Path
) -> None:
    store = PlanStore(tmp_path)
    options = Options(planner="own:climb", cache=str(tmp_path))
    effort = background.SearchEffort(seconds=600, threads=1, gives_way=gives_way)
    with background.beside(loaded.captured, loaded.machine, options, store, effort) as search:
        assert process_id(search.log) == search.process_id
        assert not search.is_over
        priority = os.getpriority(os.PRIO_PROCESS, search.process_id)
        assert priority == (19 if gives_way else os.getpriority(os.PRIO_PROCESS, 0))
        assert 0 < search.processor_s < 60
        with (
            pytest.raises(background.AlreadySearchedError, match="another process searches for"),
            background.beside(loaded.captured, loaded.machine, options, store, effort),
        ):
            pass
        limits = Path(f"/proc/{search.process_id}/limits").read_text()
        (data,) = [line for line in limits.splitlines() if line.startswith("Max data size")]
        assert "unlimited" not in data
        assert Path(f"/proc/{search.process_id}/oom_score_adj").read_text() == "1000\n"
    processes.wait_for(lambda: search.is_over)
    assert "stopped early, " in Path(search.log).read_text()
    assert store.get(loaded.captured.fingerprint) is not None


def test_a_search_that_nobody_took_leave_of_is_over(tmp_path: Path) -> None:
    (tmp_path / background.JOB).touch()
    child = subprocess.Popen([sys.executable, "-c", ""])
    search = background.Detached(str(tmp_path / "log"), child.pid, str(tmp_path))
    processes.wait_for(lambda: search.is_over)
    child.wait()
    assert search.is_over


def test_a_killed_background_search_is_taken_up(loaded: jobs.Loaded, tmp_path: Path) -> None:
    fingerprint, store = loaded.captured.fingerprint, PlanStore(tmp_path)
    options = Options(planner="own:climb", cache=str(tmp_path), budget_s=60)
    assert background.resume(fingerprint, options, store) is None  # nothing is left
    search = begin(loaded, tmp_path, budget_s=60)
    assert search is not None
    log = search.log
    job = tmp_path / "pretraining" / fingerprint
    for _ in range(3):
        number = process_id(log)
        os.kill(number, signal.SIGKILL)
        Path(log).write_text("")
        processes.wait_for(lambda: background.resume(fingerprint, options, store) is not None)
    processes.wait_for(lambda: not job.exists())
    assert "given up after 3 attempts" in Path(log).read_text()
    assert store.list() == []


def test_a_background_search_that_fails_says_so(loaded: jobs.Loaded, tmp_path: Path) -> None:
    chosen = Options(planner="no_such:planner", cache=str(tmp_path), budget_s=1)
    store = PlanStore(tmp_path)
    search = background.start(loaded.captured, loaded.machine, chosen, store)
    assert search is not None
    log = search.log
    processes.wait_for(lambda: os.listdir(tmp_path / "pretraining") == [Path(log).name])
    assert "failed: OptionError: planner: cannot load 'no_such:planner'" in Path(log).read_text()


# ---- Ray ----


def test_ray_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PlannerUnavailableError, match=r"pip install 'hplacer-optimizer\[ray\]'"):
        run_on_ray([], tmp_path)


def run_on_ray(
    todo: list[jobs.Job],
    cache: Path,
    stop: threading.Event | None = None,
    on_progress: Callable[[int, Mapping[int, Progress]], None] = lambda done, running: None,
) -> list[jobs.Outcome]:
    return list(
        on_ray.run_on_ray(
            todo,
            PlanStore(cache),
            "local",
            stop=stop or threading.Event(),
            watched=contextlib.nullcontext,
            on_start=lambda job: None,
            on_progress=on_progress,
        )
    )


@pytest.mark.slow
def test_ray_gives_what_a_serial_run_gives(directory: Path, tmp_path: Path) -> None:
    (directory / "fatal.py").write_text("import os\ndef exits(problem, **_):\n    os._exit(1)\n")
    todo = some_jobs(directory)
    deadly = replace(todo[0], search=replace(todo[0].search, planner="fatal:exits"))
    together = run_on_ray([*todo, deadly], tmp_path / "ray")
    serial = one_after_the_other(todo, tmp_path / "serial")
    assert facts([o for o in together if o.job != deadly]) == facts(serial)
    (dead,) = [outcome for outcome in together if outcome.job == deadly]
    assert "WorkerCrashedError" in str(dead.error)
    kept = [PlanStore(tmp_path / name).list() for name in ("ray", "serial")]
    devices = [entry.plan.node_devices.tolist() for (entry,) in kept if entry.plan]
    assert devices[0] == devices[1]


@pytest.mark.slow
def test_ray_keeps_the_best_plans_when_it_is_stopped(directory: Path, tmp_path: Path) -> None:
    spec = some_jobs(directory)[0].graph
    stop = threading.Event()
    todo = [jobs.Job(graph=spec, search=replace(search(), seed=seed)) for seed in range(2)]

    def stop_both(done: int, running: Mapping[int, Progress]) -> None:
        if sum(progress.steps > 1 for progress in running.values()) == len(todo):
            stop.set()

    outcomes = run_on_ray(todo, tmp_path, stop, stop_both)
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert all(outcome.plan and outcome.plan.budget["steps_done"] > 1 for outcome in outcomes)
