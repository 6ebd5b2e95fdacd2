"""Times the training steps of a script from inside of its process.

Two places of TensorFlow see every step: `ConcreteFunction._call_flat`, which each call of a
`tf.function` ends up in, Keras `fit` included, and `BaseSession.run`. A call trains if its graph
updates variables. Once enough steps are known, they are written down and the process is ended.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import util
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture import native
from hplacer_optimizer.capture.training_ops import (
    applies_updates,
    assigns_what_it_reads,
    is_gradient,
)
from hplacer_optimizer.measuring.scripts import child
from hplacer_optimizer.measuring.scripts.recording import SESSION, WARMUP, Recorder, Steps

_CLOSING_S = 5.0  # for sessions on servers
_STEPS_ATTRIBUTE = "_hplacer_steps"
_MAX_SEEN = 50
_clock = time.perf_counter


class _Inside(threading.local):
    """Of a thread."""

    run = False  # whether it is in a session's step


class Timer:
    """Of this process; a forked child begins anew."""

    def __init__(self, where: Path, wanted: int | None) -> None:
        self._where, self._wanted = where, wanted
        self._recorder = Recorder(wanted)
        self._remote: weakref.WeakSet[Any] = weakref.WeakSet()
        self._inside = _Inside()
        self._stopping = threading.Lock()
        self._synced_s: float | None = None
        self._is_asynchronous: bool | None = None
        self._seen: dict[str, None] = {}
        self._compiled: dict[str, None] = {}
        self._is_fork = False
        self._last: tuple[Any, Callable[..., Any] | None] = None, None
        self._devices: dict[str, str] = {}
        os.register_at_fork(after_in_child=self._begin_anew)
        atexit.register(self._write)
        # A child of multiprocessing ends without the functions of atexit.
        util.register_after_fork(self, Timer._write_at_end)

    def _begin_anew(self) -> None:
        """In a forked child, whose steps are its own; its parent writes for itself."""
        self._recorder = Recorder(self._wanted)
        self._stopping = threading.Lock()
        self._is_fork = True

    def _write_at_end(self) -> None:
        util.Finalize(self, self._write, exitpriority=0)

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
            if steps is None or not executing_eagerly():  # does not train, or is being traced
                return call_original(function, *arguments, **keywords)
            start = _clock()
            result = call_original(function, *arguments, **keywords)
            end = _clock()
            is_first = steps is self
            if is_first:
                steps = self._look_at_function(function)
            if steps is not None:
                self._took(steps, start, end, is_first)
            return result

        function_class._call_flat = call_flat
        self._install_session(session.BaseSession)

    def _install_session(self, session_class: Any) -> None:
        init_original, run_original = session_class.__init__, session_class.run
        callable_original = session_class.make_callable

        @functools.wraps(init_original)
        def init(session: Any, target: Any = "", *arguments: Any, **keywords: Any) -> None:
            init_original(session, target, *arguments, **keywords)
            if target:
                self._remote.add(session)

        @functools.wraps(run_original)
        def run(session: Any, fetches: Any, *arguments: Any, **keywords: Any) -> Any:
            def call(**options: Any) -> Any:
                return run_original(session, fetches, *arguments, **keywords, **options)

            return self._run(session, tuple(_names(fetches)), call, call)

        @functools.wraps(callable_original)
        def make_callable(session: Any, fetches: Any, *arguments: Any, **keywords: Any) -> Any:
            made = callable_original(session, fetches, *arguments, **keywords)
            key = tuple(_names(fetches))

            def call(*values: Any, **options: Any) -> Any:
                return self._run(session, key, lambda: made(*values, **options))

            return call

        session_class.__init__ = init
        session_class.run = run
        session_class.make_callable = make_callable

    def _run(
        self,
        session: Any,
        key: tuple[str, ...],
        run: Callable[[], Any],
        again: Callable[..., Any] | None = None,
    ) -> Any:
        """A session's step; one within another, as a callable's, belongs to that.

        `again` runs the same with other options.
        """
        known = session.__dict__.setdefault(_STEPS_ATTRIBUTE, {})
        steps = known.get(key, self)  # self: never run before
        if steps is None or self._inside.run:
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
            steps = known[key] = self._look_at_fetches(session.graph, key)
        if isinstance(steps, Steps):
            self._last = session, again
            self._took(steps, start, end, is_first)
        return result

    def _took(self, steps: Steps, start: float, end: float, is_first: bool) -> None:
        enough = self._recorder.add(steps, start, end, is_first=is_first)
        if len(steps.starts) == WARMUP:
            session, again = self._last
            self._devices = _executed(again) if session in self._remote else self._devices
            self._synchronise()
        if enough and self._stopping.acquire(blocking=False):  # for ever
            self._synced_s = self._synchronise()
            self._write()
            self._close_remote_sessions()
            child.kill_group()

    # ---- what trains ----

    def _look_at_function(self, function: Any) -> Steps | None:
        """Its steps, None if it does not train; remembers which."""
        graph = function.graph
        own = graph.as_graph_def()
        library = {found.signature.name: found for found in own.library.function}
        is_compiled = _is_compiled(function.function_def)
        # A function that is traced again updates the same variables.
        key = graph.name, frozenset(id(variable) for variable in graph.variables)
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
        return self._look((id(graph), updates), SESSION, nodes, library, False)

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
        if len(self._seen) < _MAX_SEEN:
            self._seen[name] = None
        if not found.train() and hidden.train():
            self._compiled[name] = None
        if not (found.train() or hidden.train()):
            return None
        return self._recorder.steps(key, name)

    # ---- the end ----

    def _synchronise(self) -> float | None:
        """Waits for what accelerators have to do; None if none of them runs after its call."""
        import tensorflow as tf

        if self._is_asynchronous is None:
            self._is_asynchronous = bool(tf.config.list_physical_devices("GPU"))
        if not self._is_asynchronous:
            return None
        with contextlib.suppress(tf.errors.OpError, ValueError, RuntimeError):
            tf.test.experimental.sync_devices()
        return _clock()

    def _write(self) -> None:
        main = self._recorder.main
        if main is None and self._is_fork:
            return
        with contextlib.suppress(OSError):  # the parent is gone
            child.write(
                self._where / child.STEPS.replace("*", str(os.getpid())),
                {
                    "name": main.name if main else None,
                    "starts": main.starts if main else [],
                    "ends": main.ends if main else [],
                    "first_calls": main.first_calls if main else [],
                    "synced": self._synced_s,
                    "also": [s.name for s in self._recorder.all.values() if s is not main],
                    "seen": [*self._seen],
                    "compiled": [*self._compiled],
                    "reports": _reports(),
                    "devices": self._devices,
                },
            )

    def _close_remote_sessions(self) -> None:
        """Else their servers keep them, with the memory of their variables."""

        def close() -> None:
            for session in list(self._remote):
                with contextlib.suppress(Exception):  # whatever it is, the process ends now
                    session.close()

        if len(self._remote):
            thread = threading.Thread(target=close, daemon=True)
            thread.start()
            thread.join(_CLOSING_S)


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


def _executed(run: Callable[..., Any] | None) -> dict[str, str]:
    """The device of each node in one more step, as servers have placed it; {}: they do not tell."""
    import tensorflow as tf

    v1 = tf.compat.v1
    metadata = v1.RunMetadata()
    if run is None:
        return {}
    try:
        run(options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    except (tf.errors.OpError, TypeError):  # TypeError: the script gives options of its own
        return {}
    return {node.name: node.device for graph in metadata.partition_graphs for node in graph.node}


def _reports() -> list[dict[str, Any]]:
    """What the pass did with the graphs of this process."""
    is_on = "tensorflow" in sys.modules and os.environ.get("HPLACER_DISABLE") != "1"
    if not is_on or native.is_missing():
        return []
    return [
        {
            "label": report.label,
            "fingerprint": report.fingerprint,
            "outcome": report.outcome,
            "reason": report.reason,
            "trains": report.trains,
            "devices": report.num_devices,
        }
        for report in native.load().reports()
    ]
