"""Planners that learn: what they draw, that they learn, and how a run ends and goes on."""

from __future__ import annotations

import json
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
from numpy.typing import NDArray

from hplacer_optimizer import load_problem
from hplacer_optimizer.errors import (
    CheckpointError,
    InfeasibleError,
    OptionError,
    PlannerUnavailableError,
)
from hplacer_optimizer.planners import PLANNERS, Budget, Progress, get_planner
from hplacer_optimizer.planners.colocation import groups_of_units
from hplacer_optimizer.planners.learning import LEARNED_PLANNERS, Settings, hierarchical, learn
from hplacer_optimizer.planners.learning.around import PLACEMENTS, learn_around
from hplacer_optimizer.planners.learning.groups import slowness
from hplacer_optimizer.planners.learning.hierarchical import HierarchicalPolicy
from hplacer_optimizer.planners.learning.scoring import Simulated, best_single_device
from hplacer_optimizer.planners.learning.settings import get_settings
from hplacer_optimizer.planners.learning.training import PolicyTraining
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.simulator import simulate, simulate_batch
from hplacer_optimizer.support.formats import format_ns
from testbed.documents import problem_from_dict
from testbed.large_problem import large_problem
from testbed.planted_problems import machine
from testbed.random_problems import problems

NETWORKS = {"placer_hidden": 8, "grouper_hidden": 8, "groups": 6}


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


def means_ns(curve: Any) -> list[float]:
    return [progress.mean_ns for progress in curve]


# ---- what is drawn and learned ----


@pytest.mark.parametrize("model", LEARNED_PLANNERS)
def test_every_model_finds_the_two_chains(model: str) -> None:
    problem = problem_from_dict(chains())
    found = learn(problem, model=model, budget=Budget(steps=150))
    assert found.makespan_ns == simulate(problem, found.placement).makespan_ns
    assert found.makespan_ns <= (16_000 if model.startswith("hierarchical_") else 12_600)


def test_the_policy_itself_gets_better_and_one_that_is_frozen_does_not() -> None:
    problem = large_problem(400)
    budget = Budget(steps=300)
    learned = learn(problem, budget=budget)
    means = means_ns(learned.curve)
    assert np.mean(means[-30:]) < 0.9 * np.mean(means[:30])
    settings = {"learning_rate": 0.0, "race": False}
    frozen = means_ns(learn(problem, budget=budget, settings=settings).curve)
    assert np.mean(frozen[-30:]) > 0.98 * np.mean(frozen[:30])
    assert np.mean(means[-30:]) < 0.9 * np.mean(frozen)
    assert isinstance(learned.policy, HierarchicalPolicy)
    fresh_ns, _, _ = simulate_batch(problem, learned.policy.sample(7), threads=1)
    assert fresh_ns.mean() < 0.9 * np.mean(frozen)


def test_every_placement_that_is_scored_is_a_draw_of_the_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[bytes] = []
    scored: list[bytes] = []
    draw, score = HierarchicalPolicy.draw, Simulated.score

    def noted_draw(policy: HierarchicalPolicy) -> Any:
        assert len(scored) == len(drawn)
        placements = draw(policy)
        drawn.extend(row.tobytes() for row in placements)
        return placements

    def noted_score(scorer: Simulated, placements: Any, is_over: Any) -> Any:
        scored.extend(row.tobytes() for row in placements)
        return score(scorer, placements, is_over)

    monkeypatch.setattr(HierarchicalPolicy, "draw", noted_draw)
    monkeypatch.setattr(Simulated, "score", noted_score)
    problem = large_problem(200)
    found = learn(problem, budget=Budget(steps=20))
    assert scored == drawn
    assert found.placement.tobytes() in drawn
    best_ns = min(simulate(problem, np.frombuffer(row, np.int32)).makespan_ns or 0 for row in drawn)
    assert found.makespan_ns == best_ns


