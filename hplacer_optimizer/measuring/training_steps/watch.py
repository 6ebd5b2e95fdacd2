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
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from hplacer_optimizer.capture.training_ops import (
    applies_updates,
    assigns_what_it_reads,
    is_gradient,
)
from hplacer_optimizer.log import warn_once
from hplacer_optimizer.measuring.training_steps.recording import SESSION, WARMUP, Recorder, Steps

_STEPS_ATTRIBUTE = "_hplacer_steps"
_NUMBER_ATTRIBUTE = "_hplacer_number"
_MAX_SEEN = 50
_numbers = itertools.count()
_clock = time.perf_counter


class _Inside(threading.local):
    """Of a thread."""

    run = False  # whether it is in a session's step


class Call(NamedTuple):
    """The function that was called, or the session that ran, and with what."""

    of: Any
    arguments: tuple[Any, ...]
    again: Callable[..., Any] | None = None  # runs the same with other options of a session


class Watch:
    """Of a process; `on_step` is for those who want to know."""

    def __init__(self, wanted: int | None = None) -> None:
        """`wanted`: steps, see `Recorder`."""
        self.recorder = Recorder(wanted)
        self.seen: dict[str, None] = {}
        """Names of what was called, a few of them."""
        self.compiled: dict[str, None] = {}
        """The same of what trains and is compiled by XLA."""
        self.is_over = False
        """No step is of interest any more."""
        self._inside = _Inside()
        self._is_asynchronous: bool | None = None

    def on_step(self, steps: Steps, call: Call, is_enough: bool) -> None:
        """A step has ended: the last one of the warm-up, one of 1, 2, 4, 8, ..., or `is_enough`,
        from which on they can be timed.
        """

    def on_session(self, session: Any, target: str) -> None:
        """There is a new session."""

    # ---- what TensorFlow calls ----

    def install(self) -> None:
        """Wraps functions and sessions; call it once, after TensorFlow was imported."""
        from tensorflow.python.client import session
        from tensorflow.python.eager import context
        from tensorflow.python.eager.polymorphic_function import concrete_function

        function_class = concrete_function.ConcreteFunction
        call_original = function_class._call_flat
        executing_eagerly = context.executing_eagerly

        @functools.wraps(call_original)
        def call_flat(function: Any, *arguments: Any, **keywords: Any) -> Any:
            steps = function.__dict__.get(_STEPS_ATTRIBUTE, self)  # self: never called before
            # It does not train, or is being traced.
            if self.is_over or steps is None or not executing_eagerly():
                return call_original(function, *arguments, **keywords)
            start = _clock()
            result = call_original(function, *arguments, **keywords)
            end = _clock()
            is_first = steps is self
            if is_first:
                steps = self._safely(self._look_at_function, function)
            if steps is not None:
                self._took(steps, start, end, is_first, function, arguments)
            return result

        function_class._call_flat = call_flat
        self._install_session(session.BaseSession)

    def _install_session(self, session_class: Any) -> None:
        init_original, run_original = session_class.__init__, session_class.run
        callable_original = session_class.make_callable

        @functools.wraps(init_original)
        def init(session: Any, target: Any = "", *arguments: Any, **keywords: Any) -> None:
            init_original(session, target, *arguments, **keywords)
            self.on_session(session, target)

        @functools.wraps(run_original)
        def run(session: Any, fetches: Any, *arguments: Any, **keywords: Any) -> Any:
            def call(**options: Any) -> Any:
                return run_original(session, fetches, *arguments, **keywords, **options)

            key = tuple(_names(fetches))
            return self._run(Call(session, (arguments, keywords), call), key, call)

        @functools.wraps(callable_original)
        def make_callable(session: Any, fetches: Any, *arguments: Any, **keywords: Any) -> Any:
            made = callable_original(session, fetches, *arguments, **keywords)
            key = tuple(_names(fetches))

            def call(*values: Any, **options: Any) -> Any:
                return self._run(Call(session, values), key, lambda: made(*values, **options))

            return call

        session_class.__init__ = init
        session_class.run = run
        session_class.make_callable = make_callable

    def _run(self, called: Call, key: tuple[str, ...], run: Callable[[], Any]) -> Any:
        """A session's step; one within another, as a callable's, belongs to that."""
        session = called.of
        known = session.__dict__.setdefault(_STEPS_ATTRIBUTE, {})
        steps = known.get(key, self)  # self: never run before
        if self.is_over or steps is None or self._inside.run:
            return run()
        self._inside.run = True
        try:
            start = _clock()
            result = run()
            end = _clock()
        finally:
            self._inside.run = False
        is_first = steps is self
        if is_first:
            steps = known[key] = self._safely(self._look_at_fetches, session.graph, key)
        if isinstance(steps, Steps):
            self._took(steps, start, end, is_first, *called)
        return result

    def _safely(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns; None if it fails, which ends the watch and not the script."""
        try:
            return function(*arguments)
        except Exception as error:
            self.is_over = True
            warn_once("steps", f"steps are not timed: {type(error).__name__}: {error}")
            return None

    def _took(self, steps: Steps, start: float, end: float, is_first: bool, *called: Any) -> None:
        is_enough = self.recorder.add(steps, start, end, is_first=is_first)
        number = len(steps.starts)
        if is_enough or number == WARMUP or number & (number - 1) == 0:
            self._safely(self.on_step, steps, Call(*called), is_enough)

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
        function.__dict__[_STEPS_ATTRIBUTE] = steps
        return steps

    def _look_at_fetches(self, graph: Any, key: tuple[str, ...]) -> Steps | None:
        ops = _closure(graph, key)
        library = {}
        if any(_called(op.node_def) for op in ops):
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
                for callee in _called(node):
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

    def synchronise(self) -> float | None:
        """Waits for what accelerators have to do; None if none of them runs after its call."""
        import tensorflow as tf

        if self._is_asynchronous is None:
            self._is_asynchronous = bool(tf.config.list_physical_devices("GPU"))
        if not self._is_asynchronous:
            return None
        with contextlib.suppress(tf.errors.OpError, ValueError, RuntimeError):
            tf.test.experimental.sync_devices()
        return _clock()


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


def _called(node: Any) -> list[str]:
    """The functions that a NodeDef names."""
    names = []
    for value in node.attr.values():
        if value.WhichOneof("value") == "func":
            names.append(value.func.name)
        elif value.WhichOneof("value") == "list":
            names += [function.name for function in value.list.func]
    return names


def _is_compiled(definition: Any) -> bool:
    attribute = definition.attr.get("_XlaMustCompile")
    return attribute is not None and attribute.b


def _names(fetches: Any) -> list[str]:
    """Of all that a (nested) structure of fetches has; what has no name is left out."""
    if isinstance(fetches, (list, tuple)):
        return [name for value in fetches for name in _names(value)]
    if isinstance(fetches, Mapping):
        return [name for value in fetches.values() for name in _names(value)]
    name = fetches if isinstance(fetches, str) else getattr(fetches, "name", None)
    return [] if name is None else [name]


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
