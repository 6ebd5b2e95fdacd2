"""Sees the training steps of a process.

Two places of TensorFlow see every step: `ConcreteFunction._call_flat`, which each call of a
`tf.function` ends up in, Keras `fit` included, and `BaseSession.run`. A call trains if its graph
updates variables.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from hplacer_optimizer import emulation
from hplacer_optimizer.capture.training_ops import (
    applies_updates,
    assigns_what_it_reads,
    called_functions,
    is_gradient,
)
from hplacer_optimizer.log import warn_once
from hplacer_optimizer.measuring.training_steps.own_work import OwnWork
from hplacer_optimizer.measuring.training_steps.recording import (
    EMULATED_STEPS,
    SESSION,
    Recorder,
    Steps,
)

_STEPS_ATTRIBUTE = "_hplacer_steps"
_NUMBER_ATTRIBUTE = "_hplacer_number"
_MAX_SEEN = 50
_numbers = itertools.count()


class _Inside(threading.local):
    """Of a thread."""

    run = False  # whether it is in a session's step


class Call(NamedTuple):
    """The function that was called, or the session that ran, and with what.

    The arguments of a session are a pair of those by position and those by keyword.
    """

    of: Any
    arguments: tuple[Any, ...]
    again: Callable[..., Any] | None = None  # runs the same with other options of a session


class StepObserver:
    """Of a process; `on_step` is for those who want to know."""

    def __init__(self, wanted: int | None = None) -> None:
        """`wanted`: steps, see `Recorder`."""
        self.recorder = new_recorder(wanted)
        self.own_work: OwnWork | None = None
        """What takes no virtual time, where times are virtual."""
        self.seen: dict[str, None] = {}
        """Names of what was called, a few of them."""
        self.compiled: dict[str, None] = {}
        """The same of what trains and is compiled by XLA."""
        self.is_over = False
        """No step is of interest any more."""
        self._inside = _Inside()
        self._is_asynchronous: bool | None = None

    def on_step(self, steps: Steps, call: Call, is_enough: bool) -> None:
        """A step has ended: the last one of the warm-up, one of 1, 2, 4, 8, ... or of a few others,
        or `is_enough`, from which on they can be timed.
        """

    def on_session(self, session: Any, target: str) -> None:
        """There is a new session."""

    # ---- what TensorFlow calls ----

    def install(self) -> None:
        """Wraps functions and sessions; call it once, after TensorFlow was imported."""
        from tensorflow.python.eager import context
        from tensorflow.python.eager.polymorphic_function import concrete_function

        function_class = concrete_function.ConcreteFunction
        call_original = function_class._call_flat
        executing_eagerly = context.executing_eagerly
        begin, end_now = self._clocks()

        @functools.wraps(call_original)
        def call_flat(function: Any, *arguments: Any, **keywords: Any) -> Any:
            # self: it was never called before.
            steps: Any = getattr(function, _STEPS_ATTRIBUTE, self)
            # It does not train, or is being traced.
            if self.is_over or steps is None or not executing_eagerly():
                return call_original(function, *arguments, **keywords)
            start = begin()
            result = call_original(function, *arguments, **keywords)
            end = end_now()
            if steps is self:
                steps = self._first(self._look_at_function, function)
            if steps is not None and steps.add(start, end):
                self._look_at_step(steps, Call(function, arguments))
            return result

        function_class._call_flat = call_flat
        self.install_sessions()

    def _clocks(self) -> tuple[Callable[[], float], Callable[[], float]]:
        """What is asked for the time when a step begins, and when it has ended."""
        clock = emulation.step_clock()
        if not emulation.is_on():
            return clock, clock
        self.own_work = self.own_work or OwnWork(clock)
        return self.own_work.begins, self.own_work.ended

    def install_sessions(self) -> None:
        """Wraps sessions alone; call it once."""
        from tensorflow.python.client import session

        session_class = session.BaseSession
        init_original, run_original = session_class.__init__, session_class.run
        callable_original = session_class.make_callable

        @functools.wraps(init_original)
        def init(session: Any, target: Any = "", *arguments: Any, **keywords: Any) -> None:
            init_original(session, target, *arguments, **keywords)
            self.on_session(session, target)

        @functools.wraps(callable_original)
        def make_callable(session: Any, fetches: Any, *arguments: Any, **keywords: Any) -> Any:
            made = callable_original(session, fetches, *arguments, **keywords)

            def call(session: Any, fetches: Any, *values: Any, **options: Any) -> Any:
                return made(*values, **options)

            return functools.partial(self._timed(call, repeats=False), session, fetches)

        session_class.__init__ = init
        session_class.run = functools.wraps(run_original)(self._timed(run_original, repeats=True))
        session_class.make_callable = make_callable

    def _timed(self, run_original: Callable[..., Any], *, repeats: bool) -> Callable[..., Any]:
        """With the steps of sessions noted; one within another, as a callable's, belongs to that.

        `repeats`: what runs it takes options of a session.
        """
        begin, end_now = self._clocks()

        def run(session: Any, fetches: Any, *arguments: Any, **keywords: Any) -> Any:
            if self.is_over:
                return run_original(session, fetches, *arguments, **keywords)
            key, inside = _key(fetches), self._inside
            known = session.__dict__.setdefault(_STEPS_ATTRIBUTE, {})
            steps = known.get(key, self)  # self: never run before
            if steps is None or inside.run:
                return run_original(session, fetches, *arguments, **keywords)
            inside.run = True
            try:
                start = begin()
                result = run_original(session, fetches, *arguments, **keywords)
                end = end_now()
            finally:
                inside.run = False
            if steps is self:
                steps = known[key] = self._first(self._look_at_fetches, session.graph, key)
            if steps is not None and steps.add(start, end):
                again = functools.partial(run_original, session, fetches, *arguments, **keywords)
                called = Call(session, (arguments, keywords), again if repeats else None)
                self._look_at_step(steps, called)
            return result

        return run

    def _first(self, look: Callable[..., Steps | None], *at: Any) -> Steps | None:
        """The steps that a first call belongs to."""
        steps: Steps | None = self._safely(look, *at)
        if steps is not None:
            steps.first_calls.append(len(steps.starts))
        return steps

    def _look_at_step(self, steps: Steps, call: Call) -> None:
        is_enough = self.recorder.look(steps)
        self._safely(self.on_step, steps, call, is_enough)

    def _safely(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns; None if it fails, which ends the watch and not the script."""
        try:
            return function(*arguments)
        except Exception as error:
            self.is_over = True
            warn_once("steps", f"steps are not timed: {type(error).__name__}: {error}")
            return None

    # ---- what trains ----

    def _look_at_function(self, function: Any) -> Steps | None:
        """Its steps, None if it does not train; remembers which."""
        graph = function.graph
        own = graph.as_graph_def()
        library = {found.signature.name: found for found in own.library.function}
        is_compiled = _is_compiled(function.function_def)
        # A function that is traced again updates the same variables.
        key = graph.name, frozenset(map(_number, graph.variables))
        steps = self._look(key, f"function {graph.name}", own.node, library, is_compiled)
        setattr(function, _STEPS_ATTRIBUTE, steps)
        return steps

    def _look_at_fetches(self, graph: Any, key: Any) -> Steps | None:
        ops = _closure(graph, _names(key))
        library = {}
        if any(called_functions(op.node_def) for op in ops):
            definition = graph.as_graph_def().library
            library = {found.signature.name: found for found in definition.function}
        updates = frozenset(op.name for op in ops if applies_updates([op.type]))
        nodes = [op.node_def for op in ops]
        return self._look((_number(graph), updates), SESSION, nodes, library, False)

    def _look(
        self,
        key: Any,
        name: str,
        nodes: Iterable[Any],
        library: Mapping[str, Any],
        is_compiled: bool,
    ) -> Steps | None:
        """Sees through calls, but not into what XLA compiles: that has no ops to be placed."""
        found, hidden = _Types(), _Types()
        todo = deque([(nodes, is_compiled)])
        called: set[str] = set()
        while todo:
            nodes, is_hidden = todo.popleft()
            for node in nodes:
                (hidden if is_hidden else found).add(node)
                for callee in called_functions(node):
                    if callee in library and callee not in called:
                        called.add(callee)
                        inner = library[callee]
                        todo.append((inner.node_def, is_hidden or _is_compiled(inner)))
        if len(self.seen) < _MAX_SEEN:
            self.seen[name] = None
        if not found.train() and hidden.train():
            self.compiled[name] = None
        if not (found.train() or hidden.train()):
            return None
        return self.recorder.steps(key, name)

    # ---- the end ----

    def wait_for_devices(self, steps: Steps) -> None:
        """Now and then, and notes when they had done all that these steps are; for `on_step`."""
        is_time = len(steps.starts) >= steps.next_wait
        if is_time and (not steps.waits or self.recorder.main is steps):
            done_s = self._synchronise()
            if done_s is not None:
                steps.waited(done_s)

    def _synchronise(self) -> float | None:
        """Waits for what accelerators have to do; None if none of them runs after its call.

        Returns the time then, on the clock of the steps.
        """
        import tensorflow as tf

        if self._is_asynchronous is None:
            self._is_asynchronous = bool(tf.config.list_physical_devices("GPU"))
        if not self._is_asynchronous:
            return None
        with contextlib.suppress(tf.errors.OpError, ValueError, RuntimeError):
            tf.test.experimental.sync_devices()
        return emulation.step_clock()()


