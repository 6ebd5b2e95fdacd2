"""The trial inside of a running training, with steps and times that are made up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.measuring.running_trial import (
    CLEAR,
    MOST_S,
    SHARE,
    Observations,
    RunningTrial,
    TrialBudget,
    TrialRules,
    trimmed_interval,
)

StepS = Callable[[bool, float], float]  # (with the plan, now) -> seconds


@dataclass
class Run:
    """A training whose every step is one call; `calls` has the side and the length of each."""

    trial: RunningTrial
    budget: TrialBudget
    step_s: StepS
    pause_s: float = 0.0  # of the second instantiation
    gap_s: Callable[[int], float] = lambda number: 0.0
    now_s: float = 0.0
    calls: list[tuple[bool, float]] = field(default_factory=list)
    most_over_s: float = 0.0  # by which the budget was exceeded before its latest step

    def train(self, steps: int) -> Run:
        for _ in range(steps):
            call = self.trial.next_call(self.now_s)
            if call.with_plan:
                over_s = self.budget.spent_s - self.budget.allowed_s(self.now_s)
                self.most_over_s = max(self.most_over_s, over_s)
            took_s = self.step_s(call.with_plan, self.now_s)
            if call.with_plan and not any(side for side, _ in self.calls):
                took_s += self.pause_s
            gap_s = self.gap_s(len(self.calls))
            self.calls.append((call.with_plan, took_s))
            self.now_s += took_s + gap_s
            self.trial.called(call, took_s, gap_s)
        return self


def noisy(baseline_s: float, plan_s: float, *, noise: float = 0.0, seed: int = 0) -> StepS:
    random = np.random.default_rng(seed)

    def step_s(with_plan: bool, now_s: float) -> float:
        return (plan_s if with_plan else baseline_s) * math.exp(noise * random.standard_normal())

    return step_s


def run(
    step_s: StepS,
    steps: int,
    *,
    pause_s: float = 0.0,
    is_asynchronous: bool = False,
    known: Observations | None = None,
    rules: TrialRules | None = None,
    began_s: float = -1e6,
    gap_s: Callable[[int], float] = lambda number: 0.0,
) -> Run:
    """By default the run has lasted so long that a share of it says nothing."""
    budget = TrialBudget(began_s)
    trial = RunningTrial(
        budget, pause_s=pause_s, is_asynchronous=is_asynchronous, known=known, rules=rules
    )
    return Run(trial, budget, step_s, pause_s, gap_s).train(steps)


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_the_faster_side_stays(is_asynchronous: bool) -> None:
    found = run(noisy(0.1, 0.08, noise=0.02), 200, is_asynchronous=is_asynchronous).trial.result
    assert found is not None
    assert found.plan_stays
    assert found.low < 1.25 < found.high
    assert found.observed.plan_s == pytest.approx(0.08, rel=0.05)
    assert found.observed.baseline_s == pytest.approx(0.1, rel=0.05)
    assert found.observed.steps < 100
    slower = run(noisy(0.08, 0.1, noise=0.02), 200, is_asynchronous=is_asynchronous).trial.result
    assert slower is not None
    assert not slower.plan_stays
    assert slower.high < 1 - CLEAR


def test_it_stays_with_tensorflow_where_both_are_equal() -> None:
    found = run(noisy(0.1, 0.1), 1000).trial.result
    assert found is not None
    assert not found.plan_stays
    assert found.low == found.speedup == found.high == 1.0


def test_blocks_of_both_sides_follow_each_other_in_turns() -> None:
    calls = [side for side, _ in run(noisy(1.0, 0.99), 8 + 1 + 2 * 14).calls]
    assert calls[:8] == [False] * 5 + [True] * 3
    # Three steps a block, after one that is not counted where the side has changed.
    observation = [False] * 3 + [True] * 7 + [False] * 4
    assert calls[8:] == [False, *observation, *observation]


def test_a_short_step_has_long_blocks_and_a_trial_of_a_second_or_two() -> None:
    trained = run(noisy(1e-3, 0.8e-3, noise=0.1), 5_000)
    found = trained.trial.result
    assert found is not None
    assert found.plan_stays
    assert found.observed.steps == pytest.approx(3 * 4 * 32, rel=0.5)


@pytest.mark.parametrize("drops_early", [True, False])
def test_a_plan_that_takes_more_than_twice_as_long_is_dropped_at_once(drops_early: bool) -> None:
    trained = run(noisy(0.1, 0.25), 300, rules=TrialRules(drops_early=drops_early))
    found = trained.trial.result
    assert found is not None
    assert not found.plan_stays
    assert found.is_dropped == drops_early
    assert found.speedup == pytest.approx(0.4)
    with_plan = sum(side for side, _ in trained.calls)
    assert with_plan == (3 + 1 + 3 if drops_early else 3 + 3 * 7)


def test_two_steps_that_are_disturbed_do_not_drop_a_plan() -> None:
    """As on a busy machine: the fifth and the sixth call with the plan take three times as long."""
    with_plan = 0

    def step_s(side: bool, now_s: float) -> float:
        nonlocal with_plan
        with_plan += side
        return 0.27 if side and with_plan in (5, 6) else 0.09 if side else 0.1

    found = run(step_s, 300).trial.result
    assert found is not None
    assert found.plan_stays


def test_a_fixed_number_of_steps_ends_it_in_an_ablation() -> None:
    found = run(noisy(0.1, 0.05), 400, rules=TrialRules(fixed_steps=100)).trial.result
    assert found is not None
    assert found.observed.steps == 17 * 12


def test_what_was_measured_in_an_earlier_run_counts() -> None:
    first = run(noisy(0.1, 0.08, noise=0.01), 5 + 3 + 1 + 2 * 14).trial
    known = first.observations()
    assert first.result is None
    assert len(known.logarithms) == 2
    assert known.plan_s == pytest.approx(0.08, rel=0.05)
    second = run(noisy(0.1, 0.08, noise=0.01, seed=1), 5 + 3 + 1 + 14, known=known).trial
    assert second.result is not None
    assert second.result.observed.logarithms[:2] == known.logarithms
    assert second.result.observed.steps == 36


def test_it_waits_until_the_run_has_lasted_long_enough_for_the_second_instantiation() -> None:
    trained = run(noisy(0.1, 0.09), 2_000, pause_s=1.0, began_s=0.0)
    first = next(i for i, (side, _) in enumerate(trained.calls) if side)
    assert sum(took_s for _, took_s in trained.calls[:first]) == pytest.approx(50.0, rel=0.01)
    assert trained.trial.result is not None
    assert trained.trial.result.plan_stays


def test_rules_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TrialRules.from_environment() == TrialRules()
    monkeypatch.setenv("HPLACER_TRIAL_RULES", '{"share": 0.5, "drops_early": false}')
    assert TrialRules.from_environment() == TrialRules(share=0.5, drops_early=False)
    for wrong in ("{", "[1]", '{"sahre": 1}'):
        monkeypatch.setenv("HPLACER_TRIAL_RULES", wrong)
        with pytest.raises(OptionError, match="HPLACER_TRIAL_RULES: must be a JSON object of sha"):
            TrialRules.from_environment()


def test_nothing_begins_that_costs_more_than_all_trials_may() -> None:
    trained = run(noisy(0.1, 0.01), 100, pause_s=MOST_S + 1)
    assert trained.trial.result is not None
    assert not trained.trial.result.plan_stays
    assert not any(side for side, _ in trained.calls)


def test_a_pause_between_two_steps_is_no_part_of_a_step() -> None:
    trained = run(noisy(0.1, 0.09), 200, gap_s=lambda number: 30.0 if number % 7 == 0 else 0.01)
    found = trained.trial.result
    assert found is not None
    assert found.observed.plan_s == pytest.approx(0.1)
    assert found.observed.baseline_s == pytest.approx(0.11)
    assert found.speedup == pytest.approx(1.1, rel=0.01)
    assert trained.budget.spent_s == 0.0


def test_calls_of_another_block_are_not_timed() -> None:
    """As of a thread whose call began before the block did."""
    budget = TrialBudget(-1e6)
    trial = RunningTrial(budget, pause_s=0.0)
    late = [trial.next_call(0.0) for _ in range(2)]
    Run(trial, budget, noisy(0.1, 0.09)).train(10)
    for call in late:
        trial.called(call, 50.0, 0.0)
    found = Run(trial, budget, noisy(0.1, 0.09)).train(100).trial.result
    assert found is not None
    assert found.speedup == pytest.approx(0.1 / 0.09)


speeds = st.floats(0.4, 2.5)


@settings(max_examples=40, deadline=None)
@given(speed=speeds, noise=st.floats(0, 0.05), step_s=st.floats(1e-3, 10), seed=st.integers(0, 99))
def test_no_plan_stays_that_is_slower_and_none_goes_that_is_much_faster(
    speed: float, noise: float, step_s: float, seed: int
) -> None:
    found = run(noisy(step_s, step_s / speed, noise=noise, seed=seed), 8_000).trial.result
    assert found is not None
    if speed < 0.95:
        assert not found.plan_stays
    if speed > 1.1:
        assert found.plan_stays


@settings(max_examples=40, deadline=None)
@given(
    speed=st.floats(0.1, 1.5),
    noise=st.floats(0, 0.3),
    step_s=st.floats(1e-3, 5),
    pause_s=st.floats(0, 20),
    drops_early=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_budget_is_exceeded_by_one_step_at_most(
    speed: float, noise: float, step_s: float, pause_s: float, drops_early: bool, seed: int
) -> None:
    trained = run(
        noisy(step_s, step_s / speed, noise=noise, seed=seed),
        4_000,
        pause_s=pause_s,
        began_s=0.0,
        rules=TrialRules(drops_early=drops_early),
    )
    longest_s = max(took_s for _, took_s in trained.calls[1:])
    assert trained.most_over_s <= longest_s
    assert trained.budget.spent_s <= min(MOST_S, SHARE * trained.now_s) + longest_s
    reference_s = trained.trial.reference_s
    assert reference_s is not None
    lost_s = sum(max(0.0, took_s - reference_s) for side, took_s in trained.calls if side)
    assert trained.budget.spent_s >= lost_s - longest_s  # the last call's end is not told


@settings(max_examples=30, deadline=None)
@given(drift=st.floats(-0.3, 0.3), share=st.floats(0, 0.02), seed=st.integers(0, 99))
def test_drift_and_disturbances_change_nothing(drift: float, share: float, seed: int) -> None:
    """The machine becomes slower or faster, and some steps take ten times as long."""
    random = np.random.default_rng(seed)

    def step_s(with_plan: bool, now_s: float) -> float:
        steady_s = (0.09 if with_plan else 0.1) * math.exp(drift * min(now_s / 60, 3.0))
        return steady_s * (10 if random.random() < share else 1)

    found = run(step_s, 2_000).trial.result
    assert found is not None
    assert found.speedup == pytest.approx(10 / 9, rel=0.08)


def test_the_trimmed_interval_is_that_of_tukey_and_mclaughlin() -> None:
    """Of 1, ..., 10 without two at each end; the winsorised deviation is that of 3, 3, 3, 4, ..."""
    mean, low, high = trimmed_interval([float(value) for value in range(1, 11)])
    drawn_in = [3, 3, 3, 4, 5, 6, 7, 8, 8, 8]
    half = 2.570582 * float(np.std(drawn_in, ddof=1)) / (0.6 * math.sqrt(10))
    assert mean == pytest.approx(5.5)
    assert (low, high) == (pytest.approx(5.5 - half), pytest.approx(5.5 + half))
    assert trimmed_interval([0.0] * 9 + [1e6])[0] == 0.0
