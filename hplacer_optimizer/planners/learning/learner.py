"""Runs a learned planner in a process of its own; what all callers of this package use.

    learn()  --- problem, settings, limits --->  trainer_process.py: Trainer
             <---- progress, best placement ---
             <-> placements to measure, seconds   (only with a `reward`: measurements.py)

TensorFlow's results depend on how many threads it has, which a process decides once: in one with a
single thread the same seed and steps give the same placements on any number of cores. Nor does the
policy then share state, devices or memory with a training script that it is learning for.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import _engine, errors
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import OptionError, PlannerUnavailableError
from hplacer_optimizer.planners import rollout
from hplacer_optimizer.planners.budget import Budget, Progress, ProgressCallback
from hplacer_optimizer.planners.learning.measurements import Measurements
from hplacer_optimizer.planners.learning.models import LEARNED_PLANNERS
from hplacer_optimizer.planners.learning.scoring import Reward, best_single_device
from hplacer_optimizer.planners.learning.settings import get_settings
from hplacer_optimizer.planners.result import PlannerResult, Watch
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.support.child_process import ConnectedProcess, without_gpus
from hplacer_optimizer.support.formats import format_ns
from hplacer_optimizer.support.keywords import checks_keywords
from hplacer_optimizer.support.tf_process import Child

DEFAULT_BUDGET = Budget(seconds=60)

_MODULE = "hplacer_optimizer.planners.learning.trainer_process"
_ENVIRONMENT = {
    "HPLACER_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}
_POLL_S = 0.05
_GRACE_S = 1.0  # after the last second of the budget, for a step to end
_SAVING_S = 30.0  # the same where there is a checkpoint to write


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned(PlannerResult):
    """What a learned planner found.

    Its `steps` are updates of the policy, those before a resumed checkpoint included; its `curve`
    is of this run. Its `placement`, `notes` and `placements` are those of any planner.

    Attributes:
        makespan_ns: by the simulator, or as measured; None if no placement was feasible.

    Example, after that of `learn`:
        >>> learned.steps, len(learned.curve)
        (5, 5)
        >>> learned.makespan_ns == hp.simulate(problem, learned.placement).makespan_ns
        True
    """

    makespan_ns: int | None

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
    start: NDArray[np.int32] | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    logdir: str | Path | None = None,
    on_progress: ProgressCallback | None = None,
) -> Learned:
    """Looks for a placement with networks trained by policy gradient, until the budget ends.

    The same seed and steps give the same placements, for any number of threads; a run of seconds is
    repeated by the steps that it did (`Learned.steps`).

    Args:
        problem: the graph and the machine.
        model: one of LEARNED_PLANNERS.
        preset: of hyperparameters, "default" or "paper".
        settings: hyperparameters by name, in place of the preset's.
        budget: None: 60 seconds. Steps count updates, those before a resumed checkpoint included;
            seconds include the start of TensorFlow.
        seed: of every random choice.
        reward: measures a placement int32[n] in seconds per step, called in threads of this
            process; an exception or no finite number is a failed measurement, scored as an
            infeasible placement. The first one is logged, the last one is among the notes. None:
            the simulator.
        parallel: how many placements the reward measures at once.
        start: a placement int32[n] that the policy first learns to imitate, and then improves; the
            result is no worse. None: what `rollout` builds once, or with the preset "paper"
            none.
        checkpoint: directory that keeps the policy, its optimizer, averages of rewards, random
            state and best placement, written whole or not at all every minute and at the end.
        resume: goes on from the checkpoint, bit for bit; from nothing if there is none.
        logdir: directory of TensorBoard's event files.
        on_progress: called after each step, and after each measurement.

    Raises:
        OptionError: an unknown model, preset or setting, or a wrong value.
        InfeasibleError: an op has no device at all.
        PlanError: the start breaks a constraint.
        CheckpointError: the checkpoint is damaged, or of another graph, setting or seed.
        PlannerUnavailableError: TensorFlow is not installed, or its process ended, or with the
            preset "paper" the budget ended before the first step.

    Example:
        >>> import hplacer_optimizer as hp
        >>> problem = hp.load_problem("example")
        >>> learned = hp.learn(problem, budget=hp.Budget(steps=5))  # starts TensorFlow
        >>> learned.placement.shape, learned.feasible
        ((9,), True)
    """
    budget = (budget or Budget()).or_default(DEFAULT_BUDGET)
    if model not in LEARNED_PLANNERS:
        raise OptionError(f"model: must be one of {', '.join(LEARNED_PLANNERS)}, got {model!r}")
    if resume and checkpoint is None:
        raise OptionError("resume: needs the directory of a checkpoint")
    ends = None if budget.seconds is None else time.monotonic() + budget.seconds
    _engine.check_candidates(problem)
    chosen = get_settings(preset, settings)
    if not problem.num_ops:
        return Learned(placement=np.zeros(0, np.int32), makespan_ns=0)
    if start is not None:
        start = np.asarray(start, np.int32)
        check_constraints(problem, start)
    elif not chosen.own_draws_only:
        start = rollout.plan_once(problem)
    file = io.BytesIO()
    _engine.write_problem(problem, file)
    request = {
        "problem": file.getvalue(),
        "model": model,
        "settings": asdict(chosen),
        "seed": seed,
        "start": start,
        "ends": ends,
        "steps": budget.steps,
        "patience": budget.patience,
        "measures": reward is not None,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "resume": resume,
        "logdir": None if logdir is None else str(logdir),
    }
    with contextlib.ExitStack() as opened:
        measurements = reward and opened.enter_context(Measurements(reward, parallel))
        process = opened.enter_context(_Process(request))
        watch = Watch(on_progress)
        found = _follow(process, budget, ends, checkpoint is not None, measurements, watch)
    if measurements is not None:
        return _or_measured(found, measurements)
    if start is None:
        return _as_drawn(problem, found, model)
    return _no_worse(problem, found, model, start)


def _follow(
    process: _Process,
    budget: Budget,
    ends: float | None,
    saves: bool,
    measurements: Measurements | None,
    watch: Watch,
) -> Learned | None:
    """Answers the process until it is done; None if it placed nothing in time."""
    placement = None
    makespan_ns = None
    last_moment = None
    told = (0, 0)
    while True:
        now = time.monotonic()
        if last_moment is None and (budget.stopped or (ends is not None and now > ends)):
            process.send("stop", None)
            last_moment = now + (_SAVING_S if saves else _GRACE_S)
            if measurements:
                measurements.end()
        if last_moment is not None and now > last_moment:
            break
        if measurements:
            if measurements.counts != told:
                told = measurements.counts
                watch.pass_on(_with_counts(watch.last, measurements))
            if (seconds := measurements.answer()) is not None:
                process.send("seconds", seconds)
        message = process.receive(_POLL_S)
        if message is None:
            continue
        kind, content = message
        if kind == "done":
            break
        if kind == "error":
            name, text = content
            raised: type[Exception] = getattr(errors, name, PlannerUnavailableError)
            raise raised(text)
        if kind == "measure":
            assert measurements is not None
            measurements.begin(content)
            continue
        progress, improved = content
        if improved is not None:
            placement, makespan_ns = improved
        watch(_with_counts(progress, measurements) if measurements else progress)
    if placement is None:
        return None
    return Learned(makespan_ns=makespan_ns, **vars(watch.result(placement)))


def _with_counts(progress: Progress, measurements: Measurements) -> Progress:
    measured, failed = measurements.counts
    return replace(progress, measured=measured, failed=failed)


def _no_worse(
    problem: Problem, found: Learned | None, model: str, start: NDArray[np.int32]
) -> Learned:
    """In little time a policy may not even draw as good a placement again."""
    trace = simulate(problem, start)
    start_ns = trace.makespan_ns if trace.feasible else None
    if found is None:
        note = f"{model}: the budget ended before the first step; the placement is the start"
        return Learned(placement=start, makespan_ns=start_ns, notes=[note])
    if start_ns is not None and (found.makespan_ns is None or start_ns < found.makespan_ns):
        note = f"{model}: {found.steps} steps found nothing better than the start"
        return replace(found, placement=start, makespan_ns=start_ns, notes=[note])
    return found


def _as_drawn(problem: Problem, found: Learned | None, model: str) -> Learned:
    """The policy's own best draw, whatever it is worth; a note says so if that is little."""
    if found is None:
        raise PlannerUnavailableError(
            f"{model}: the budget ended before the policy's first draws; give it more time"
        )
    drawn = f"{model}: of the {found.placements:,} placements that the policy drew"
    if found.makespan_ns is None:
        return replace(found, notes=[f"{drawn}, none fits into memory"])
    trace = simulate(problem, best_single_device(problem))
    if not trace.feasible or trace.makespan_ns is None or found.makespan_ns <= trace.makespan_ns:
        return found
    drawn_time, single_time = format_ns(found.makespan_ns), format_ns(trace.makespan_ns)
    note = f"{drawn}, the best takes {drawn_time} per step; a single device takes {single_time}"
    return replace(found, notes=[note])