@hypothesis_settings(max_examples=25, deadline=None)
@given(document=problems())
def test_placements_keep_all_constraints(document: dict[str, Any]) -> None:
    problem = problem_from_dict(document)
    model = LEARNED_PLANNERS[problem.num_ops % len(LEARNED_PLANNERS)]
    settings = {"items": 3, "schedule": 256, "batch": 8}
    counts = np.diff(problem.candidate_ptr)
    near = None
    if problem.num_ops % 2 and counts.all():  # the first candidate of each unit
        near = problem.candidates[problem.candidate_ptr[:-1]][problem.units]
    try:
        policy = HierarchicalPolicy(problem, model, Settings(**settings), 0, near)
    except InfeasibleError:
        assert not counts.all()
        return
    training = PolicyTraining(policy, Simulated(problem))
    if not problem.num_ops:
        return
    for _ in range(4):
        for placement in policy.draw():
            broken = simulate(problem, placement).infeasible_because
            assert not any("allowed" in reason or "separated" in reason for reason in broken)
            check_constraints(problem, placement)
        training.step()


def test_a_policy_may_begin_near_a_placement() -> None:
    problem = large_problem(2_000, 4)
    start = PLANNERS["heft"].plan(problem).placement
    few = Settings(off_one_device=5.0, moved_items=5.0, race=False)
    drawn = HierarchicalPolicy(problem, "hierarchical", few, 0, near=start).draw()
    agree = (drawn == start).mean(axis=1)
    assert agree.min() > 0.9
    assert agree.mean() < 1
    told: list[Progress] = []
    found = learn_around(problem, start, budget=Budget(), seed=1, on_progress=told.append)
    first_ns, found_ns = (simulate(problem, x).makespan_ns for x in (start, found))
    assert first_ns is not None
    assert found_ns is not None
    assert found_ns == told[-1].best_ns < first_ns
    assert told[-1].steps == told[-1].placements == PLACEMENTS // 32 * 32


def test_forbidden_devices_are_never_drawn() -> None:
    document = chains()
    for op in document["ops"][:10]:
        op["allowed_devices"] = [2]
    problem = problem_from_dict(document)
    policy = HierarchicalPolicy(problem, "hierarchical", Settings(), 0)
    drawn = np.concatenate([policy.draw() for _ in range(5)])
    assert set(drawn[:, :10].ravel()) == {2}
    assert len(set(drawn[:, 10:].ravel())) > 1


def test_placements_that_do_not_fit_are_learned_from() -> None:
    document = chains(4, 4, 10**6)
    for op in document["ops"]:
        op["persistent_bytes"] = 1000
    for device in (0, 2):  # nothing fits
        document["devices"][device]["memory_bytes"] = 0
    problem = problem_from_dict(document)
    found = learn(problem, budget=Budget(steps=200))
    shares = [progress.infeasible for progress in found.curve]
    assert np.mean(shares[-20:]) < 0.5 * np.mean(shares[:20])
    assert simulate(problem, found.placement).feasible


def test_missing_links_are_learned_from() -> None:
    document = chains(2, 20)
    document["links"] = [link for link in document["links"] if 0 in (link["src"], link["dst"])]
    for op in document["ops"]:
        op["allowed_devices"] = [1, 2]
    problem = problem_from_dict(document)
    found = learn(problem, budget=Budget(steps=200))
    assert simulate(problem, found.placement).feasible


@pytest.mark.parametrize("ops", [0, 1])
@pytest.mark.parametrize("devices", [1, 3])
def test_problems_with_one_choice_or_none(ops: int, devices: int) -> None:
    document = chains(1, 1)
    document |= {"ops": document["ops"][:ops], "devices": document["devices"][:devices]}
    document["links"] = [k for k in document["links"] if max(k["src"], k["dst"]) < devices]
    problem = problem_from_dict(document)
    for model in LEARNED_PLANNERS:
        found = learn(problem, model=model, budget=Budget(steps=20))
        assert len(found.placement) == ops
        assert found.makespan_ns == (0 if not ops else 1000 if devices > 1 else 20_000)


