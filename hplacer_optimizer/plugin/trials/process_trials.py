"""The trials of a process: the searches before them, what they cost, and what follows."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hplacer_optimizer import emulation
from hplacer_optimizer.capture.captured import build_problem
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.log import LOGGER, log_once, warn_once
from hplacer_optimizer.machines import Machine
from hplacer_optimizer.measuring.running_trial import (
    BLOCK_S,
    RunningTrial,
    TrialBudget,
    TrialResult,
    TrialRules,
)
from hplacer_optimizer.options import EVERY_PLAN, TRIAL, Options
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.guard import TRY, Here, decide
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.unfinished_trial import UnfinishedTrial
from hplacer_optimizer.plans.verdict import Verdict, emulated_here
from hplacer_optimizer.plugin import verifying
from hplacer_optimizer.plugin.disabling import eager_context
from hplacer_optimizer.plugin.history import level
from hplacer_optimizer.plugin.known_plans import KnownPlans
from hplacer_optimizer.plugin.trials import function_calls, trial_lines
from hplacer_optimizer.plugin.trials.kernel_state import op_with_state
from hplacer_optimizer.plugin.trials.search_beside import SearchBeside
from hplacer_optimizer.plugin.trials.tried_function import Clock, TriedFunction
from hplacer_optimizer.pretraining import background
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.support.threads import start_or_run

_MOST_WAITING = 16  # captured steps, until they are searched
_WAITS = "a search for a plan runs beside training, and its plan is tried once it is found"
_TRIED = "calls run with its plan and without it in turn, to measure which is faster"


@dataclass(kw_only=True)
class _Candidate:
    """A function with all that its trial needs."""

    function: TriedFunction
    fingerprint: str
    level: int  # of what is told
    options: Options
    store: PlanStore
    search: tuple[Any, Machine] | None = None  # the captured step, until it is searched
    plan: Plan | None = None


class Trials:
    """Of this process."""

    def __init__(self, plans: KnownPlans) -> None:
        self._plans = plans
        self._began_s = time.perf_counter()
        self._clock: Clock | None = None
        self._rules = TrialRules()
        self._budget = TrialBudget(self._began_s)
        self._candidates: list[_Candidate] = []
        self._searches: queue.SimpleQueue[_Candidate | None] = queue.SimpleQueue()
        self._is_searching = False
        self._threads: list[threading.Thread] = []
        self._stops = threading.Event()

    # ---- what the pass asks ----

    @staticmethod
    def asks_for_plan(request: Any) -> bool:
        """Whether the request comes from a call that is to run with the plan."""
        return TRIAL in verifying.entry_of(request).parameter_map

    def plan_for(self, request: Any) -> Plan | None:
        """The plan that such a call is to run with; None: the graph has none that is tried."""
        plans = (one.plan for one in self._candidates if one.fingerprint == request.fingerprint)
        return next((plan for plan in plans if plan is not None), None)

    def does_not_fit(self, request: Any) -> None:
        """The plan could not be written into the graph of such a call."""
        for one in self._candidates:
            if one.fingerprint == request.fingerprint:
                one.function.settle()
                exchange.tell_result(None)

    def is_of_trial(self, fingerprint: str) -> bool:
        """Whether the graph has a plan that is tried, or was."""
        return any(one.fingerprint == fingerprint and one.plan for one in self._candidates)

    def take_plan(self, request: Any, plan: Plan, options: Options, store: PlanStore) -> str | None:
        """Tries a stored plan, if it can and should be; the reason why it has no effect.

        None: the guard decides as without trials.
        """
        is_known = plan.is_confirmed or plan.is_retired or options.min_gain == EVERY_PLAN
        if is_known or not self._can_be_tried(request, what="decided on"):
            return None
        decision = decide(plan, Here.now(min_gain=options.min_gain, tries=True))
        if decision.action != TRY:
            return decision.why or None
        self._begin(self._watched(request, options, store), plan)
        return _TRIED

    def take_capture(
        self, request: Any, machine: Machine, options: Options, store: PlanStore
    ) -> str | None:
        """Has the captured step searched beside training; the reason why there is no plan yet.

        None: the step is to be planned at once.
        """
        if options.min_gain == EVERY_PLAN or not self._can_be_tried(request, what="planned"):
            return None
        if not _fits_as_it_is(request, machine, options):
            return None
        waiting = [one for one in self._candidates if one.search is not None]
        if len(waiting) >= _MOST_WAITING:  # such as of many traces that are called once
            waiting[0].search = None
            waiting[0].function.settle()
        self._watched(request, options, store).search = (request, machine)
        return _WAITS

    def stop(self) -> list[threading.Thread]:
        """At exit: what was measured so far counts next time; returns the threads that go on.

        A search keeps its plan.
        """
        self._stops.set()
        self._searches.put(None)
        self._keep_unfinished()
        return self._threads

    def _start(self, act: Callable[..., None], *arguments: Any) -> None:
        """On a thread of its own, which is waited for at exit."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if thread := start_or_run(act, *arguments, name="hplacer-trial"):
            self._threads.append(thread)

    # ---- a function ----

    def _can_be_tried(self, request: Any, what: str) -> bool:
        why = self._why_not(request)
        if why:
            log_once(
                level(request),
                f"not tried {request.label}",
                f"{request.label} is {what} before it runs, as it cannot be tried while it runs: "
                f"{why}",
            )
        return not why

    def _why_not(self, request: Any) -> str:
        if not request.function:
            return "it is the graph of a session"
        context = eager_context()
        if not function_calls.install(type(context), self._run_clock()):
            return "this TensorFlow calls functions in another way than those that are known"
        try:
            op = op_with_state(context, request.function)
        except Exception as error:  # such as of a function that another context has
            return f"its ops cannot be read ({type(error).__name__})"
        if op is not None:
            return f"{op} keeps state in its kernel, which would exist twice"
        return ""

    def _run_clock(self) -> Clock:
        if self._clock is None:
            self._rules = TrialRules.from_environment()
            if emulation.is_on():
                self._began_s = 0.0  # of virtual time
            self._clock = _clock()
            self._budget = TrialBudget(self._began_s, self._rules)
        return self._clock

    def _watched(self, request: Any, options: Options, store: PlanStore) -> _Candidate:
        function = TriedFunction(request.label, self._run_clock(), self._search_soon)
        tried = _Candidate(
            function=function,
            fingerprint=request.fingerprint,
            level=level(request),
            options=options,
            store=store,
        )
        self._candidates.append(tried)
        function_calls.watch(request.function, function)
        return tried

    def _begin(self, tried: _Candidate, plan: Plan) -> None:
        """The trial of a plan; its function goes on under TensorFlow's placement until then."""
        assert self._clock is not None
        known = None
        with contextlib.suppress(HPlacerError):
            known = tried.store.unfinished_trial(plan.fingerprint)
        trial = RunningTrial(
            self._budget,
            pause_s=tried.function.first_call_s,
            is_asynchronous=self._clock.synchronise is not None,
            block_s=0.0 if emulated_here() else BLOCK_S,
            known=known.observations if known and known.is_of(plan) else None,
            rules=self._rules,
        )
        tried.plan = plan

        def on_over(result: TrialResult, error: BaseException | None) -> None:
            gain = tried.options.min_gain or 0.0
            stays = error is None and result.plan_stays and result.speedup - 1 > gain
            tried.function.settle(keeps_plan=stays)
            self._start(self._conclude, tried, result, error)

        LOGGER.debug("the plan for %s is tried: %s", tried.function.label, plan.summary_line())
        tried.function.begin(trial, on_over)

    def _conclude(
        self, tried: _Candidate, result: TrialResult, error: BaseException | None
    ) -> None:
        """Tells what was measured, and keeps it."""
        exchange.tell_result(asdict(result) if result.is_known and error is None else None)
        label, plan, stays = tried.function.label, tried.plan, tried.function.keeps_plan
        assert plan is not None
        LOGGER.log(tried.level, "%s", trial_lines.conclusion(label, result, error, stays=stays))
        if not result.is_known and error is None:
            self._keep_unfinished_of(tried, UnfinishedTrial.of(plan, result.observed))
            return
        speedup, low, high = result.speedup, result.low, result.high
        if error is not None:
            speedup = low = high = 0.0
        verdict = Verdict.now(
            speedup=speedup,
            low=low,
            high=high,
            plan_ns=round(result.observed.plan_s * 1e9),
            baseline_ns=round(result.observed.baseline_s * 1e9),
            turns=len(result.observed.logarithms),
            by=trial_lines.who(),
            failure=None if error is None else trial_lines.failure(error),
        )
        judged = replace(plan, verdict=verdict)
        self._plans.know(tried.store, judged)
        try:
            tried.store.put(judged)
        except HPlacerError as problem:
            warn_once("verdict", f"what the trial found is not kept for the next run: {problem}")
        self._keep_unfinished_of(tried, None)

    # ---- the search ----

    def _search_soon(self, function: TriedFunction) -> None:
        """The function has been called often enough."""
        found = next((one for one in self._candidates if one.function is function), None)
        if found is None or found.search is None:
            return
        self._searches.put(found)
        if not self._is_searching:
            self._is_searching = True
            self._start(self._search_all)

    def _search_all(self) -> None:
        """One search at a time."""
        assert self._clock is not None
        beside = SearchBeside(
            self._budget, self._clock.now, is_virtual=emulation.is_on(), stops=self._stops
        )
        while (tried := self._searches.get()) is not None:
            try:
                self._search(tried, beside)
            except background.AlreadySearchedError as error:
                tried.function.settle()
                LOGGER.log(tried.level, "%s; the next start tries its plan", error)
            except Exception as error:  # training does not depend on it
                tried.function.settle()
                warn_once("beside", f"no search beside training: {error}")

    def _search(self, tried: _Candidate, beside: SearchBeside) -> None:
        if tried.search is None or self._stops.is_set():
            return
        (captured, machine), tried.search = tried.search, None

        def on_start() -> None:
            LOGGER.log(
                tried.level,
                "%s searches for a plan for %s beside training",
                tried.options.planner,
                tried.function.label,
            )

        log = beside.run(captured, machine, tried.options, tried.store, on_start)
        if log is None:
            tried.function.settle()
            return
        plan = tried.store.get(tried.fingerprint)
        if plan is None:
            tried.function.settle()
            LOGGER.log(tried.level, "no plan was found for %s: see %s", captured.label, log)
            return
        self._plans.know(tried.store, plan)
        decision = decide(plan, Here.now(min_gain=tried.options.min_gain, tries=True))
        if decision.action == TRY:
            self._begin(tried, plan)
        else:
            tried.function.settle()
            LOGGER.log(tried.level, "%s is left alone: %s", captured.label, decision.why)

    # ---- what counts next time ----

    def _keep_unfinished(self) -> None:
        for one in self._candidates:
            found = None if one.plan is None else one.function.observations()
            if one.plan is not None and found is not None and found.logarithms:
                self._keep_unfinished_of(one, UnfinishedTrial.of(one.plan, found))

    @staticmethod
    def _keep_unfinished_of(tried: _Candidate, trial: UnfinishedTrial | None) -> None:
        try:
            tried.store.keep_unfinished_trial(tried.fingerprint, trial)
        except HPlacerError as error:
            warn_once("unfinished", f"what a trial has measured is not kept: {error}")


def _clock() -> Clock:
    now = emulation.step_clock()
    if emulation.is_on():  # reading the virtual time waits for the devices
        return Clock(now=now)
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return Clock(now=now)

    def synchronise() -> None:
        with contextlib.suppress(tf.errors.OpError, ValueError, RuntimeError):
            tf.test.experimental.sync_devices()

    return Clock(now=now, synchronise=synchronise)


def _fits_as_it_is(request: Any, machine: Machine, options: Options) -> bool:
    """Whether TensorFlow's own placement fits into memory, as far as can be told."""
    arrays = request.arrays
    needed = sum(
        float(np.sum(arrays[name], dtype=np.float64))
        for name in ("output_bytes", "temp_bytes", "persistent_bytes")
    )
    if needed <= min(machine.memory_bytes):
        return True
    problem, _ = build_problem(request, machine, cost_table=options.cost_table)
    baseline = Baseline.of(problem)
    return baseline is None or baseline.feasible
