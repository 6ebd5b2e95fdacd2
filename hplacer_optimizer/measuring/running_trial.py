"""A trial inside of a running training: calls of one function under two placements, in turns.

    reference   calls under TensorFlow's own placement tell how long a step takes
    warm-up     the first calls with the plan: TensorFlow instantiates the function a second time
    blocks      baseline, plan, plan, baseline, and so on, until the ratio is known

A step is a call and what follows it until the thread's next one, so that what a placement costs
after the call counts, too. A pause, such as an evaluation, does not. Four blocks give one
observation: the logarithm of the ratio of their typical steps, from which a drift of the machine
cancels out. A trimmed mean of these and its interval bear with disturbances.

Everything that a trial costs is charged to a budget, which all trials of a run share: a share of
the time that the run has taken so far, looked at before each call with the plan. So it is exceeded
by one step at most.

This module knows neither TensorFlow nor a clock: times are given.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.measuring.turns import t_quantile

VARIABLE = "HPLACER_TRIAL_RULES"  # for tests and ablations
SHARE, MOST_S = 0.02, 30.0  # of the run's time so far; of all trials of a run
CLEAR = 0.01  # by which an interval clear of 1 tells which side is faster
WIDTH = 0.02  # of an interval that tells that there is no more to be known
_LEAST, _NARROW = 3, 6  # observations before an interval counts, and before a narrow one does
_MOST = 60  # then the interval is taken as it is

_ORDER = (False, True, True, False)  # of the blocks of an observation: with the plan or without
_REFERENCE = 5  # steps
_WARMUP = 3  # calls with the plan that TensorFlow spends on instantiating and allocating
# Of a block: a median of three steps bears with one that is disturbed.
BLOCK_S, _LEAST_CALLS, _MOST_CALLS = 0.1, 3, 32
_DROPPED = 2.0  # times as long: a plan whose first block has no step below that is dropped
_LATEST = 2  # steps with the plan, that tell what the next one may cost
_PAUSE = 10.0  # steps, after which what follows a call is none of it
_TRIMMED = 0.2  # of the observations, at each end


@dataclass(frozen=True, kw_only=True)
class TrialRules:
    """When a trial ends; other rules than the default ones are for ablations."""

    share: float = SHARE
    """Of the run's time so far, that all trials may cost."""
    most_s: float = MOST_S
    """That all trials of a run may cost."""
    drops_early: bool = True
    """A plan whose first block has only steps that take more than twice as long is dropped."""
    fixed_steps: int | None = None
    """Ends after so many timed steps of each side, and not by an interval."""
    alternates: bool = False
    """Every call runs on the other side than the one before, and nothing is measured."""

    @classmethod
    def from_environment(cls) -> TrialRules:
        """Those that HPLACER_TRIAL_RULES changes; OptionError for what is no such JSON object."""
        try:
            return cls(**json.loads(os.environ.get(VARIABLE) or "{}"))
        except (ValueError, TypeError) as error:
            names = ", ".join(one.name for one in fields(cls))
            raise OptionError(f"{VARIABLE}: must be a JSON object of {names}: {error}") from None


class TrialBudget:
    """What the trials of a run may cost; seconds of the run's clock."""

    def __init__(self, began_s: float, rules: TrialRules | None = None) -> None:
        """`began_s`: when the run began."""
        rules = rules or TrialRules()
        self._began_s, self._share, self._most_s = began_s, rules.share, rules.most_s
        self.spent_s = 0.0

    def allowed_s(self, now_s: float) -> float:
        """What all may have cost until now."""
        return min(self._most_s, self._share * (now_s - self._began_s))

    def allows(self, now_s: float, more_s: float) -> bool:
        """Whether so much more may be spent."""
        return self.spent_s + more_s <= self.allowed_s(now_s)

    def is_exhausted_by(self, more_s: float) -> bool:
        """Whether so much more is too much, however long the run lasts."""
        return self.spent_s + more_s > self._most_s

    def charge(self, cost_s: float) -> None:
        """Something has cost so much."""
        self.spent_s += max(0.0, cost_s)


@dataclass(frozen=True)
class Observations:
    """What is known of a ratio, also from earlier runs.

    Attributes:
        logarithms: of the speedup, one for four blocks.
        plan_s, baseline_s: typical steps, seconds.
        steps: timed, of both.
    """

    logarithms: tuple[float, ...] = ()
    plan_s: float = 0.0
    baseline_s: float = 0.0
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """What was measured.

    Attributes:
        speedup: how many times as many steps a second with the plan.
        low, high: the 95% interval of it.
        observed: what they are of.
        is_known: the ratio is; else the trial would have cost more than it may.
        is_dropped: the first steps with the plan took so long that no more of them were run.
        blocks_s: a typical step of each block of this run, seconds: without the plan and with it.
    """

    speedup: float
    low: float
    high: float
    observed: Observations
    is_known: bool = True
    is_dropped: bool = False
    blocks_s: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())

    @property
    def plan_stays(self) -> bool:
        """Whether the plan is the faster one: what is equal keeps TensorFlow's placement."""
        return self.is_known and self.low > 1.0