def new_recorder(wanted: int | None) -> Recorder:
    """Of this process: virtual steps last longer than they say, and a few are enough."""
    return Recorder(EMULATED_STEPS if wanted is None and emulation.is_on() else wanted)


class _Types:
    """The op types of a graph, and whether it computes gradients."""

    def __init__(self) -> None:
        self._types: set[str] = set()
        self._has_gradients = False

    def add(self, node: Any) -> None:
        self._types.add(node.op)
        self._has_gradients = self._has_gradients or is_gradient(node.name)

    def train(self) -> bool:
        """A metric updates variables too, but computes no gradient."""
        return applies_updates(self._types) or (
            self._has_gradients and assigns_what_it_reads(self._types)
        )


def _number(thing: Any) -> int:
    """Unlike `id`, it is never that of another one, either."""
    number: int | None = getattr(thing, _NUMBER_ATTRIBUTE, None)
    if number is None:
        number = next(_numbers)
        setattr(thing, _NUMBER_ATTRIBUTE, number)
    return number


def _is_compiled(definition: Any) -> bool:
    attribute = definition.attr.get("_XlaMustCompile")
    return attribute is not None and attribute.b


def _key(fetches: Any) -> Any:
    """The names of all that a structure of fetches has, nested alike; None: it has no name."""
    if isinstance(fetches, (list, tuple)):
        return tuple([_key(value) for value in fetches])
    if isinstance(fetches, str):
        return fetches
    name = getattr(fetches, "name", None)
    if name is None and isinstance(fetches, Mapping):
        return tuple([_key(value) for value in fetches.values()])
    return name if isinstance(name, str) else None


def _names(key: Any) -> Iterator[str]:
    """All names in a key."""
    if isinstance(key, tuple):
        for part in key:
            yield from _names(part)
    elif key is not None:
        yield key


def _closure(graph: Any, names: Iterable[str]) -> list[Any]:
    """The ops that run when these are fetched."""
    todo = []
    for name in names:
        with contextlib.suppress(KeyError, ValueError, TypeError):
            element = graph.as_graph_element(name)
            todo.append(getattr(element, "op", element))
    found = {}
    while todo:
        op = todo.pop()
        if op.name not in found:
            found[op.name] = op
            todo += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return list(found.values())
