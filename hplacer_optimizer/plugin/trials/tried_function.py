"""One function of a training, from its first call until its plan has proved itself or not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from hplacer_optimizer.measuring.running_trial import (
    Observations,
    RunningTrial,
    TrialCall,
    TrialResult,
)

CALLS_BEFORE_SEARCH = 3  # what is called less often is not worth a search


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Of the run.

    Attributes:
        now: seconds; virtual ones where devices are emulated.
        synchronise: waits for devices that work on after a call has returned; None: there are none.
    """

    now: Callable[[], float]
    synchronise: Callable[[], None] | None = None


class TriedFunction:
    """What its calls tell, and how the next one is to run; called from any thread.

    `is_settled` is read without a lock: from then on calls run as `keeps_plan` says.
    """

    def __init__(self, label: str, clock: Clock, on_call: Callable[[TriedFunction], None]) -> None:
        """A function that runs under TensorFlow's own placement.

        Args:
            label: for people.
            clock: of the run.
            on_call: told once the function has been called often enough to be worth a search.
        """
        self.label = label
        self.first_call_s = 0.0
        self.is_settled = False
        self.keeps_plan = False
        self._clock, self._on_call = clock, on_call
        self._lock = threading.RLock()  # a handler of a signal may call the function
        self._calls = 0
        self._trial: RunningTrial | None = None
        self._on_over: Callable[[TrialResult, BaseException | None], None] | None = None
        self._is_over = False

    def begin(
        self, trial: RunningTrial, on_over: Callable[[TrialResult, BaseException | None], None]
    ) -> None:
        """Calls run in turns from now on; `on_over` gets the result, and the error of a step."""
        with self._lock:
            self._trial, self._on_over = trial, on_over

    def settle(self, *, keeps_plan: bool = False) -> None:
        """Calls run one way from now on."""
        self.keeps_plan = keeps_plan
        self.is_settled = True

    def forget(self) -> None:
        """In a forked child, which tries nothing: its parent does."""
        self._lock = threading.RLock()
        self.settle(keeps_plan=self.keeps_plan)

    def observations(self) -> Observations | None:
        """What a trial that is not over has measured; None: there is none."""
        with self._lock:
            if self._trial is None or self._trial.is_over:
                return None
            return self._trial.observations()

    # ---- what a call tells ----

    def next_call(self) -> TrialCall | None:
        """How the next call is to run; None: under TensorFlow's placement, and nothing is timed."""
        with self._lock:
            self._calls += 1
            is_worth_it = self._calls == CALLS_BEFORE_SEARCH
            trial = self._trial
            call = None if trial is None else trial.next_call(self._clock.now())
        if is_worth_it:
            self._on_call(self)
        self._end_if_over(None)
        return call

    def step_ended(self, call: TrialCall | None, began_s: float, ended_s: float) -> None:
        """The thread's next call begins.

        Args:
            call: what `next_call` returned.
            began_s: when it began.
            ended_s: when it had ended.
        """
        if call is not None and call.ends_part and self._clock.synchronise is not None:
            self._clock.synchronise()
        now_s = self._clock.now()
        with self._lock:
            if self._trial is not None and call is not None:
                self._trial.called(call, ended_s - began_s, now_s - ended_s)
        self._end_if_over(None)

    def failed(self, call: TrialCall | None, error: BaseException) -> None:
        """The call has raised."""
        if call is None or not call.with_plan or _is_ordinary(error):
            return
        with self._lock:
            if self._trial is not None:
                self._trial.fail()
        self._end_if_over(error)

    def _end_if_over(self, error: BaseException | None) -> None:
        with self._lock:
            trial = self._trial
            if trial is None or trial.result is None or self._is_over:
                return
            self._is_over = True
        assert self._on_over is not None
        self._on_over(trial.result, error)


def _is_ordinary(error: BaseException) -> bool:
    """Whether any placement can end a step so: the input is over, or somebody stops."""
    from tensorflow.python.framework import errors

    ends = (errors.OutOfRangeError, errors.CancelledError, errors.AbortedError, StopIteration)
    return isinstance(error, ends) or not isinstance(error, Exception)