def _or_measured(found: Learned | None, measurements: Measurements) -> Learned:
    """A step that the end of the budget cut off has measured something, too."""
    measured, failed = measurements.counts
    reason = measurements.last_failure
    if measurements.best is None and found is None:
        because = f"; the last of {failed} failed: {reason}" if reason else ""
        raise PlannerUnavailableError(f"the budget ended before a placement was measured{because}")
    if found is None:
        found = Learned(placement=np.zeros(0, np.int32), makespan_ns=None, placements=measured)
    if measurements.best is not None:
        seconds, placement = measurements.best
        makespan_ns = round(seconds * 1e9)
        if found.makespan_ns is None or makespan_ns < found.makespan_ns:
            found = replace(found, placement=placement, makespan_ns=makespan_ns)
    if reason is None:
        return found
    note = f"{failed} of {measured} placements could not be measured, the last one: {reason}"
    return replace(found, notes=[*found.notes, note])


class _Process(ConnectedProcess):
    """The child process; killed when the block ends, if it has not ended by itself."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(_MODULE, _ENVIRONMENT | without_gpus())
        self.send("request", request)

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:  # interrupted: what was learned is kept
            self.send("stop", None)
            self.wait(_SAVING_S if kind is KeyboardInterrupt else 0)
        self.close()

    def send(self, kind: str, content: Any) -> None:
        """To a process that may have ended, which `receive` tells."""
        with contextlib.suppress(OSError):
            self.connection.send((kind, content))

    def receive(self, seconds: float) -> tuple[str, Any] | None:
        """The next message, None if there is none so soon.

        Raises PlannerUnavailableError if the process has ended without a last one.
        """
        try:
            if not self.connection.poll(seconds):
                return None
            message: tuple[str, Any] = self.connection.recv()
            return message
        except (EOFError, OSError):
            self.wait(_SAVING_S)
            child = Child(returncode=self.returncode or 0, log=self.log)
            raise PlannerUnavailableError(
                f"the process that learns: {child.cause_of_death}"
            ) from None
