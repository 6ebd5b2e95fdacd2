"""Training on small problems: evolution, choice of chains, comparison, and the command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hplacer_optimizer.bench.generated import generate
from hplacer_optimizer.cli import main
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.planners.policies import (
    BY_HAND,
    EARLIEST_FINISH,
    Policy,
    Portfolio,
    load_portfolio,
)
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.problem.files import save_problem
from hplacer_optimizer.training import evaluation, evolution, problems, selection
from hplacer_optimizer.training.checkpoint import Checkpoint
from tests.planned import plan_of
from tests.processes import wait_for

SMALL = (("layered", 0), ("towers", 0), ("branching", 2))


@pytest.fixture(scope="module")
def some() -> list[problems.TrainingProblem]:
    return problems.usable((f"{family}-{seed}", generate(family, seed)) for family, seed in SMALL)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    arguments = []
    for family, seed in SMALL:
        save_problem(generate(family, seed), tmp_path / f"{family}.hplacer.json")
        arguments += ["--problem", str(tmp_path / f"{family}.hplacer.json")]
    return arguments


def mean(policy: Policy, some: list[problems.TrainingProblem]) -> float:
    chain = Portfolio(policies=(policy,), chains=((0, "units"),))
    return float(np.mean([evolution.relative_steps(problem, chain) for problem in some]))


def test_evolution_improves_a_poor_policy(some: list[problems.TrainingProblem]) -> None:
    start = EARLIEST_FINISH.policies[0]
    stage = evolution.Stage(start=start, items=("units",), seconds=60, seed=0)
    found = evolution.evolve(
        stage,
        some,
        np.full(len(some), np.inf),
        on_generation=lambda generation, loss: generation < 12,
        draws=2,
    )
    assert found.generations == 12
    assert len(found.policies) == 3
    assert mean(found.policies[0], some) < mean(start, some) - 0.02


def test_parameters_are_a_policy_and_back() -> None:
    policy = evolution.from_parameters(evolution.to_parameters(BY_HAND.policies[0]), is_lazy=False)
    for name, weight in BY_HAND.policies[0].weights.items():
        assert policy.weights[name] == pytest.approx(max(weight, 0.02), rel=1e-4)


def test_the_first_chain_is_the_best_alone_and_others_add_to_it(
    some: list[problems.TrainingProblem],
) -> None:
    chosen = selection.select(BY_HAND.policies, some, chains=5)
    every = Portfolio.of_all(*BY_HAND.policies)
    steps = np.array([evolution.relative_steps(problem, every) for problem in some])
    mine = np.array([evolution.relative_steps(problem, chosen) for problem in some])
    assert mine[:, 0].mean() == pytest.approx(steps.mean(axis=0).min())
    assert mine.min(axis=1).mean() < mine[:, 0].mean()
    assert mine.min(axis=1).mean() >= steps.min(axis=1).mean()


def test_portfolios_are_compared_at_equal_effort(some: list[problems.TrainingProblem]) -> None:
    portfolios = evaluation.rivals(some)
    assert set(portfolios) == {"by hand", "earliest finish", "random weights"}
    found = evaluation.compare(generate("towers", 2), portfolios)
    for steps in found.values():
        assert set(steps) == set(evaluation.EFFORTS)
        assert steps["best of 16"] <= steps["one rollout"]
    assert evaluation.mean_ratio([1, 4, np.inf], [1, 1, 1]) == pytest.approx(2)


def test_an_unknown_family_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"unknown name 'cells'; there are convolutional"):
        problems.training_set(tmp_path, leave_out=["cells"])


def test_a_training_that_was_stopped_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "policies.yaml"
    kept = evolution.Found(policies=BY_HAND.policies[:2], generations=7, seconds=2.5)
    Checkpoint(output, "train a").add(kept, 0)
    assert Checkpoint(output, "train a").read() == [kept]
    assert Checkpoint(output, "train b").read() == []
    (tmp_path / "policies.yaml.stage0").write_text("damaged")
    assert Checkpoint(output, "train a").read() == []
    Checkpoint(output, "train a").remove()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_stage_goes_on_from_its_mean(some: list[problems.TrainingProblem]) -> None:
    stages: dict[int, evolution.Found] = {}

    def run(goes_on: bool, done: list[evolution.Found]) -> list[int]:
        told: list[int] = []

        def on_progress(progress: selection.Progress) -> bool:
            told.append(progress.stage)
            return goes_on

        def on_stage(found: evolution.Found, stage: int) -> None:
            stages[stage] = found

        selection.train(some, seconds=4.0, done=done, on_progress=on_progress, on_stage=on_stage)
        return told

    assert run(False, []) == [0]
    interrupted = stages[0]
    assert interrupted.generations == 1
    told = run(True, [interrupted])
    assert set(told) == {0, 1, 2, 3}
    assert stages[0].generations == 1 + told.count(0)
    assert stages[0].seconds > interrupted.seconds + 1
    # A stage that had all of its time is not run again.
    assert 0 not in run(True, [stages[0]])


def test_the_command_trains_shows_and_evaluates(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "policies.yaml"
    assert main(["policy", "train", "-o", str(output), "--budget", "2s", *files]) == 0
    portfolio = load_portfolio(output)
    assert len(portfolio.chains) == selection.CHAINS
    assert portfolio.training["problems"].startswith("3, on ")
    assert [path.name for path in tmp_path.glob("policies*")] == ["policies.yaml"]
    capsys.readouterr()
    assert main(["policy", "show", str(output), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["chains"]) == selection.CHAINS
    assert main(["policy", "show"]) == 0
    assert "command: hplacer policy train" in capsys.readouterr().out
    assert main(["policy", "evaluate", str(output), "--json", *files[:2]]) == 0
    found = json.loads(capsys.readouterr().out)["step_time_ns"]
    assert list(found) == ["layered.hplacer.json"]
    assert main(["plan", files[1], "--planner", f"rollout:{output}", "--json"]) == 0


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    """Two plans with problems in two layers, one without a problem, and a damaged file."""
    near, far = PlanStore(tmp_path / "near"), PlanStore(tmp_path / "far")
    for i, (family, seed) in enumerate(SMALL[:2]):
        problem = generate(family, seed)
        fits = get_planner("rollout").plan(problem, budget=Budget(steps=100)).placement
        plan = plan_of(problem, fits, fingerprint=f"{i}abc" * 8, label=f"train {family}")
        assert far.put(plan)
        assert near.put(plan)
    assert near.put(plan_of(problem, fits, fingerprint="2abc" * 8, packed_problem=None))
    (tmp_path / "near" / f"{'3abc' * 8}.hplan").write_bytes(b"nonsense")
    return tmp_path


def test_the_problems_of_a_store_are_those_of_its_plans(plans: Path) -> None:
    left_out: list[str] = []
    store = PlanStore(f"{plans / 'near'};{plans / 'far'}")
    found = dict(problems.stored(store, on_left_out=left_out.append))
    assert list(found) == [
        f"train {family} {i}abc{i}abc" for i, (family, _) in enumerate(SMALL[:2])
    ]
    for (family, seed), problem in zip(SMALL, found.values(), strict=False):
        assert problem.op_names == generate(family, seed).op_names
    assert len(left_out) == 2
    assert "2abc" in left_out[0]
    assert "holds no problem" in left_out[0]
    assert "3abc" in left_out[1]


def test_the_command_trains_on_a_store(
    plans: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    output = tmp_path / "policies.yaml"
    store = ["--store", str(plans / "near")]
    assert main(["policy", "train", "-o", str(output), "--budget", "1s", *store]) == 0
    training = load_portfolio(output).training
    assert training["problems"].startswith("2, on ")
    assert "--store=" in training["command"]
    assert "left out: " in caplog.text
    assert main(["policy", "train", "-o", str(output), "--store", str(tmp_path / "none")]) == 1
    assert "hplacer pretrain --cache" in capsys.readouterr().err


TRAINS = """
import pathlib, sys
from hplacer_optimizer.cli import main
from hplacer_optimizer.training import selection

evolve = selection.evolve

def evolve_and_tell(*arguments, **keywords):
    pathlib.Path(sys.argv[1]).touch()
    return evolve(*arguments, **keywords)

selection.evolve = evolve_and_tell
sys.exit(main(sys.argv[2:]))
"""


def test_an_interrupted_training_keeps_what_it_found(files: list[str], tmp_path: Path) -> None:
    output, begun = tmp_path / "policies.yaml", tmp_path / "begun"
    command = ["policy", "train", "--budget", "1h", "-o", str(output), *files]
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINS, str(begun), *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        wait_for(lambda: begun.exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130
    assert load_portfolio(output).chains
    assert (tmp_path / "policies.yaml.stage0").exists()
