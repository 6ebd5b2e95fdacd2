"""Policy files: what is shipped, what is written, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hplacer_optimizer import _engine
from hplacer_optimizer.bench.generated import generate
from hplacer_optimizer.errors import PolicyError
from hplacer_optimizer.planners import Budget, auto, get_planner, policies, rollout
from hplacer_optimizer.planners.policies import BY_HAND, Policy, load_portfolio, save_portfolio

WEIGHTS = "format: hplacer-policy/1\npolicies: [{weights: {wait: 1}}]\n"
CHAINS = "chains: [{policy: 0, items: units}]\n"


def test_the_trained_policies_are_small_and_say_how_they_were_made() -> None:
    portfolio = policies.trained()
    assert policies.TRAINED_FILE.stat().st_size < 4 * 2**20
    assert portfolio.training["command"].startswith("hplacer policy train ")
    assert {policy for policy, _ in portfolio.chains} == set(range(len(portfolio.policies)))


def test_a_portfolio_comes_back_from_its_file(tmp_path: Path) -> None:
    gained = Policy(weights={"wait": 1.5}, gains={"wait": {"traffic": -0.25}}, is_lazy=True)
    portfolio = replace(BY_HAND, policies=(*BY_HAND.policies, gained), training={"seed": "1: 2"})
    save_portfolio(portfolio, tmp_path / "policies.yaml")
    again = load_portfolio(tmp_path / "policies.yaml")
    assert again == portfolio
    assert np.array_equal(again.rows(), portfolio.rows())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a mapping"),
        ("\x00", "is not YAML"),
        (WEIGHTS, "the key 'chains' is missing"),
        (WEIGHTS.replace("/1", "/9") + CHAINS, "format: 'hplacer-policy/9' is not supported"),
        (WEIGHTS.replace("wait: 1", "wiat: 1") + CHAINS, r"policies\[0\].weights.wiat: unknown"),
        (WEIGHTS.replace("wait: 1", "wait: nan") + CHAINS, "weights.wait: expected a number"),
        (WEIGHTS.replace("wait: 1", "wait: 1e99") + CHAINS, "weights.wait: expected a number"),
        (
            WEIGHTS.replace("}}]", "}, gains: {wait: {width: 20, traffic: 20}}}]") + CHAINS,
            "gains.wait: gains of more than 30 in all",
        ),
        (WEIGHTS.replace("}}]", "}, lazy: maybe}]") + CHAINS, "lazy: expected true or false"),
        (WEIGHTS + CHAINS.replace("0", "1"), r"chains\[0\].policy: 1 is outside 0 to 0"),
        (WEIGHTS + CHAINS.replace("units", "cells"), r"chains\[0\].items: unknown kind 'cells'"),
        (WEIGHTS + "chains: []\n", "chains: has 0 entries"),
    ],
)
def test_a_malformed_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(text)
    with pytest.raises(PolicyError, match=message) as caught:
        load_portfolio(path)
    assert str(path) in str(caught.value)
    with pytest.raises(PolicyError):
        get_planner(f"learned:{path}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"missing.yaml' cannot be read: No such file"):
        load_portfolio(tmp_path / "missing.yaml")


def test_without_the_trained_policies_only_what_needs_them_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "damaged.yaml").write_text("policies")
    monkeypatch.setattr(policies, "TRAINED_FILE", tmp_path / "damaged.yaml")
    policies.trained.cache_clear()
    problem = generate("towers", 0)
    try:
        with pytest.raises(PolicyError, match=r"damaged.yaml"):
            get_planner("learned").plan(problem)
        assert auto.plan(problem, budget=Budget(steps=80)).placement.shape == (problem.num_ops,)
    finally:
        policies.trained.cache_clear()


def test_a_policy_file_makes_a_planner(tmp_path: Path) -> None:
    problem, budget = generate("layered", 4), Budget(steps=80)
    save_portfolio(BY_HAND, tmp_path / "hand.yaml")
    found = get_planner(f"rollout:{tmp_path / 'hand.yaml'}").plan(problem, budget=budget)
    by_hand = rollout.search(problem, budget=budget, portfolio=BY_HAND)
    assert np.array_equal(found.placement, by_hand.placement)


def test_auto_rolls_out_by_the_policies_that_it_is_given() -> None:
    problem, budget = generate("layered", 4), Budget(steps=80)
    found = auto.plan(problem, budget=budget)
    by_hand = auto.plan(problem, budget=budget, portfolio=BY_HAND)
    others = auto.plan(problem, budget=budget, portfolio=policies.trained())
    assert np.array_equal(found.placement, by_hand.placement)
    assert [p.best_ns for p in others.curve] != [p.best_ns for p in found.curve]


def test_learned_builds_each_chain_once() -> None:
    problem = generate("layered", 4)
    found = get_planner("learned").plan(problem)
    chains = len(policies.trained().chains)
    assert found.steps <= problem.num_devices + 3 * chains + 4
    assert np.array_equal(found.placement, get_planner("learned").plan(problem, seed=5).placement)
    assert set(_engine.ROLLOUT_ITEMS) >= {items for _, items in policies.trained().chains}