def test_finer_groups_keep_the_chances_of_every_unit() -> None:
    problem = large_problem(300)
    policy = HierarchicalPolicy(problem, "hierarchical", Settings(items=30), 0)
    training = PolicyTraining(policy, Simulated(problem))
    for _ in range(30):
        training.step()
    tables = policy._racers[0].tables
    finer = policy._finer(tables, 1)
    assert finer is not None
    assert len(finer.groups.may_run) > len(tables.groups.may_run)
    before = tables.chances()[tables.groups.item_of_unit]
    of_group = hierarchical._softmax(finer.save()["placer_logits"])
    own = finer.groups.candidates[finer.groups.item_of_unit, 0]
    assert np.abs(of_group[own] - before).max() < 2e-3  # logits have a lower bound


def test_wrong_settings_are_named() -> None:
    with pytest.raises(OptionError, match="preset: must be default, paper, paper_tables"):
        get_settings("best")
    with pytest.raises(OptionError, match="unknown setting 'groops'; valid are batch"):
        get_settings("paper", {"groops": 3})
    with pytest.raises(OptionError, match="batch: must be at least 1"):
        Settings(batch=0)
    with pytest.raises(OptionError, match="items: must be of type int"):
        Settings(items=2.5)  # type: ignore[arg-type]
    problem = problem_from_dict(chains())
    with pytest.raises(OptionError, match="model: must be one of colocrl"):
        learn(problem, model="magic")
    with pytest.raises(OptionError, match="'paper' is of the planner hierarchical"):
        get_planner("colocrl:paper").plan(problem)
    with pytest.raises(OptionError, match="resume: needs the directory"):
        learn(problem, resume=True)
    with pytest.raises(OptionError, match="parallel: must be an integer of at least 1, got 0"):
        learn(problem, reward=lambda placement: 1.0, parallel=0)
    with pytest.raises(OptionError, match="finer_schedule: must be at least 1"):
        Settings(finer_schedule=0)
    with pytest.raises(OptionError, match="neighbours: must be at most 254"):
        Settings(neighbours=255)


def test_what_was_measured_before_the_first_update_is_kept(tmp_path: Path) -> None:
    problem = problem_from_dict(chains())
    stop = threading.Event()
    begun: list[bytes] = []

    def reward(placement: NDArray[np.int32]) -> float:
        if begun:  # the one before is measured: they share a thread
            stop.set()
        begun.append(placement.tobytes())
        return (simulate(problem, placement).makespan_ns or 0) / 1e9

    settings = {"simulated": 100}
    first = learn(
        problem, settings=settings, budget=Budget(stop=stop), reward=reward, checkpoint=tmp_path
    )
    stop.clear()
    begun.clear()
    again = learn(
        problem,
        settings=settings,
        budget=Budget(stop=stop),
        reward=lambda placement: 5 * reward(placement),
        checkpoint=tmp_path,
        resume=True,
    )
    assert again.placement.tobytes() == first.placement.tobytes()


def test_a_placement_is_found_where_the_checkpoint_cannot_be_written(tmp_path: Path) -> None:
    problem = problem_from_dict(chains())
    with pytest.raises(OptionError, match="checkpoint: /dev/null/x: /dev/null is a file"):
        learn(problem, checkpoint="/dev/null/x")
    kept = tmp_path / "kept"

    def destroy(_: Progress) -> None:
        if not kept.exists():
            kept.touch()  # a file in place of the directory

    found = learn(problem, budget=Budget(steps=3), checkpoint=kept, on_progress=destroy)
    assert found.feasible
    (note,) = [note for note in found.notes if "not kept" in note]
    assert f"{kept / 'policy.npz'}: cannot be written" in note


def test_a_kind_without_devices_makes_no_device_fast() -> None:
    problem = load_problem("example")
    more = problem.replace(
        device_kinds=[*problem.device_kinds, "tpu"],
        cost_ns=np.pad(problem.cost_ns, ((0, 0), (0, 1)), constant_values=-1),
    )
    assert slowness(more).tolist() == slowness(problem).tolist()
    assert slowness(problem).max() > 1


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


# ---- how a run ends, and goes on ----


