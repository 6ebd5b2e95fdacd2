"""The planner's side of the pass: look up, plan, validate, store.

    native pass                       this module
    lookup(fingerprint)  ---------->  store.get            -> assignment, or "missing" + machine
    plan(captured step)  ---------->  planner, simulate    -> assignment, stored for the next run
                                      guard                -> or TensorFlow's placement is kept
    report               ---------->  one log line

A dispatcher thread takes requests from the native bridge; each lookup and each plan runs on a
thread of its own, so that a store which hangs stops nobody else. Planners look at `Budget.stop`,
which is set once nobody waits for their plan any more: after the time limit, after Ctrl-C, at exit.
One's own planners may not look, and run in a process that can be ended. Whatever goes wrong is
answered with a reason: the pass leaves the graph as it was and one warning is logged.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hplacer_optimizer import machines
from hplacer_optimizer.capture import native
from hplacer_optimizer.capture.scripts import child
from hplacer_optimizer.errors import HPlacerError, PlanError, PlannerUnavailableError, StoreError
from hplacer_optimizer.log import LOGGER, log_once, warn_once
from hplacer_optimizer.machines import host
from hplacer_optimizer.options import Options
from hplacer_optimizer.planners import Budget, get_planner, local_search
from hplacer_optimizer.plans.fingerprint import miss_line
from hplacer_optimizer.plans.guard import APPLY, KEEP, MEASURE, Here, decide
from hplacer_optimizer.plans.making import Search, make_plan
from hplacer_optimizer.plans.plan import Plan, load_plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plugin import verifying
from hplacer_optimizer.plugin.disabling import disabled
from hplacer_optimizer.pretraining import background

_CLOSE_TIMEOUT_S = 2.0
_PATIENCE_S = 0.1  # between two looks at what others do
_STORING_S = 1.0  # that training waits for a plan to be written
_AT_ONCE = "etf"  # the planner that takes no time
_BUDGET_SHARE = 0.8  # of the time limit: capture, simulation and storing need the rest

_start_lock = threading.Lock()
_dispatcher: threading.Thread | None = None
_planning = threading.Lock()  # planners use every core: one at a time
_searches: dict[threading.Thread, threading.Event] = {}  # what ends the one of each thread
_lookups: dict[Any, str] = {}  # requests that wait for the store of this directory
# By (directory of the store, or file of option plan; fingerprint): also without a disk.
_plans: dict[tuple[str, str], Plan] = {}
_pinned: set[str] = set()  # those of these that are files


def start() -> None:
    """Registers the pass and starts the dispatcher thread; idempotent and cheap.

    Raises NativeBuildError if the native part is missing or built for another TensorFlow.
    """
    global _dispatcher
    if _dispatcher is not None and _dispatcher.is_alive():
        return

    tf_module = native.load()
    with _start_lock:
        if _dispatcher is not None and _dispatcher.is_alive():
            return
        if _dispatcher is None:
            tf_module.register_passes(_default_entry())
            atexit.register(_stop)
            os.register_at_fork(after_in_child=_restart_in_child)
        tf_module.open()
        _dispatcher = threading.Thread(target=_dispatch, name="hplacer", daemon=True)
        _dispatcher.start()


def _default_entry() -> bytes:
    from tensorflow.core.protobuf import rewriter_config_pb2

    entry = rewriter_config_pb2.RewriterConfig.CustomGraphOptimizer()
    Options().to_entry(entry, changed_only=False)
    return bytes(entry.SerializeToString())


def history() -> list[dict[str, Any]]:
    """What the pass did with each graph of this process, oldest first.

    Keys: graph, fingerprint, outcome ("planned", "loaded" and "shared": a plan is in effect;
    "kept": TensorFlow's own placement is; "skipped", "failed"), reason, ops, units, devices,
    placed (nodes whose device was requested), planner, planning_s, predicted_ns, baseline_ns
    (predicted for TensorFlow's own placement), store_path, and seconds of each phase: pass_s,
    step_s, fingerprint_s, lookup_s, capture_s, plan_s, rewrite_s.

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
        >>> hp.history()[-1]["outcome"]  # "loaded" from the next time on
        'planned'
    """
    return [_describe(report) for report in native.load().reports()]


def step_checks() -> list[dict[str, Any]]:
    """Comparisons of plans with what TensorFlow placed, one per optimised graph.

    Keys: fingerprint, fetches (unknown with option bitwise: empty), nodes, planned (nodes of the
    graph that the plan names), differences (node, planned device, actual device).

    Raises:
        NativeBuildError: the native part is missing or built for another TensorFlow.

    Example, after that of `history`:
        >>> hp.step_checks()[-1]["differences"]
        []
    """
    return [
        {
            "fingerprint": check.fingerprint,
            "fetches": list(check.fetches),
            "nodes": check.num_nodes,
            "planned": check.num_planned,
            "differences": check.differences,
        }
        for check in native.load().step_checks()
    ]


# ---- threads ----


def _dispatch() -> None:
    tf_module = native.load()
    while True:
        request = tf_module.next_request()
        if request is None:
            return
        if request.stage == "report":
            _take_report(request.report)
        else:
            threading.Thread(
                target=_serve, args=(request,), name="hplacer-planner", daemon=True
            ).start()


def _stop() -> None:
    """At exit: no thread of ours may be inside native code when the interpreter ends.

    Searches that are told to end have a moment to store what they found.
    """
    native.load().close()
    deadline = time.monotonic() + _CLOSE_TIMEOUT_S
    for stop in list(_searches.values()):
        stop.set()
    for thread in (*_searches, _dispatcher):
        if thread is not None:
            thread.join(max(deadline - time.monotonic(), 0))


def _restart_in_child() -> None:
    """A forked child has no threads; its locks may have been held by one."""
    global _dispatcher, _start_lock, _planning
    _start_lock = threading.Lock()
    _planning = threading.Lock()
    _searches.clear()
    _lookups.clear()
    _dispatcher = threading.Thread()  # registered already, but not alive
    start()


def _serve(request: Any) -> None:
    # TensorFlow used by a planner must not be planned itself: this thread's configs are off.
    with disabled():
        try:
            capturing = child.directory()
            if capturing is not None:
                child.answer(capturing, request, _options(request), _detect)
            elif request.stage == "lookup":
                _look_up(request)
            else:
                _plan(request)
        except HPlacerError as error:
            request.finish_declined(str(error))
        except BaseException as error:  # whatever it is, it is an answer
            request.finish_declined(f"{type(error).__name__}: {error}")


# ---- requests ----


def _options(request: Any) -> Options:
    from tensorflow.core.protobuf import rewriter_config_pb2

    entry = rewriter_config_pb2.RewriterConfig.CustomGraphOptimizer.FromString(request.entry)
    return Options.from_parameters(entry.parameter_map)


def _detect(devices: Any, *, ask_driver: bool = False) -> machines.Machine:
    """Of a session; `ask_driver` for true links, which rates do not need."""
    import tensorflow as tf

    inter_op, intra_op = host.tensorflow_threads(
        tf.config.threading.get_inter_op_parallelism_threads(),
        tf.config.threading.get_intra_op_parallelism_threads(),
    )
    return machines.detect(
        devices, inter_op_threads=inter_op, intra_op_threads=intra_op, ask_driver=ask_driver
    )


def _rates(devices: Any) -> Any:
    machine = _detect(devices)
    return native.machine_rates(machine.kinds, machine.device_kind)


def _look_up(request: Any) -> None:
    options = _options(request)
    if options.plan is not None:
        _look_up_pinned(request, options.plan)
        return
    store = PlanStore.from_options(options)
    plan = _plans.get((store.directory, request.fingerprint))
    if plan is None or options.verify:  # a verdict may have come since
        plan = _read(request, store) or plan
    if plan is None:
        LOGGER.debug("%s", miss_line(request.label, dict(request.fingerprint_parts)))
    if plan is not None:
        _plans[store.directory, request.fingerprint] = plan
        if options.on_miss == "background":
            _search_again(request, options, store)
    if plan is not None:
        _decide(request, plan, options)
    elif options.on_miss == "skip":
        request.finish_declined("")
    else:
        request.finish_missing(_rates(request.devices))


def _look_up_pinned(request: Any, path: str) -> None:
    plan = _plans.get((path, request.fingerprint))
    if plan is None:
        plan = load_plan(path)
        _plans[path, plan.fingerprint] = plan
        _pinned.add(path)
    if plan.fingerprint == request.fingerprint:
        _assign(request, plan)
    else:
        request.finish_kept(f"it is not the graph of the plan {path} (option plan)")


def _read(request: Any, store: PlanStore) -> Plan | None:
    """The stored plan, if there is one that can be read."""
    for earlier, directory in list(_lookups.items()):
        if directory == store.directory and earlier.is_abandoned:
            raise StoreError(
                f"{directory}: the plan store does not answer; choose another with option cache"
            )
    _lookups[request] = store.directory
    try:
        return store.get(request.fingerprint)
    except PlanError as error:
        warn_once(f"read {store.directory}", f"a stored plan cannot be used: {error}")
    except StoreError as error:
        _warn_of_store(store, error)
    finally:
        _lookups.pop(request, None)
    return None


def _warn_of_store(store: PlanStore, error: StoreError) -> None:
    """Reading and writing fail for one reason: one warning for each store."""
    warn_once(f"store {store.directory}", f"plans are not kept for the next run: {error}")


def _plan(request: Any) -> None:
    options = _options(request)
    if options.plan is not None:
        request.finish_kept(f"the plan {options.plan} (option plan) does not fit it")
        return
    store = PlanStore.from_options(options)
    found = _plans.get((store.directory, request.fingerprint))
    with _stopped_with(request) as stop:
        while not _planning.acquire(timeout=_PATIENCE_S):
            if stop.is_set():
                raise PlannerUnavailableError("another planner is still running")
        try:
            machine = _detect(request.devices, ask_driver=True)
            if options.on_miss == "background":
                reason = _search_on(request, machine, options, store)
                verifying.remember(request, None, options, moves=False)
                request.finish_kept(reason)
                return
            plan = _make_plan(request, machine, options, stop)
        finally:
            _planning.release()
        _plans[store.directory, plan.fingerprint] = plan
        # A disk may hang: training goes on meanwhile.
        _run_at_most(_STORING_S, _put, store, plan, found is None)
    _decide(request, plan, options)


@contextlib.contextmanager
def _stopped_with(request: Any) -> Iterator[threading.Event]:
    """What is set once nobody waits for this request any more, or the process ends."""
    stop, over = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(_PATIENCE_S):
            if request.is_abandoned:
                stop.set()

    _searches[threading.current_thread()] = stop
    threading.Thread(target=watch, name="hplacer-watch", daemon=True).start()
    try:
        yield stop
    finally:
        over.set()
        _searches.pop(threading.current_thread(), None)


def _run_at_most(seconds: float, function: Callable[..., None], *arguments: Any) -> None:
    thread = threading.Thread(target=function, args=arguments, name="hplacer-store", daemon=True)
    thread.start()
    thread.join(seconds)


def _put(store: PlanStore, plan: Plan, stored_fits: bool) -> None:
    try:
        if not store.put(plan, stored_fits=stored_fits) and not stored_fits:
            LOGGER.info("%s: the stored plan stays, the new one is for this process", plan.label)
    except StoreError as error:
        _warn_of_store(store, error)


def _make_plan(
    request: Any, machine: machines.Machine, options: Options, stop: threading.Event
) -> Plan:
    seconds = _seconds(options)
    if options.planner != _AT_ONCE:
        LOGGER.log(
            _level(request),
            "%s plans %s for at most %g s",
            options.planner,
            request.label,
            seconds,
        )
    patience = None if options.on_miss == "learn" else local_search.patience(request.num_ops)
    search = Search(
        planner=options.planner,
        seed=options.seed,
        budget=Budget(seconds=seconds, patience=patience, stop=stop),
        cost_table=options.cost_table,
        host_offload=options.host_offload,
        isolated=True,
    )
    plan, trace = make_plan(request, machine, search)
    if not plan.feasible:
        warn_once(
            f"infeasible {request.fingerprint}",
            f"the plan for {request.label} may not fit: {trace.infeasible_because}",
        )
    return plan


def _seconds(options: Options) -> float:
    """What the planner may take of the time that the training process waits."""
    if options.on_miss == "learn":
        return options.budget_s
    return min(options.budget_s, _BUDGET_SHARE * options.timeout_s)


def _search_on(request: Any, machine: machines.Machine, options: Options, store: PlanStore) -> str:
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
        _level(request),
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
            _level(request),
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


# ---- reports ----


def _plan_of(fingerprint: str) -> tuple[str, Plan] | None:
    for (directory, key), plan in list(_plans.items()):
        if key == fingerprint:
            return directory, plan
    return None


def _path(source: str, plan: Plan) -> str:
    return source if source in _pinned else PlanStore(source).path(plan.fingerprint)


def _describe(report: Any) -> dict[str, Any]:
    found = _plan_of(report.fingerprint)
    described = {
        "graph": report.label,
        "fingerprint": report.fingerprint,
        "outcome": report.outcome,
        "reason": report.reason,
        "ops": report.num_ops,
        "units": found[1].num_units if found else None,
        "devices": report.num_devices,
        "placed": report.num_placed,
        "planner": found[1].planner if found else None,
        "planning_s": found[1].planning_s if found else None,
        "predicted_ns": found[1].step_time_ns if found else None,
        "baseline_ns": found[1].baseline_ns if found else None,
        "store_path": _path(*found) if found else None,
    }
    for phase in ("pass", "step", "fingerprint", "lookup", "capture", "plan", "rewrite"):
        described[f"{phase}_s"] = getattr(report, f"{phase}_s")
    return described


def _take_report(report: Any) -> None:
    capturing = child.directory()
    if capturing is not None:
        child.remember(capturing, report)
    else:
        _log_report(report)


def _level(request_or_report: Any) -> int:
    """Of what is told of a graph: initialisations and the like are nobody's concern."""
    return logging.INFO if request_or_report.trains else logging.DEBUG


def _log_report(report: Any) -> None:
    if report.outcome == "failed":
        warn_once(
            f"{report.label} {report.reason}",
            f"{report.label} keeps TensorFlow's own placement: {report.reason}",
        )
        return
    found = _plan_of(report.fingerprint)
    if report.outcome == "skipped" and report.num_devices < 2:
        log_once(logging.INFO, report.reason, report.reason)
        return
    if found is None or report.outcome in ("kept", "skipped"):
        LOGGER.log(_level(report), "%s is left alone: %s", report.label, report.reason)
        return
    if report.reason:
        warn_once(
            f"{report.label} {report.reason}",
            f"{report.label} was planned again: {report.reason}",
        )
    plan = found[1]
    LOGGER.log(
        _level(report),
        "plan %s for %s (%d ops, %d units, %d devices): %s",
        {"planned": "made", "loaded": "loaded", "shared": "shared"}[report.outcome],
        report.label,
        report.num_ops,
        plan.num_units,
        report.num_devices,
        plan.summary_line(),
    )
    if report.outcome == "planned":
        if plan.budget.get("steps_done"):
            LOGGER.debug(
                "planner of %s: %d %s, %d placements scored in %.1f s",
                report.label,
                plan.budget["steps_done"],
                "updates of the policy" if get_planner(plan.planner).learns else "steps",
                plan.budget["placements_scored"],
                plan.planning_s,
            )
        for note in plan.planner_notes:
            LOGGER.debug("planner of %s: %s", report.label, note)
        for assumption in plan.assumptions:
            log_once(logging.DEBUG, f"assumed {assumption}", f"assumed: {assumption}")