@dataclass(slots=True)
class TrialCall:
    """A call that the trial has been asked about."""

    with_plan: bool
    _block: int
    _is_counted: bool
    _is_last: bool = False

    @property
    def ends_part(self) -> bool:
        """Whether devices that work on after a call have to be waited for after this one."""
        return self._is_last or not self._is_counted


@dataclass(slots=True)
class _Block:
    with_plan: bool
    times_s: list[float] = field(default_factory=list)


class RunningTrial:
    """The trial of one function; not safe from several threads."""

    def __init__(
        self,
        budget: TrialBudget,
        *,
        pause_s: float,
        is_asynchronous: bool = False,
        block_s: float = BLOCK_S,
        known: Observations | None = None,
        rules: TrialRules | None = None,
    ) -> None:
        """A trial that nothing has been measured in.

        Args:
            budget: of all trials.
            pause_s: that the second instantiation will take, as far as is known.
            is_asynchronous: devices work after a call has returned, so that a step is known on
                average over a block alone.
            block_s: of a block, at least; 0 where times are virtual, which hardly differ.
            known: from earlier runs.
            rules: when it ends.
        """
        self._budget, self._pause_s = budget, pause_s
        self._is_asynchronous, self._block_s = is_asynchronous, block_s
        self._rules = rules or TrialRules()
        self._earlier = known or Observations()
        self._logarithms = list(self._earlier.logarithms)
        self._reference: list[tuple[float, float]] = []  # call, and what followed
        self._reference_s: float | None = None
        self._warm_calls = 0
        self._blocks: list[_Block] = []  # of the observation that is being made
        self._number = 0  # of the block, so that calls that began in an earlier one are known
        self._side = False  # of the latest call
        self._settles = True  # the next call of the block follows one of the other side
        self._timed: tuple[list[float], list[float]] = [], []  # typical steps of blocks, by side
        self._first_s: list[float] = []  # steps of the first block with the plan, ...
        self._latest_s: deque[float] = deque(maxlen=_LATEST)  # ... and the latest ones
        self._steps = self._earlier.steps
        self.result: TrialResult | None = None
        """Once the trial is over."""

    @property
    def is_over(self) -> bool:
        """Whether there is a result."""
        return self.result is not None

    @property
    def reference_s(self) -> float | None:
        """A typical step under TensorFlow's own placement; None: not known yet."""
        return self._reference_s

    def observations(self) -> Observations:
        """What is known so far, for the next run."""
        return Observations(
            logarithms=tuple(self._logarithms),
            plan_s=self._typical_s(True),
            baseline_s=self._typical_s(False),
            steps=self._steps,
        )

    def next_call(self, now_s: float) -> TrialCall:
        """How the next call is to run, at this time."""
        if self._rules.alternates:
            return self._call(not self._side, False)
        if self._reference_s is None or self.is_over:
            return self._call(False, False)
        if self._warm_calls < _WARMUP:
            return self._next_of_warmup(now_s)
        if not self._blocks:
            stretch = _ORDER.count(True) * self._calls + 1  # that runs with the plan
            if not self._affords(now_s, stretch * self._expected_loss_s()):
                return self._call(False, False)
            self._begin_block()
        with_plan = self._blocks[-1].with_plan
        if with_plan and not self._affords(now_s, self._expected_loss_s()):
            self._begin_observation()
            return self._call(False, False)
        return self._call(with_plan, not self._settles)

    def called(self, call: TrialCall, call_s: float, gap_s: float) -> None:
        """The call has ended, and the thread's next one begins.

        Args:
            call: what `next_call` returned.
            call_s: seconds that it took.
            gap_s: seconds from its end to the next call.
        """
        if self._rules.alternates:
            return
        if self._reference_s is None:
            self._add_reference(call_s, gap_s)
            return
        step_s = call_s + (gap_s if gap_s <= _PAUSE * self._reference_s else 0.0)
        if call.with_plan:
            self._budget.charge(step_s - self._reference_s)
        if self.is_over or call._block != self._number:
            return
        if self._warm_calls < _WARMUP:
            if call.with_plan:
                self._warm_calls += 1
                if self._warm_calls > 1:
                    self._latest_s.append(step_s)
            return
        if not self._blocks or call.with_plan != self._blocks[-1].with_plan:
            return
        if not call._is_counted:
            self._settles = False
            return
        self._add(step_s)

    def fail(self) -> None:
        """A step with the plan failed: the trial is over, without a result of its own."""
        self._end(drops=True)

    # ---- calls ----

    def _call(self, with_plan: bool, is_counted: bool) -> TrialCall:
        self._side = with_plan
        is_last = is_counted and len(self._blocks[-1].times_s) + 1 >= self._calls
        return TrialCall(with_plan, self._number, is_counted, is_last)

    def _next_of_warmup(self, now_s: float) -> TrialCall:
        assert self._reference_s is not None
        expected_s = self._expected_loss_s() if self._warm_calls else self._pause_s
        return self._call(self._affords(now_s, expected_s), False)

    def _affords(self, now_s: float, cost_s: float) -> bool:
        """Whether so much may be spent now; ends the trial if it never may."""
        if self._budget.is_exhausted_by(cost_s):
            self._end(is_known=False)
        return not self.is_over and self._budget.allows(now_s, cost_s)

    def _expected_loss_s(self) -> float:
        """Of a step with the plan; the first one instantiates, and says nothing of the others."""
        assert self._reference_s is not None
        if not self._latest_s:
            return 0.0
        return max(0.0, statistics.fmean(self._latest_s) - self._reference_s)

    @property
    def _calls(self) -> int:
        """Of a block."""
        assert self._reference_s is not None
        wanted = math.ceil(self._block_s / max(self._reference_s, 1e-9))
        return min(max(wanted, _LEAST_CALLS), _MOST_CALLS)

    # ---- what calls tell ----

    def _add_reference(self, call_s: float, gap_s: float) -> None:
        self._reference.append((call_s, gap_s))
        if len(self._reference) >= _REFERENCE:
            self._reference_s = statistics.median(call + gap for call, gap in self._reference)

    def _begin_observation(self) -> None:
        self._blocks = []
        self._number += 1

    def _begin_block(self) -> None:
        with_plan = _ORDER[len(self._blocks)]
        self._settles = with_plan != self._side
        self._blocks.append(_Block(with_plan))
        self._number += 1

    def _add(self, step_s: float) -> None:
        """A step of the block has been timed."""
        block = self._blocks[-1]
        block.times_s.append(step_s)
        self._steps += 1
        if block.with_plan:
            self._latest_s.append(step_s)
        if len(block.times_s) < self._calls:
            return
        if block.with_plan and not self._first_s:
            self._first_s = block.times_s
            if self._takes_too_long():
                self._end(drops=True)
                return
        self._timed[block.with_plan].append(self._typical_of(block))
        if len(self._blocks) < len(_ORDER):
            self._begin_block()
            return
        by_side: tuple[list[float], list[float]] = [], []
        for one in self._blocks:
            by_side[one.with_plan].append(math.log(max(self._typical_of(one), 1e-9)))
        self._logarithms.append(statistics.fmean(by_side[False]) - statistics.fmean(by_side[True]))
        self._begin_observation()
        if self._is_known():
            self._end()

    def _typical_of(self, block: _Block) -> float:
        return (statistics.fmean if self._is_asynchronous else statistics.median)(block.times_s)

    def _typical_s(self, with_plan: bool) -> float:
        timed_s = self._timed[with_plan]
        if timed_s:
            return statistics.median(timed_s)
        if with_plan:
            return self._earlier.plan_s or min(self._first_s, default=0.0)
        return self._earlier.baseline_s or self._reference_s or 0.0

    def _takes_too_long(self) -> bool:
        assert self._reference_s is not None
        if not self._rules.drops_early or self._logarithms:
            return False
        return min(self._first_s) > _DROPPED * self._reference_s

    def _is_known(self) -> bool:
        if self._rules.fixed_steps is not None:
            return self._steps >= 2 * self._rules.fixed_steps
        count = len(self._logarithms)
        if count < _LEAST:
            return False
        _, low, high = trimmed_interval(self._logarithms)
        if low > math.log1p(CLEAR) or high < -math.log1p(CLEAR):
            return True
        is_narrow = count >= _NARROW and high - low < WIDTH
        return is_narrow or count >= _MOST

    def _end(self, *, is_known: bool = True, drops: bool = False) -> None:
        logarithms = self._logarithms
        if drops and len(self._first_s) >= 1:
            assert self._reference_s is not None
            mean = low = high = math.log(self._reference_s / max(min(self._first_s), 1e-9))
        elif len(logarithms) < 2:
            mean, low, high = 0.0, -math.inf, math.inf
        else:
            mean, low, high = trimmed_interval(logarithms)
        self.result = TrialResult(
            speedup=math.exp(mean),
            low=math.exp(low),
            high=math.exp(high),
            observed=self.observations(),
            is_known=is_known,
            is_dropped=drops,
            blocks_s=(tuple(self._timed[False]), tuple(self._timed[True])),
        )


def trimmed_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Of two or more: their trimmed mean, and its interval at 95%.

    By Tukey and McLaughlin (1963): the mean of what is left without a fifth at each end, with the
    deviation of the values whose ends are drawn in to the nearest value that is left.
    """
    ordered, count = sorted(values), len(values)
    cut = int(_TRIMMED * count)
    left = count - 2 * cut
    mean = statistics.fmean(ordered[cut : count - cut])
    low, high = ordered[cut], ordered[count - cut - 1]
    drawn_in = [min(max(value, low), high) for value in ordered]
    deviation = statistics.stdev(drawn_in) * math.sqrt(count) / left
    half = t_quantile(left - 1) * deviation
    return mean, mean - half, mean + half