def test_no_number_of_threads_changes_a_placement() -> None:
    program = (
        "import sys; from testbed.large_problem import large_problem\n"
        "from hplacer_optimizer.planners.learning import learn\n"
        "from hplacer_optimizer.planners import Budget\n"
        "found = learn(large_problem(8000), budget=Budget(steps=40), seed=3)\n"
        "sys.stdout.write(found.placement.tobytes().hex() + str(found.curve[-1]))\n"
    )
    outputs = []
    for cores in ({min(os.sched_getaffinity(0))}, os.sched_getaffinity(0)):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            timeout=120,
            preexec_fn=lambda cores=cores: os.sched_setaffinity(0, cores),
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 8 * 8000


@pytest.mark.parametrize("model", LEARNED_PLANNERS)
def test_a_run_goes_on_bit_for_bit(model: str, tmp_path: Path) -> None:
    problem = large_problem(200)
    options: dict[str, Any] = {"model": model, "settings": {"schedule": 2000, "items": 50}}
    straight = learn(problem, budget=Budget(steps=140), **options)
    for steps in (7, 61, 75, 140):  # in the race, after it, in the race with finer groups
        resumed = learn(
            problem, budget=Budget(steps=steps), checkpoint=tmp_path, resume=True, **options
        )
        assert resumed.steps == steps
    assert resumed.placement.tobytes() == straight.placement.tobytes()
    assert resumed.curve[-1] == straight.curve[-1]


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    problem = large_problem(100)
    path = tmp_path / "policy.npz"

    def resume(problem: Any = problem, **options: Any) -> Any:
        budget = Budget(steps=1)
        return learn(problem, budget=budget, checkpoint=tmp_path, resume=True, **options)

    resume()
    with pytest.raises(CheckpointError, match=r"policy\.npz: is of another seed"):
        resume(seed=1)
    with pytest.raises(CheckpointError, match="of another graph or machine"):
        resume(problem.replace(device_start_ns=np.arange(problem.num_devices)))
    with pytest.raises(CheckpointError, match="of another settings"):
        resume(settings={"batch": 8})
    with pytest.raises(CheckpointError, match="of another planner"):
        resume(model="colocrl")
    facts = np.frombuffer(json.dumps({"identity": {}}).encode(), np.uint8)  # as it was before
    np.savez(path, facts=facts)
    with pytest.raises(CheckpointError, match="another version of this package; remove it"):
        resume()
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"x" * 100):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="is damaged"):
            resume()


def test_a_stop_or_an_interrupt_keeps_what_was_learned(tmp_path: Path) -> None:
    problem = large_problem(300)
    stop = threading.Event()

    def stop_at_the_second_step(progress: Progress) -> None:
        if progress.steps == 2:
            stop.set()

    budget = Budget(stop=stop)
    found = learn(problem, budget=budget, checkpoint=tmp_path, on_progress=stop_at_the_second_step)
    assert found.steps == 2
    assert found.makespan_ns == simulate(problem, found.placement).makespan_ns

    def interrupt(progress: Progress) -> None:
        if progress.steps == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(problem, checkpoint=tmp_path, resume=True, on_progress=interrupt)
    resumed = learn(problem, budget=Budget(steps=6), checkpoint=tmp_path, resume=True)
    assert resumed.steps == 6
    assert len(resumed.curve) == 1


def test_time_and_patience_end_a_run() -> None:
    problem = large_problem(300)
    begin_s = time.monotonic()
    learn(problem, budget=Budget(seconds=0.5))
    assert time.monotonic() - begin_s < 10
    short = problem_from_dict(chains(1, 3))
    found = learn(short, budget=Budget(patience=4, steps=500))
    improved = next(p.steps for p in found.curve if p.best_ns == found.makespan_ns)
    assert found.steps == improved + 4
    slow = large_problem(10_000)  # a step takes longer than the least of budgets
    assert learn(slow, budget=Budget(seconds=1e-9)).steps == 1  # there is an answer


def test_an_answer_that_is_worth_little_says_so() -> None:
    problem = problem_from_dict(chains(1, 12, 10**6))  # which a single device runs best
    settings = {"learning_rate": 0.0, "uniform": True, "race": False, "batch": 1}
    found = learn(
        problem, model="hierarchical_no_grouping", settings=settings, budget=Budget(steps=1)
    )
    assert found.makespan_ns is not None
    alone_ns = simulate(problem, best_single_device(problem)).makespan_ns
    assert alone_ns == 12_000 < found.makespan_ns
    assert found.notes == [
        f"hierarchical_no_grouping: of the 1 placements that the policy drew, the best takes "
        f"{format_ns(found.makespan_ns)} per step; a single device takes 12 us"
    ]


