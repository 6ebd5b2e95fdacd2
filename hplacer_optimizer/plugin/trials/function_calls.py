"""The calls of functions: which instantiation each of them runs.

`Context.call_function` of TensorFlow's eager context runs every function that is not called by
another one, forward and backward functions of a tape included. It is wrapped. A call with the plan
runs under the thread's own options and one parameter more, so that TensorFlow instantiates the
function a second time, once, and the pass knows what it is asked for.

Whatever goes wrong in here, the call runs under TensorFlow's placement, and one warning tells it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.log import warn_once
from hplacer_optimizer.measuring.running_trial import TrialCall
from hplacer_optimizer.options import OPTIMIZER_NAME, TRIAL
from hplacer_optimizer.plugin.trials.tried_function import Clock, TriedFunction

_MARK = "_hplacer_original"
_MOST_OPTIONS = 64  # that are remembered


class _EndedCall(NamedTuple):
    """A call that has ended; what follows it belongs to its step until the thread's next call."""

    function: TriedFunction
    call: TrialCall | None
    began_s: float
    ended_s: float


class _Thread(threading.local):
    is_inside = False  # of a call: the outermost one counts
    step: _EndedCall | None = None


_thread = _Thread()
_functions: dict[bytes, TriedFunction | None] = {}  # by name; None: nothing is tried
_with_plan: dict[tuple[str, bytes], Any] = {}  # the call options, by those without the plan
_clock: Clock | None = None  # None: nothing is watched


def install(context_class: Any, clock: Clock) -> bool:
    """Wraps the calls of functions; a second call changes nothing but the clock.

    False if this TensorFlow has no such calls: then nothing can be tried.
    """
    global _clock
    original = getattr(context_class, "call_function", None)
    if not callable(original):
        return False
    _clock = clock
    if hasattr(original, _MARK):
        return True

    @functools.wraps(original)
    def call_function(self: Any, name: Any, *arguments: Any, **keywords: Any) -> Any:
        if _clock is None or _thread.is_inside:
            return original(self, name, *arguments, **keywords)
        run = functools.partial(original, self, name, *arguments, **keywords)
        if name not in _functions:
            return _run_first(_clock, name, run)
        function = _functions[name]
        return run() if function is None else _run(function, _clock, self, run)

    setattr(call_function, _MARK, original)
    context_class.call_function = call_function
    return True


def watch(name: str, function: TriedFunction) -> None:
    """From its next call on, the calls of the function with this name are its."""
    _functions[name.encode()] = function


def forget() -> None:
    """In a forked child."""
    _thread.step, _thread.is_inside = None, False
    for function in list(_functions.values()):
        if function is not None:
            function.forget()


def _run_first(clock: Clock, name: bytes, run: Callable[[], Any]) -> Any:
    """The first call instantiates the function, and the pass may have it watched."""
    began_s = _now(clock)
    result = run()
    function = _functions.setdefault(name, None)
    if function is not None and began_s is not None:
        function.first_call_s = (_now(clock) or began_s) - began_s
    return result


def _run(function: TriedFunction, clock: Clock, context: Any, run: Callable[[], Any]) -> Any:
    step, _thread.step = _thread.step, None
    if step is not None:
        _safely(step.function, step.function.step_ended, step.call, step.began_s, step.ended_s)
    options = _options_with_plan(function, context) if _needs_options(function) else None
    if options is None:
        return run()
    if function.is_settled:
        return _run_under(options, context, run)
    call = _safely(function, function.next_call)
    with_plan = call is not None and call.with_plan
    began_s = _now(clock)
    _thread.is_inside = True
    try:
        result = _run_under(options, context, run) if with_plan else run()
    except BaseException as error:
        _safely(function, function.failed, call, error)
        raise
    finally:
        _thread.is_inside = False
    ended_s = _now(clock)
    if began_s is not None and ended_s is not None:
        _thread.step = _EndedCall(function, call, began_s, ended_s)
    return result


def _now(clock: Clock) -> float | None:
    """None where an emulated clock has stopped."""
    try:
        return clock.now()
    except HPlacerError:
        return None


def _needs_options(function: TriedFunction) -> bool:
    return function.keeps_plan or not function.is_settled


def _run_under(options: Any, context: Any, run: Callable[[], Any]) -> Any:
    """Under these call options of the thread."""
    data = context._thread_local_data
    own = data.function_call_options
    data.function_call_options = options
    try:
        return run()
    finally:
        data.function_call_options = own


def _options_with_plan(function: TriedFunction, context: Any) -> Any:
    """The call options of this thread that ask for plans; None: the optimizer is off on it."""
    own = _safely(function, lambda: context.function_call_options)
    if own is None:
        return None
    key = own.executor_type, own.config_proto_serialized
    options = _with_plan.get(key, own)  # own: not made yet
    if options is own:
        options = _safely(function, _made_with_plan, own)
        if len(_with_plan) >= _MOST_OPTIONS:
            _with_plan.clear()
        _with_plan[key] = options
    return options


def _made_with_plan(own: Any) -> Any:
    from tensorflow.core.protobuf import config_pb2

    config = config_pb2.ConfigProto.FromString(own.config_proto_serialized)
    entries = config.graph_options.rewrite_options.custom_optimizers
    ours = [entry for entry in entries if entry.name == OPTIMIZER_NAME]
    if not ours:
        return None
    for entry in ours:
        entry.parameter_map[TRIAL].b = True
    return type(own)(executor_type=own.executor_type, config_proto=config)


def _safely(function: TriedFunction, act: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns; None if it fails, which ends the trial and not the training."""
    try:
        return act(*arguments)
    except Exception as error:
        function.settle()
        warn_once(
            "trial",
            f"{function.label} keeps TensorFlow's own placement, as its plan cannot be tried: "
            f"{type(error).__name__}: {error}",
        )
        return None
