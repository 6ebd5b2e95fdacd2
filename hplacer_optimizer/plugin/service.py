"""The planner's side of the pass: look up, plan, validate, store.

    native pass                       Service
    lookup(fingerprint)  ---------->  look_up: stored plan -> assignment, or "missing" + machine
    plan(captured step)  ---------->  plan: planner, simulate -> assignment, stored for the next run
                                      guard                   -> or TensorFlow's placement is kept
    report               ---------->  report: one log line

A dispatcher thread takes requests from the native bridge; each lookup and each plan runs on a
thread of its own, so that a store which hangs stops nobody else. Planners look at `Budget.stop`,
which is set once nobody waits for their plan any more: after the time limit, after Ctrl-C, at exit.
One's own planners may not look, and run in a process that can be ended. Whatever goes wrong is
answered with a reason: the pass leaves the graph as it was and one warning is logged.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hplacer_optimizer import machines
from hplacer_optimizer.capture import native
from hplacer_optimizer.errors import HPlacerError, PlannerUnavailableError
from hplacer_optimizer.log import LOGGER, warn_once
from hplacer_optimizer.machines import Machine, host
from hplacer_optimizer.options import PLANNING_SHARE, WAIT_S, Options
from hplacer_optimizer.planners import Budget, local_search
from hplacer_optimizer.plans.elsewhere import why_elsewhere
from hplacer_optimizer.plans.fingerprint import miss_line
from hplacer_optimizer.plans.guard import APPLY, KEEP, MEASURE, Here, decide
from hplacer_optimizer.plans.making import Search, make_plan
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plugin import verifying
from hplacer_optimizer.plugin.cluster_hosts import hosts_of_tasks
from hplacer_optimizer.plugin.disabling import disabled
from hplacer_optimizer.plugin.history import GraphRecord, level, log_report
from hplacer_optimizer.plugin.known_plans import KnownPlans
from hplacer_optimizer.plugin.trials import function_calls
from hplacer_optimizer.plugin.trials.process_trials import Trials
from hplacer_optimizer.pretraining import background
from hplacer_optimizer.scripts import exchange, step_catcher
from hplacer_optimizer.support.threads import AtExit

_AT_EXIT_S = 4.0
_CLOSING_S = 2.0  # of it, for searches and trials to store what they found
_PATIENCE_S = 0.1  # between two looks at what others do
_AT_ONCE = "etf"  # the planner that takes no time

_start_lock = threading.Lock()
_service: Service | None = None  # TensorFlow has one registry of passes in a process


def start() -> None:
    """Registers the pass and starts what answers it; idempotent and cheap.

    Raises NativeBuildError if the native part is missing or built for another TensorFlow.
    """
    global _service
    if _service is not None and _service.is_running:
        return

    tf_module = native.load()
    with _start_lock:
        if _service is None:
            tf_module.register_passes(_default_entry())
            AtExit(_stop, limit_s=_AT_EXIT_S, name="hplacer-exit")
            os.register_at_fork(after_in_child=_restart_in_child)
            _service = Service(KnownPlans())
        if not _service.is_running:
            _service.start()


def history() -> list[GraphRecord]:
    """What the optimizer did with each graph of this process, oldest first.

    Raises:
        NativeBuildError: the native part is missing or built for another TensorFlow.

    Example:
        >>> import hplacer_optimizer as hp
        >>> import tensorflow as tf
        >>> two_cpus = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
        >>> with tf.Graph().as_default():
        ...     square = tf.linalg.matmul(*[tf.random.normal([64, 64])] * 2)
        ...     config = hp.session_config(two_cpus, cache="plans", min_ops=1, min_gain=-1)
        ...     with tf.compat.v1.Session(config=config) as session:
        ...         _ = session.run(square)
        >>> hp.history()[-1].outcome  # "loaded" from the next time on
        'planned'
    """
    plans = KnownPlans() if _service is None else _service.plans
    reports = native.load().reports()
    return [GraphRecord.of(report, plans.of(report.fingerprint)) for report in reports]


def _default_entry() -> bytes:
    from tensorflow.core.protobuf import rewriter_config_pb2

    entry = rewriter_config_pb2.RewriterConfig.CustomGraphOptimizer()
    Options().to_entry(entry, changed_only=False)
    return bytes(entry.SerializeToString())


def _stop() -> None:
    if _service is not None:
        _service.stop()


def _restart_in_child() -> None:
    """A forked child has no threads; its locks may have been held by one."""
    global _service, _start_lock
    _start_lock = threading.Lock()
    if _service is not None:
        _service.plans.forget_readers()
        function_calls.forget()
        _service = Service(_service.plans)
        _service.start()


class Service:
    """Answers the requests of the pass in this process.

    Args:
        plans: that this process knows.
    """

    def __init__(self, plans: KnownPlans) -> None:
        self.plans = plans
        self.trials = Trials(plans)
        self._dispatcher: threading.Thread | None = None
        self._planning = threading.Lock()  # planners use every core: one at a time
        self._searches: dict[threading.Thread, threading.Event] = {}  # what ends that of each

    @property
    def is_running(self) -> bool:
        """Whether requests are taken."""
        return self._dispatcher is not None and self._dispatcher.is_alive()

    def start(self) -> None:
        """Takes requests from now on. Raises RuntimeError if there is no thread for that."""
        if not isinstance(_thread.start_new_thread, types.BuiltinFunctionType):
            raise RuntimeError("gevent or eventlet has replaced Python's threads")
        tf_module = native.load()
        tf_module.open()
        self._dispatcher = threading.Thread(target=self._dispatch, name="hplacer", daemon=True)
        try:
            self._dispatcher.start()
        except RuntimeError:
            tf_module.close()
            raise

    def stop(self) -> None:
        """At exit: no thread of ours may be inside native code when the interpreter ends.

        Searches that are told to end have a moment to store what they found.
        """
        native.load().close()
        for stop in list(self._searches.values()):
            stop.set()
        threads = [*self.trials.stop(), *self._searches]
        if self._dispatcher is not None:
            threads.append(self._dispatcher)
        deadline = time.monotonic() + _CLOSING_S
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))

    def look_up(self, request: Any) -> None:
        """Answers with the plan of the graph, or that a plan is to be made."""
        if self.trials.asks_for_plan(request):
            self._answer_trial(request)
            return
        options = _options(request)
        if options.plan is not None:
            self._look_up_pinned(request, options.plan)
            return
        store = PlanStore.from_options(options)
        # With option verify a verdict may have come since.
        plan = self.plans.stored(request, store, again=options.verify)
        elsewhere = _elsewhere(request, plan) if plan is not None else ""
        if plan is not None and not elsewhere:
            if options.on_miss == "background":
                _search_again(request, options, store)
            if options.on_miss == "trial" and (
                reason := self.trials.take_plan(request, plan, options, store)
            ):
                request.finish_kept(reason)
                return
            _decide(request, plan, options)
            return
        if elsewhere:
            LOGGER.log(
                level(request), "the stored plan of %s is not used: %s", request.label, elsewhere
            )
        LOGGER.debug("%s", miss_line(request.label, dict(request.fingerprint_parts)))
        if options.on_miss == "skip":
            request.finish_declined(elsewhere)
        else:
            request.finish_missing(_rates(request.devices))

    def plan(self, request: Any) -> None:
        """Answers with a plan that is made for the captured graph, and kept for the next run."""
        if self.trials.asks_for_plan(request):
            self.trials.does_not_fit(request)
            request.finish_kept("the plan that is tried does not fit it")
            return
        options = _options(request)
        if options.plan is not None:
            request.finish_kept(f"the plan {options.plan} (option plan) does not fit it")
            return
        store = PlanStore.from_options(options)
        with self._stopped_with(request) as stop:
            machine = _detect(request.devices, ask_driver=True)
            if options.on_miss == "trial" and (
                reason := self.trials.take_capture(request, machine, options, store)
            ):
                request.finish_kept(reason)
                return
            with self._alone(stop):
                if options.on_miss == "background":
                    reason = _search_later(request, machine, options, store)
                    verifying.remember(request, None, options, moves=False)
                    request.finish_kept(reason)
                    return
                plan, trace = make_plan(request, machine, _search_for(request, options, stop))
            if not plan.feasible:
                warn_once(
                    f"infeasible {request.fingerprint}",
                    f"the plan for {request.label} may not fit: {trace.infeasible_because}",
                )
            self.plans.keep(store, plan)
        _decide(request, plan, options)

    def _answer_trial(self, request: Any) -> None:
        plan = self.trials.plan_for(request)
        if plan is None:
            request.finish_kept("it has no plan that is tried")
        else:
            _assign(request, plan)

    def report(self, report: Any) -> None:
        """Tells what became of a graph."""
        capturing = exchange.directory(exchange.STEP)
        if capturing is not None:
            step_catcher.remember(capturing, report)
            return
        known = self.plans.of(report.fingerprint)
        is_of_trial = self.trials.is_of_trial(report.fingerprint)
        is_tried = is_of_trial and report.outcome in ("loaded", "shared")
        if report.trains and not is_of_trial:
            exchange.tell_result(None)
        log_report(report, known[0] if known else None, is_tried=is_tried)

    def _dispatch(self) -> None:
        tf_module = native.load()
        while True:
            try:
                request = tf_module.next_request()
                if request is None:
                    return
                self._hand_on(request)
            except Exception as error:  # the next graph may have more luck
                warn_once("dispatch", f"a graph was not looked at: {type(error).__name__}: {error}")

    def _hand_on(self, request: Any) -> None:
        if request.stage == "report":
            self.report(request.report)
            return
        thread = threading.Thread(
            target=self._serve, args=(request,), name="hplacer-planner", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # there may be no more threads
            request.finish_declined(f"{type(error).__name__}: {error}")

    def _serve(self, request: Any) -> None:
        # TensorFlow used by a planner must not be planned itself: this thread's configs are off.
        with disabled():
            try:
                capturing = exchange.directory(exchange.STEP)
                if capturing is not None:
                    step_catcher.answer(capturing, request, _options(request), _detect)
                elif request.stage == "lookup":
                    self.look_up(request)
                else:
                    self.plan(request)
            except HPlacerError as error:
                request.finish_declined(str(error))
            except BaseException as error:  # whatever it is, it is an answer
                request.finish_declined(f"{type(error).__name__}: {error}")

    def _look_up_pinned(self, request: Any, path: str) -> None:
        plan = self.plans.pinned(path)
        if plan.fingerprint == request.fingerprint:
            _assign(request, plan)
        else:
            request.finish_kept(f"it is not the graph of the plan {path} (option plan)")

    @contextlib.contextmanager
    def _stopped_with(self, request: Any) -> Iterator[threading.Event]:
        """What is set once nobody waits for this request any more, or the process ends."""
        stop, over = threading.Event(), threading.Event()

        def watch() -> None:
            while not over.wait(_PATIENCE_S):
                if request.is_abandoned:
                    stop.set()

        self._searches[threading.current_thread()] = stop
        threading.Thread(target=watch, name="hplacer-watch", daemon=True).start()
        try:
            yield stop
        finally:
            over.set()
            self._searches.pop(threading.current_thread(), None)

    @contextlib.contextmanager
    def _alone(self, stop: threading.Event) -> Iterator[None]:
        """With no other planner in this process beside it."""
        while not self._planning.acquire(timeout=_PATIENCE_S):
            if stop.is_set():
                raise PlannerUnavailableError("another planner is still running")
        try:
            yield
        finally:
            self._planning.release()


# ---- one request ----


def _options(request: Any) -> Options:
    return Options.from_entry(verifying.entry_of(request))


def _detect(devices: Any, *, ask_driver: bool = False) -> Machine:
    """Of a session; `ask_driver` for true links, which rates do not need."""
    import tensorflow as tf

    inter_op, intra_op = host.tensorflow_threads(
        tf.config.threading.get_inter_op_parallelism_threads(),
        tf.config.threading.get_intra_op_parallelism_threads(),
    )
    return machines.detect(
        devices,
        inter_op_threads=inter_op,
        intra_op_threads=intra_op,
        hosts=hosts_of_tasks(),
        is_task=True,
        ask_driver=ask_driver,
    )


def _elsewhere(request: Any, plan: Plan) -> str:
    """Why the plan is one for other accelerators; "": it is not."""
    if all(device.type == "CPU" for device in request.devices):
        return ""
    return why_elsewhere(plan, _detect(request.devices))


def _rates(devices: Any) -> Any:
    machine = _detect(devices)
    return native.machine_rates(machine.kinds, machine.device_kind)


def _search_for(request: Any, options: Options, stop: threading.Event) -> Search:
    """How a plan is looked for while the training process waits."""
    seconds = _seconds(options)
    if options.planner != _AT_ONCE:
        LOGGER.log(
            level(request),
            "%s plans %s for at most %g s",
            options.planner,
            request.label,
            seconds,
        )
    patience = None if options.on_miss == "learn" else local_search.patience(request.num_ops)
    return Search(
        planner=options.planner,
        seed=options.seed,
        budget=Budget(seconds=seconds, patience=patience, stop=stop),
        cost_table=options.cost_table,
        host_offload=options.host_offload,
        isolated=True,
    )


def _seconds(options: Options) -> float:
    """What the planner may take of the time that the training process waits.

    Less than the budget only where a timeout_s is given, or an entry was written by hand.
    """
    wait_s = options.timeout_s or WAIT_S
    seconds = PLANNING_SHARE * wait_s
    if options.on_miss == "learn" or options.budget_s <= seconds:
        return options.budget_s
    if options.budget_s != Options.budget_s:
        warn_once(
            f"budget_s {options.budget_s} {wait_s}",
            f"the planner has {seconds:g} s of budget_s={options.budget_s:g}, as training waits "
            f"for timeout_s={wait_s:g}: set timeout_s={replace(options, timeout_s=None).wait_s:g}",
        )
    return seconds


def _search_later(request: Any, machine: Machine, options: Options, store: PlanStore) -> str:
    """Starts the search in the background, and tells why there is no plan yet.

    Training does not depend on it.
    """
    try:
        search = background.start(request, machine, options, store)
    except Exception as error:
        warn_once("background", f"no search in the background: {error}")
        return "no search for a plan could be started in the background"
    if search is None:
        return "another process searches for a plan in the background, for the next start"
    LOGGER.log(
        level(request),
        "%s searches for a better plan for %s for %g s in the background, log %s; "
        "`kill %d` ends it and keeps its best plan",
        options.planner,
        request.label,
        options.budget_s,
        search.log,
        search.process_id,
    )
    return "a plan is searched for in the background, for the next start"


def _search_again(request: Any, options: Options, store: PlanStore) -> None:
    """A search in the background that was killed, such as by a shutdown, starts again."""
    try:
        search = background.resume(request.fingerprint, options, store)
    except Exception as error:
        warn_once("background", f"no search in the background: {error}")
        return
    if search is not None:
        LOGGER.log(
            level(request),
            "the search for a better plan for %s goes on in the background, log %s; "
            "`kill %d` ends it and keeps its best plan",
            request.label,
            search.log,
            search.process_id,
        )


def _decide(request: Any, plan: Plan, options: Options) -> None:
    """The plan takes effect if it is better than TensorFlow's placement, for all that is known."""
    verifies = verifying.timed_start(request, options) is not None
    decision = decide(plan, Here.now(min_gain=options.min_gain, verifies=verifies))
    applied = verifying.remember(request, plan, options, moves=decision.action != KEEP)
    if decision.action == APPLY or (decision.action == MEASURE and applied):
        _assign(request, plan)
    else:
        request.finish_kept(decision.why)


def _assign(request: Any, plan: Plan) -> None:
    request.finish_assigned(
        plan.node_names_blob,
        plan.node_hashes,
        plan.node_ranks,
        plan.structure,
        plan.node_devices.astype(np.uint16),
        plan.device_names,
        _rates(request.devices),
    )