# ---- measured steps ----


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

    settings = {"simulated": 640}
    found = learn(problem, settings=settings, budget=Budget(steps=6), reward=reward)
    assert found.makespan_ns == 2 * simulate(problem, found.placement).makespan_ns  # type: ignore[operator]
    assert found.steps == 6
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
    told: list[Progress] = []

    def reward(placement: np.ndarray[Any, Any]) -> float:
        nonlocal running, most_running
        with changed:
            running += 1
            most_running = max(most_running, running)
            changed.notify()
            changed.wait_for(lambda: most_running == 2, timeout=1.0)  # the first one is alone
            running -= 1
        time.sleep(0.1)
        return simulate(problem, placement).makespan_ns / 1e9  # type: ignore[operator]

    def tell(now: Progress) -> None:
        told.append(now)
        if now.measured and now.measured >= 4:  # of a batch of more
            stop.set()

    budget = Budget(stop=stop)
    settings = {"simulated": 32, "learning_rate": 0.0}
    found = learn(
        problem, settings=settings, budget=budget, reward=reward, parallel=2, on_progress=tell
    )
    assert most_running == 2
    assert found.makespan_ns == simulate(problem, found.placement).makespan_ns
    assert 4 <= (told[-1].measured or 0) < 32
    assert told[-1].failed == 0
    stop.set()
    with pytest.raises(PlannerUnavailableError, match="budget ended before it measured"):
        learn(problem, settings=settings, budget=budget, reward=reward)


# ---- with TensorFlow, in a process of its own ----


@pytest.mark.slow
def test_networks_learn_go_on_and_are_logged(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    problem = problem_from_dict(chains(2, 6))
    options: dict[str, Any] = {"settings": NETWORKS | {"learning_rate": 0.02, "placer_hidden": 16}}
    planner = get_planner("hierarchical:paper")
    straight = planner.plan(problem, budget=Budget(steps=60), preset="default", **options)
    assert straight.placements == 240  # four a step, as the paper has it
    means = means_ns(straight.curve)
    assert np.mean(means[-15:]) < 0.9 * np.mean(means[:15])
    first = {"checkpoint": tmp_path / "learned", "logdir": tmp_path / "log", **options}
    planner.plan(problem, budget=Budget(steps=4), **first)
    resumed = planner.plan(problem, budget=Budget(steps=60), resume=True, **first)
    assert resumed.placement.tobytes() == straight.placement.tobytes()
    assert resumed.curve[-1] == straight.curve[-1]
    plugins = {}
    for events in (tmp_path / "log").iterdir():
        for record in tf.data.TFRecordDataset(str(events)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                plugins[value.tag] = value.metadata.plugin_data.plugin_name
    assert plugins["step_time/best"] == "scalars"
    assert plugins["policy/placer_entropy"] == "scalars"
    assert plugins["step_time/batch"] == "histograms"


@pytest.mark.slow
def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorflow")
    started = []
    popen = subprocess.Popen

    def remember(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr("hplacer_optimizer.support.child_process.subprocess.Popen", remember)

    def kill(progress: Progress) -> None:
        os.kill(started[0].pid, signal.SIGKILL)

    problem = problem_from_dict(chains())
    with pytest.raises(PlannerUnavailableError, match="ended with SIGKILL"):
        learn(
            problem,
            preset="paper_tables",
            settings=NETWORKS,
            budget=Budget(steps=9),
            on_progress=kill,
        )


@pytest.mark.slow
def test_networks_that_do_not_draw_in_time_are_an_error() -> None:
    begin_s = time.monotonic()
    with pytest.raises(PlannerUnavailableError, match="ended before TensorFlow had started"):
        PLANNERS["hierarchical"].plan(
            large_problem(300), preset="paper", budget=Budget(seconds=0.2)
        )
    assert time.monotonic() - begin_s < 60
