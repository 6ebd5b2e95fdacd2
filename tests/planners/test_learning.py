"""The learned planners: what they draw, what they learn, and that nothing of it is lost."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from hplacer_optimizer.errors import (
    CheckpointError,
    InfeasibleError,
    OptionError,
    PlanError,
    PlannerUnavailableError,
)
from hplacer_optimizer.planners import PLANNERS, Budget, Progress, get_planner, rollout
from hplacer_optimizer.planners.colocation import groups_of_units
from hplacer_optimizer.planners.devices import on_device
from hplacer_optimizer.planners.learning import LEARNED_PLANNERS, Learned, learn, learner
from hplacer_optimizer.planners.learning.scoring import Scorer, best_single_device
from hplacer_optimizer.planners.learning.settings import Settings, get_settings
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.problem_file import save_problem
from hplacer_optimizer.problem.simulator import simulate, simulate_batch
from hplacer_optimizer.support.formats import format_ns
from testbed.documents import problem_from_dict
from testbed.large_problem import large_problem
from testbed.planted_problems import machine
from testbed.random_problems import problems

pytest.importorskip("tensorflow")

from hplacer_optimizer.planners.learning.training import Trainer

SMALL = {"clusters": 60, "groups": 12, "placer_hidden": 8, "groupings": 4, "placements": 4}


def chains(count: int = 2, length: int = 12, output_bytes: int = 500) -> dict[str, Any]:
    """Chains without common work on two GPUs: the best placement has one chain on each."""
    ops = []
    edges = []
    for chain in range(count):
        for step in range(length):
            ops.append(
                {
                    "name": f"chain_{chain}/op_{step}",
                    "type": "MatMul",
                    "cost_ns": {"gpu": 1000, "cpu": 20_000},
                    "output_bytes": [output_bytes],
                }
            )
            if step:
                edges.append([len(ops) - 2, 0, len(ops) - 1])
    devices = ["/device:CPU:0", "/device:GPU:0", "/device:GPU:1"]
    return machine(devices, 10**9, 100) | {"ops": ops, "edges": edges}


def trainer(problem: Any, model: str = "hierarchical", seed: int = 0, **values: Any) -> Trainer:
    chosen = Settings(**(SMALL | values))
    return Trainer(problem, model, chosen, seed, Scorer(problem, chosen.failing_factor, None))


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name.endswith("random_grouping") else [])
        for name in LEARNED_PLANNERS
    ],
)
def test_every_model_finds_the_two_chains(model: str) -> None:
    problem = problem_from_dict(chains())
    policies = [trainer(problem, model, seed) for seed in range(2)]
    for policy in policies:
        policy.run(Budget(steps=100))
        assert policy.best.makespan_ns == simulate(problem, policy.best.placement).makespan_ns
    best_ns = min(policy.best.makespan_ns or math.inf for policy in policies)
    if model == "hierarchical_random_grouping":
        assert best_ns <= 24_000  # its groups cut the chains
    else:
        assert best_ns <= 12_600  # 12,000, and ends of both chains exchanged


def test_the_policy_itself_gets_better() -> None:
    """Not only the best of many draws: fresh draws, from nothing but the policy."""
    problem = problem_from_dict(chains(4, 10, 10**6))
    policy = trainer(problem, refine=0.0, imitate_best=0.0, clusters=0)
    policy.run(Budget(steps=120))
    means = [progress.mean_ns for progress in policy.curve]
    uniform = np.random.default_rng(0).integers(1, 3, (200, problem.num_ops)).astype(np.int32)
    uniform_ns = simulate_batch(problem, uniform)[0].mean()
    assert np.mean(means[-12:]) < 0.8 * np.mean(means[:12])
    assert np.mean(means[-12:]) < uniform_ns


@hypothesis_settings(max_examples=12, deadline=None)
@given(document=problems())
def test_placements_are_valid(document: dict[str, Any]) -> None:
    problem = problem_from_dict(document)
    if not problem.num_ops:
        return
    model = LEARNED_PLANNERS[problem.num_ops % len(LEARNED_PLANNERS)]
    try:
        policy = trainer(problem, model, groups=3)
    except InfeasibleError:
        assert (np.diff(problem.candidate_ptr) == 0).any()
        return
    policy.run(Budget(steps=2))
    check_constraints(problem, policy.best.placement)


def test_forbidden_devices_are_never_drawn() -> None:
    document = chains()
    for op in document["ops"]:
        op["allowed_devices"] = [2]
    problem = problem_from_dict(document)
    policy = trainer(problem)
    policy.step()
    assert set(policy.best.placement.tolist()) == {2}


def test_infeasible_placements_are_learned_from() -> None:
    document = chains(4, 4, 10**6)
    for op in document["ops"]:
        op["persistent_bytes"] = 1000
    for device in (0, 2):  # nothing fits
        document["devices"][device]["memory_bytes"] = 0
    problem = problem_from_dict(document)
    policy = trainer(problem, clusters=0)
    policy.run(Budget(steps=80))
    shares = [progress.infeasible for progress in policy.curve]
    assert shares[0] > 0
    assert np.mean(shares[-10:]) < np.mean(shares[:10])
    assert simulate(problem, policy.best.placement).feasible


@pytest.mark.slow
def test_a_stall_makes_items_smaller() -> None:
    problem = large_problem(300)
    policy = trainer(problem, clusters=30, stall_steps=2, stall_gain=1.0)
    counts = []
    for _ in range(7):
        before = policy.best
        policy.step()
        model, best = policy._model, policy.best
        assert best.rank <= before.rank
        counts.append(model.items.count)
        placed = model.placements(best.grouping[None], np.zeros(1, np.int32), best.devices[None])
        assert placed[0].tolist() == best.placement.tolist()
    assert counts == sorted(counts)
    assert counts[-1] == problem.num_units > counts[0]
    check_constraints(problem, policy.best.placement)


@pytest.mark.parametrize(
    "model",
    ["hierarchical", "hierarchical_no_grouping"],
)
def test_a_checkpoint_after_stalls_goes_on_bit_for_bit(model: str) -> None:
    problem = large_problem(200)
    values = {"clusters": 10, "groups": 14, "stall_steps": 2, "stall_gain": 1.0}
    straight = trainer(problem, model, **values)
    straight.run(Budget(steps=7))
    first = trainer(problem, model, **values)
    first.run(Budget(steps=5))
    resumed = trainer(problem, model, **values)
    resumed.restore(first.save())
    resumed.run(Budget(steps=7))
    assert resumed.save() == straight.save()


def test_a_checkpoint_of_something_else_is_refused() -> None:
    problem = large_problem(100)
    data = trainer(problem).save()
    with pytest.raises(CheckpointError, match="of another seed"):
        trainer(problem, seed=1).restore(data)
    with pytest.raises(CheckpointError, match="of another graph or machine"):
        trainer(large_problem(120)).restore(data)
    late = problem.replace(device_start_ns=np.arange(problem.num_devices))
    with pytest.raises(CheckpointError, match="of another graph or machine"):
        trainer(late).restore(data)
    with pytest.raises(CheckpointError, match="of another settings"):
        trainer(problem, learning_rate=0.5).restore(data)
    for damaged in (data[: len(data) // 2], b"", b"x" * 100):
        with pytest.raises(CheckpointError, match="damaged"):
            trainer(problem).restore(damaged)


def test_patience_ends_a_search_that_finds_nothing_better() -> None:
    document = chains(1, 3)
    policy = trainer(problem_from_dict(document))
    policy.run(Budget(patience=4, steps=500))
    assert policy.steps == policy.improved + 4


def test_a_start_is_imitated_and_improved() -> None:
    problem = large_problem(300)
    heft = PLANNERS["heft"].plan(problem).placement
    plain = trainer(problem)
    warm = Trainer(problem, "hierarchical", Settings(**SMALL), 0, Scorer(problem, 4.0, None), heft)  # type: ignore[arg-type]
    assert warm.best.placement.tolist() == heft.tolist()
    plain.step()
    warm.step()
    assert warm.best.makespan_ns <= simulate(problem, heft).makespan_ns  # type: ignore[operator]
    for network in ("grouper", "placer"):
        assert warm.losses[f"{network}_entropy"] < 0.9 * plain.losses[f"{network}_entropy"]


def test_wrong_settings_are_named() -> None:
    with pytest.raises(OptionError, match="preset: must be default or paper"):
        get_settings("best")
    with pytest.raises(OptionError, match="unknown setting 'groops'; valid are clusters"):
        get_settings("paper", {"groops": 3})
    with pytest.raises(OptionError, match="groups: must be at least 1"):
        Settings(groups=0)
    with pytest.raises(OptionError, match="refine: must be from 0 to 1"):
        Settings(refine=1.5)
    with pytest.raises(OptionError, match="own_draws_only: needs the settings refine=0"):
        get_settings("paper", {"refine": 0.5})
    with pytest.raises(OptionError, match="groups: must be of type int"):
        Settings(groups=2.5)  # type: ignore[arg-type]


def test_the_papers_preset_begins_with_nothing_and_scores_its_own_draws_only() -> None:
    problem = large_problem(200)
    scored: list[Any] = []

    class Recorded(Scorer):
        def score(self, placements: Any) -> Any:
            scored.extend(placement.tobytes() for placement in placements)
            return super().score(placements)

    chosen = get_settings("paper", {"placer_hidden": 16, "groups": 8})
    policy = Trainer(problem, "hierarchical", chosen, 0, Recorded(problem, 4.0, None))
    assert policy.best.makespan_ns is None
    assert not scored
    policy.run(Budget(steps=3))
    assert len(scored) == policy.placements
    assert policy.best.placement.tobytes() in scored
    assert policy.best.makespan_ns == simulate(problem, policy.best.placement).makespan_ns


def test_the_papers_preset_answers_with_what_it_drew_and_says_what_that_is_worth() -> None:
    document = chains(1, 12, 10**6)  # which a single device runs best
    problem = problem_from_dict(document)
    planner = get_planner("hierarchical:paper")
    alone_ns = simulate(problem, best_single_device(problem)).makespan_ns
    assert alone_ns == 12_000
    found = planner.plan(problem, budget=Budget(steps=1), preset="default")
    assert found.placements == 4  # as the paper's preset has it
    drawn_ns = simulate(problem, found.placement).makespan_ns
    assert drawn_ns is not None
    assert drawn_ns > alone_ns
    assert found.notes == [
        f"hierarchical: of the 4 placements that the policy drew, the best takes "
        f"{format_ns(drawn_ns)} per step; a single device takes 12 us"
    ]


def test_the_papers_preset_says_that_nothing_fits_or_was_drawn() -> None:
    problem = problem_from_dict(chains())
    drawn = Learned(placement=on_device(problem, 0), makespan_ns=None, placements=4_000)
    (note,) = learner._as_drawn(problem, drawn, "hierarchical").notes
    assert (
        note == "hierarchical: of the 4,000 placements that the policy drew, none fits into memory"
    )
    with pytest.raises(PlannerUnavailableError, match="ended before the policy's first draws"):
        learner._as_drawn(problem, None, "hierarchical")


def test_colocation_rules_read_scopes() -> None:
    document = chains(3, 5)
    for op in document["ops"][10:]:
        op["name"] = op["name"].replace("chain_2/", "train/gradients/chain_1/") + "_grad/MatMul"
    problem = problem_from_dict(document)
    group = groups_of_units(problem, most=4)[problem.units]
    assert len(set(group[:5])) == 1
    assert set(group[5:10]) == set(group[10:])
    assert group[0] != group[5]
    assert group[0] == 0
    assert set(groups_of_units(problem, most=1)) == {0}


# ---- in a process of its own, as users run it ----


@pytest.mark.slow
def test_no_number_of_threads_changes_a_placement(tmp_path: Path) -> None:
    save_problem(large_problem(400), tmp_path / "graph.hplacer.json")
    program = (
        "import sys\n"
        "from hplacer_optimizer import load_problem\n"
        "from hplacer_optimizer.planners.learning import learn\n"
        "from hplacer_optimizer.planners import Budget\n"
        "found = learn(load_problem(sys.argv[1]), budget=Budget(steps=4), seed=3)\n"
        "sys.stdout.buffer.write(found.placement.tobytes())\n"
    )
    outputs = []
    for threads in ("1", "7"):
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "TF_NUM_INTRAOP_THREADS": threads,
            "TF_NUM_INTEROP_THREADS": threads,
        }
        cores = {min(os.sched_getaffinity(0))} if threads == "1" else os.sched_getaffinity(0)
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "graph.hplacer.json")],
            env=environment,
            capture_output=True,
            check=True,
            timeout=120,
            preexec_fn=lambda cores=cores: os.sched_setaffinity(0, cores),
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 4 * 400


@pytest.mark.slow
def test_a_run_is_resumed_logged_and_replayed(tmp_path: Path) -> None:
    import tensorflow as tf

    problem = large_problem(300)
    settings = SMALL
    told: list[Progress] = []
    first = learn(
        problem,
        settings=settings,
        budget=Budget(seconds=30, patience=2, steps=4),
        checkpoint=tmp_path / "learned",
        logdir=tmp_path / "log",
        on_progress=told.append,
    )
    assert list(first.curve) == told
    assert first.makespan_ns == simulate(problem, first.placement).makespan_ns
    resumed = learn(
        problem,
        settings=settings,
        budget=Budget(steps=first.steps + 2),
        checkpoint=tmp_path / "learned",
        resume=True,
    )
    replayed = learn(problem, settings=settings, budget=Budget(steps=first.steps + 2))
    assert resumed.placement.tobytes() == replayed.placement.tobytes()
    assert resumed.placements == replayed.placements == 16 * replayed.steps
    (events,) = (tmp_path / "log").iterdir()
    plugins = {}
    for record in tf.data.TFRecordDataset(str(events)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            plugins[value.tag] = value.metadata.plugin_data.plugin_name
    assert plugins["step_time/best"] == "scalars"
    assert plugins["policy/placer_entropy"] == "scalars"
    assert plugins["step_time/batch"] == "histograms"


def test_a_reward_is_measured_and_its_failures_are_data(caplog: pytest.LogCaptureFixture) -> None:
    problem = problem_from_dict(chains())
    calls = []

    def reward(placement: np.ndarray[Any, Any]) -> float:
        calls.append(placement.tobytes())
        if len(calls) % 3 == 0:
            raise RuntimeError("the worker died")
        if len(calls) % 5 == 0:
            return float("nan")
        return 2 * simulate(problem, placement).makespan_ns / 1e9  # type: ignore[operator]

    found = learn(problem, settings=SMALL, budget=Budget(steps=6), reward=reward)
    assert found.makespan_ns == 2 * simulate(problem, found.placement).makespan_ns  # type: ignore[operator]
    assert len(set(calls)) == len(calls)  # what was measured is not measured again
    assert any(progress.infeasible > 0 for progress in found.curve)
    failed = len(calls) // 3 + len(calls) // 5 - len(calls) // 15
    why = "RuntimeError: the worker died", "the reward gave nan s"
    (note,) = found.notes
    assert note.startswith(f"{failed} of {len(calls)} placements could not be measured, the last")
    assert note.endswith(why)
    (warning,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert warning == f"a placement could not be measured: {why[0]}"


def test_a_reward_is_measured_in_parallel_until_the_end() -> None:
    problem = problem_from_dict(chains(4, 12))
    running, most_running = 0, 0
    changed = threading.Condition()
    stop = threading.Event()
    progress: list[Progress] = []

    def reward(placement: np.ndarray[Any, Any]) -> float:
        nonlocal running, most_running
        with changed:
            running += 1
            most_running = max(most_running, running)
            changed.notify()
            changed.wait_for(lambda: most_running == 2, timeout=1.0)  # the first one is alone
            running -= 1
        return simulate(problem, placement).makespan_ns / 1e9  # type: ignore[operator]

    def tell(now: Progress) -> None:
        progress.append(now)
        if now.measured and now.measured >= 4:  # of a batch of more
            stop.set()

    found = learn(
        problem,
        settings=SMALL,
        budget=Budget(stop=stop),
        start=PLANNERS["random"].plan(problem).placement,  # hard to imitate: draws differ
        reward=reward,
        parallel=2,
        on_progress=tell,
    )
    assert most_running == 2
    assert found.steps <= 2  # equal draws are measured once
    assert found.makespan_ns == simulate(problem, found.placement).makespan_ns
    assert 4 <= (progress[-1].measured or 0) < SMALL["groupings"] * SMALL["placements"]
    assert progress[-1].failed == 0


def test_a_stop_keeps_the_best_placement_and_the_checkpoint(tmp_path: Path) -> None:
    problem = large_problem(300)
    stop = threading.Event()

    def stop_at_the_second_step(progress: Progress) -> None:
        if progress.steps == 2:
            stop.set()

    found = learn(
        problem,
        settings=SMALL,
        budget=Budget(stop=stop),
        checkpoint=tmp_path,
        on_progress=stop_at_the_second_step,
    )
    assert 2 <= found.steps < 50
    assert found.makespan_ns == simulate(problem, found.placement).makespan_ns
    assert (tmp_path / "policy.npz").exists()


def test_too_little_time_is_a_note_and_the_placement_of_one_rollout() -> None:
    problem = large_problem(300)
    start = time.monotonic()
    found = PLANNERS["hierarchical"].plan(problem, budget=Budget(seconds=0.2))
    assert time.monotonic() - start < 60
    assert found.placement.tolist() == rollout.plan_once(problem).tolist()
    assert "the budget ended before the first step" in found.notes[0]


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    problem = large_problem(50)
    with pytest.raises(OptionError, match="model: must be one of colocrl"):
        learn(problem, model="magic")
    with pytest.raises(PlanError, match=r"separated|may not run"):
        learn(problem, start=np.arange(problem.num_ops) % problem.num_devices)
    with pytest.raises(OptionError, match="resume: needs the directory"):
        learn(problem, resume=True)
    (tmp_path / "policy.npz").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=r"policy\.npz: is damaged"):
        learn(problem, settings=SMALL, checkpoint=tmp_path, resume=True)


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = large_problem(300)
    started = []
    popen = subprocess.Popen

    def remember(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr("hplacer_optimizer.support.child_process.subprocess.Popen", remember)

    def kill(progress: Progress) -> None:
        os.kill(started[0].pid, signal.SIGKILL)

    with pytest.raises(PlannerUnavailableError, match="ended with SIGKILL"):
        learn(problem, settings=SMALL, on_progress=kill)
