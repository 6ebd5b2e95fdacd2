"""`learn`: a policy trained by policy gradient, with its budget, its checkpoint and its answer."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer import _engine
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import CheckpointError, OptionError, PlannerUnavailableError
from hplacer_optimizer.planners.budget import Budget, Progress, ProgressCallback
from hplacer_optimizer.planners.learning.hierarchical import LEARNED_PLANNERS, HierarchicalPolicy
from hplacer_optimizer.planners.learning.measurements import Measurements
from hplacer_optimizer.planners.learning.scoring import Reward, Simulated, best_single_device
from hplacer_optimizer.planners.learning.settings import (
    NetworkSettings,
    Settings,
    get_settings,
)
from hplacer_optimizer.planners.learning.tensorflow_process import EventWriter, NetworkPolicy
from hplacer_optimizer.planners.learning.training import (
    BudgetEndedError,
    Keeper,
    LearningPolicy,
    PolicyTraining,
    identity,
)
from hplacer_optimizer.planners.result import PlannerResult, Watch
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.support.formats import format_ns
from hplacer_optimizer.support.keywords import checks_keywords
from hplacer_optimizer.support.new_file import check_new_directory

DEFAULT_BUDGET = Budget(seconds=60)

# Of a budget in seconds, before steps are measured, the simulator has so much.
_SIMULATED_SHARE = 0.25


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned(PlannerResult):
    """What a learned planner found.

    Its `steps` are updates of the policy, those before a resumed checkpoint included; its `curve`
    is of this run. Its `placement`, `notes` and `placements` are those of any planner.

    Attributes:
        makespan_ns: by the simulator, under the worst of some orders of launches, or as measured;
            None if no placement was feasible.
        policy: what drew it; `policy.draw()` draws more of the same. An answer that is pickled has
            none, such as that of one's own planner, which plans in a process of its own.

    Example, after that of `learn`:
        >>> learned.steps, len(learned.curve)
        (5, 5)
        >>> learned.makespan_ns == hp.simulate(problem, learned.placement).makespan_ns
        True
    """

    makespan_ns: int | None
    policy: LearningPolicy | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "policy": None}

    @property
    def feasible(self) -> bool:
        """Whether it fits."""
        return self.makespan_ns is not None


@checks_keywords
def learn(
    problem: Problem,
    *,
    model: str = "hierarchical",
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    seed: int = 0,
    reward: Reward | None = None,
    parallel: int = 1,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    logdir: str | Path | None = None,
    on_progress: ProgressCallback | None = None,
) -> Learned:
    """Trains a policy by policy gradient until the budget ends, and returns its best draw.

    The same seed and steps give the same placements, for any number of threads; a run of seconds is
    repeated by the steps that it did (`Learned.steps`).

    Args:
        problem: the graph and the machine.
        model: one of LEARNED_PLANNERS.
        preset: of hyperparameters: "default", or with networks "paper" or "paper_tables"; these
            are for the model hierarchical.
        settings: hyperparameters by name, in place of the preset's.
        budget: None: 60 seconds. Steps count updates, those before a resumed checkpoint included.
        seed: of every random choice.
        reward: measures a placement int32[n] in seconds per step, called in threads of this
            process; an exception or no finite number is a failed measurement, scored as an
            infeasible placement. The first one is logged, the last one is among the notes. A
            policy of tables first learns by the simulator (`Settings.simulated`), for a quarter of
            the seconds of the budget at most, which are no steps. None: the simulator.
        parallel: how many placements the reward measures at once.
        checkpoint: directory that keeps the policy, its optimizer, random state and best
            placement, written whole or not at all every minute and at the end.
        resume: goes on from the checkpoint, bit for bit; from nothing if there is none.
        logdir: directory of TensorBoard's event files.
        on_progress: called after each step, and after each measurement.

    Raises:
        OptionError: an unknown model, preset or setting, a wrong value, or a directory that cannot
            be written.
        InfeasibleError: an op has no device at all.
        CheckpointError: the checkpoint is damaged, or of another version, graph, setting or seed.
        PlannerUnavailableError: the budget ended before the first draws; or TensorFlow, which only
            networks and `logdir` need, is not installed, or its process ended.

    Example:
        >>> import hplacer_optimizer as hp
        >>> problem = hp.load_problem("example")
        >>> learned = hp.learn(problem, budget=hp.Budget(steps=5))
        >>> learned.placement.shape, learned.feasible
        ((9,), True)
    """
    begin_s = time.monotonic()
    budget = (budget or Budget()).or_default(DEFAULT_BUDGET)
    if model not in LEARNED_PLANNERS:
        raise OptionError(f"model: must be one of {', '.join(LEARNED_PLANNERS)}, got {model!r}")
    if type(parallel) is not int or parallel < 1:
        raise OptionError(f"parallel: must be an integer of at least 1, got {parallel!r}")
    for name, directory in (("checkpoint", checkpoint), ("logdir", logdir)):
        if directory is not None:
            try:
                check_new_directory(directory)
            except OSError as error:
                raise OptionError(f"{name}: {directory}: {error.strerror}") from None
    if resume and checkpoint is None:
        raise OptionError("resume: needs the directory of a checkpoint")
    chosen = get_settings(preset, settings)
    if isinstance(chosen, NetworkSettings) and model != "hierarchical":
        raise OptionError(f"preset: '{preset}' is of the planner hierarchical, not of {model}")
    _engine.check_candidates(problem)
    if not problem.num_ops:
        return Learned(placement=np.zeros(0, np.int32), makespan_ns=0)
    watch = Watch(on_progress)
    with contextlib.ExitStack() as opened:
        policy: LearningPolicy
        if isinstance(chosen, Settings):
            policy = HierarchicalPolicy(problem, model, chosen, seed)
        else:
            is_over = _is_over(budget, begin_s)
            try:
                policy = opened.enter_context(NetworkPolicy(problem, chosen, seed, is_over))
            except BudgetEndedError:
                raise PlannerUnavailableError(
                    f"{model}: the budget ended before TensorFlow had started; give it more"
                ) from None
        training = PolicyTraining(policy, Simulated(problem))
        keeper = None
        if checkpoint is not None:
            facts = identity(problem, model, chosen, seed)
            keeper = Keeper(training, Path(checkpoint), facts | {"reward": reward is not None})
        is_restored = resume and keeper is not None and keeper.restore()
        events = opened.enter_context(EventWriter(logdir)) if logdir is not None else None
        measurements = None
        if reward is not None:
            if not is_restored:
                _learn_by_simulator(training, budget)
            measurements = opened.enter_context(
                Measurements(
                    reward, parallel, lambda: watch.pass_on(_counted(watch.last, measurements))
                )
            )
            training.scorer = measurements

        lost: list[str] = []  # what could not be written; the search goes on

        def on_step(progress: Progress) -> None:
            nonlocal events
            watch(_counted(progress, measurements))
            if events:
                try:
                    events.write(progress, training.drawn_seconds, policy.facts)
                except PlannerUnavailableError as error:
                    events = None
                    lost.append(f"{model}: {logdir} has not all of the steps: {error}")
            if keeper:
                with contextlib.suppress(CheckpointError):  # the last one tells
                    keeper.save_if_due()

        if resume and training.steps:
            watch.pass_on(training.progress)
        try:
            training.run(budget.left(begin_s), on_step)
        finally:  # also if it is interrupted: what was learned is kept
            if keeper:
                try:
                    keeper.save()
                except CheckpointError as error:
                    lost.append(f"{model}: what was learned is not kept: {error}")
    found = _result(problem, model, training, measurements, watch)
    return replace(found, notes=[*found.notes, *lost])


def _is_over(budget: Budget, begin_s: float) -> Callable[[], bool]:
    ends = math.inf if budget.seconds is None else begin_s + budget.seconds
    return lambda: budget.stopped or time.monotonic() >= ends


def _learn_by_simulator(training: PolicyTraining, budget: Budget) -> None:
    """Measured steps are few: tables begin with what the simulator teaches."""
    if not isinstance(training.policy, HierarchicalPolicy):
        return
    seconds = None if budget.seconds is None else _SIMULATED_SHARE * budget.seconds
    updates = training.policy.settings.simulated // training.policy.settings.batch
    if updates:
        limits = Budget(seconds=seconds, steps=updates, stop=budget.stop)
        training.run(limits, lambda progress: None)
    training.policy.try_around()
    training.forget()


def _counted(progress: Progress, measurements: Measurements | None) -> Progress:
    if measurements is None:
        return progress
    measured, failed = measurements.counts
    return replace(progress, measured=measured, failed=failed)


def _result(
    problem: Problem,
    model: str,
    training: PolicyTraining,
    measurements: Measurements | None,
    watch: Watch,
) -> Learned:
    """The best draw, whatever it is worth; a note says so if that is little."""
    if training.best is None or (measurements and not measurements.counts[0]):
        what = "measured a placement" if measurements else "scored a placement that the policy drew"
        raise PlannerUnavailableError(f"{model}: the budget ended before it {what}; give it more")
    found = Learned(
        placement=training.best,
        makespan_ns=training.best_ns,
        notes=(),
        curve=watch.curve,
        steps=training.steps,
        placements=training.placements,
        policy=training.policy,
    )
    if measurements is not None:
        measured, failed = measurements.counts
        reason = measurements.last_failure
        if reason is None:
            return found
        note = f"{failed} of {measured} placements could not be measured, the last one: {reason}"
        return replace(found, notes=[note])
    drawn = f"{model}: of the {found.placements:,} placements that the policy drew"
    if found.makespan_ns is None:
        return replace(found, notes=[f"{drawn}, none fits into memory"])
    trace = simulate(problem, best_single_device(problem))
    if not trace.feasible or trace.makespan_ns is None or found.makespan_ns <= trace.makespan_ns:
        return found
    drawn_time, single_time = format_ns(found.makespan_ns), format_ns(trace.makespan_ns)
    note = f"{drawn}, the best takes {drawn_time} per step; a single device takes {single_time}"
    return replace(found, notes=[note])
