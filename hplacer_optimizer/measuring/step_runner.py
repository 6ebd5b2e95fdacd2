"""Runs a captured step under placements, in the process of the caller.

    runner = StepRunner(step, Target(session="", device_names=problem.device_names))
    seconds = runner.run(placement, steps=10)       # of each step
    metadata = runner.trace(placement, steps=3)     # a RunMetadata of each

The graph is loaded once. Each placement gets a session of its own, whose graph asks for the
placement's device at every node of the step, but for groups that are set apart (groups_apart.py).
TensorFlow's placer checks that, and its own optimizations run as in any program. Variables and what
the step is fed with are on the devices of the placement before the first step.

Call it in a process where the optimizer is off (HPLACER_DISABLE=1): it would plan these graphs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hplacer_optimizer import emulation
from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.errors import GraphError, MachineError, OptionError
from hplacer_optimizer.measuring.executable import HOLDER, Fed, make_executable
from hplacer_optimizer.measuring.feeds import random_value
from hplacer_optimizer.measuring.groups_apart import find_groups
from hplacer_optimizer.measuring.initialisers import find_initialisers, run_initialisers
from hplacer_optimizer.measuring.target import Target


class StepRunner:
    """A step in a `tf.Graph`, ready to be placed."""

    def __init__(
        self,
        step: RunnableStep,
        target: Target,
        *,
        feeds: Mapping[str, ArrayLike] | None = None,
        seed: int = 0,
    ) -> None:
        """Loads the graph and connects to the target.

        Args:
            step: what `load_graph(..., keep_graph=True)` returned.
            target: where it runs; its devices are those of the problem.
            feeds: values by the name of a placeholder or argument; others are random.
            seed: of random values.

        Raises:
            GraphError: the step cannot run outside of its program, or a value does not fit.
            OptionError: a feed is unknown.
            MachineError: the target lacks a device.
        """
        import tensorflow as tf

        self._step, self._target = step, target
        feeds = {name.removesuffix(":0"): value for name, value in (feeds or {}).items()}
        executable = make_executable(step, feeds)
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.compat.v1.set_random_seed(seed)
            tf.import_graph_def(executable.graph_def, name="")
        self.fills = [
            _Fill(self._graph, name, value)
            for name, value in _values(self._graph, executable.fed, feeds, seed).items()
        ]
        holders = {fill.holder.name for fill in self.fills}
        self._initialisers = find_initialisers(self._graph, executable.nodes, holders)
        self._moved = [self._graph.get_operation_by_name(name) for name in step.node_names]
        self._groups = find_groups(self._moved)
        self._targets = [
            self._graph.get_operation_by_name(name.split(":")[0]) for name in step.targets
        ]
        self._check_devices()

    def run(self, placement: NDArray[np.int32], *, steps: int = 10, warmup: int = 3) -> list[float]:
        """Seconds of each of so many steps, after those of the warm-up; see `placed`."""
        with self.placed(placement) as step:
            step.warm_up(warmup)
            return step.time(steps)

    def trace(self, placement: NDArray[np.int32], *, steps: int = 1, warmup: int = 3) -> list[Any]:
        """A full trace of each step instead, a `tf.compat.v1.RunMetadata`."""
        with self.placed(placement) as step:
            step.warm_up(warmup)
            return step.trace(steps)

    @contextlib.contextmanager
    def placed(
        self, placement: NDArray[np.int32], time_limit_s: float | None = None
    ) -> Iterator[PlacedStep]:
        """A session with initialised variables.

        Args:
            placement: int32[n], a device index per op of the problem.
            time_limit_s: of all that is done in it.

        Raises tf.errors.OpError: what TensorFlow says, DeadlineExceededError after the time limit.
        """
        import tensorflow as tf

        self._place(placement)
        limit = _TimeLimit(time_limit_s)
        config = self._target.config()
        config.operation_timeout_in_ms = limit.left_ms
        with tf.compat.v1.Session(
            self._target.session, graph=self._graph, config=config
        ) as session:

            def run(fetches: list[Any], values: Mapping[Any, Any] | None = None) -> None:
                session.run(fetches, values, options=limit.options())

            run([fill.assign for fill in self.fills], {f.input: f.value for f in self.fills})
            run_initialisers(run, self._initialisers)
            step = session.make_callable(self._targets, accept_options=True)
            yield PlacedStep(step, limit, self._target.device_names)

    def _place(self, placement: NDArray[np.int32]) -> None:
        names = self._target.device_names
        for op, index in zip(self._moved, self._step.node_op, strict=True):
            op._set_device(names[placement[index]])
        for group in self._groups:
            group.set_apart(names)
        for fill in self.fills:
            fill.place()

    def _check_devices(self) -> None:
        import tensorflow as tf

        config = self._target.config()
        with tf.compat.v1.Session(self._target.session, graph=tf.Graph(), config=config) as session:
            known = [device.name for device in session.list_devices()]
        for name in self._target.device_names:
            if name not in known:
                there = self._target.session or "this machine"
                raise MachineError(f"{there} has no device '{name}'; it has {', '.join(known)}")


class PlacedStep:
    """A step whose session is ready."""

    def __init__(
        self, run: Callable[..., Any], limit: _TimeLimit, device_names: Sequence[str]
    ) -> None:
        self._run, self._limit, self._device_names = run, limit, device_names

    def warm_up(self, steps: int) -> None:
        """TensorFlow spends the first steps on optimizing and allocating."""
        self.time(steps)

    def time(self, steps: int) -> list[float]:
        """Seconds of each step, of virtual time on emulated devices."""
        seconds, clock = [], emulation.step_clock()
        for _ in range(steps):
            options = self._limit.options()
            start = clock()
            self._run(options=options)  # returns when all devices have done their part
            seconds.append(clock() - start)
        return seconds

    def trace(self, steps: int) -> list[Any]:
        """A `tf.compat.v1.RunMetadata` of each step."""
        import tensorflow as tf

        v1 = tf.compat.v1
        traced = [v1.RunMetadata() for _ in range(steps)]
        for metadata in traced:
            options = self._limit.options(v1.RunOptions.FULL_TRACE)
            self._run(options=options, run_metadata=metadata)
        return traced

    def peak_bytes(self) -> list[int | None]:
        """The most that an allocator held in a step, by device; None where it tells nothing."""
        (metadata,) = self.trace(1)
        peaks = {
            device.device: max(
                (used.allocator_bytes_in_use for node in device.node_stats for used in node.memory),
                default=0,
            )
            for device in metadata.step_stats.dev_stats
        }
        return [peaks.get(name) or None for name in self._device_names]


class _TimeLimit:
    def __init__(self, seconds: float | None) -> None:
        self._ends = None if seconds is None else time.monotonic() + seconds

    @property
    def left_ms(self) -> int:
        """At least 1; 0 stands for no limit."""
        return 0 if self._ends is None else max(1, int(1e3 * (self._ends - time.monotonic())))

    def options(self, trace_level: int = 0) -> Any:
        """The RunOptions of what is run now."""
        import tensorflow as tf

        return tf.compat.v1.RunOptions(trace_level=trace_level, timeout_in_ms=self.left_ms)


class _Fill:
    """A fed node's variable and its value."""

    def __init__(self, graph: Any, name: str, value: NDArray[Any]) -> None:
        import tensorflow as tf

        self.value = value
        self.read = graph.get_operation_by_name(name)
        self.holder = graph.get_operation_by_name(name + HOLDER)
        with graph.as_default():
            dtype = self.read.outputs[0].dtype
            self.input = tf.compat.v1.placeholder(dtype, value.shape)
            self.assign = tf.raw_ops.AssignVariableOp(
                resource=self.holder.outputs[0], value=self.input
            )

    def place(self) -> None:
        """The variable goes where the fed node is."""
        if self.read.outputs[0].dtype.name in _HOST_TYPES:
            self.read._set_device(_host_of(self.read.device))
        self.holder._set_device(self.read.device)


_HOST_TYPES = ("int32", "string")  # which no other device holds in variables


def _host_of(device: str) -> str:
    task = device.partition("/device:")[0]
    return f"{task}/device:CPU:0" if "/device:CPU:" not in device else device


def _values(
    graph: Any, fed: Mapping[str, Fed], feeds: Mapping[str, ArrayLike], seed: int
) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    unknown = sorted(set(feeds) - set(fed))
    if unknown:
        known = ", ".join(sorted(fed)) or "nothing"
        raise OptionError(f"feeds: '{unknown[0]}' is not fed; the step is fed with {known}")
    values = {}
    for name, node in fed.items():
        tensor = graph.get_tensor_by_name(f"{name}:0")
        if name not in feeds:
            values[name] = random_value(tensor, node.shape, rng)
            continue
        values[name] = np.asarray(feeds[name], tensor.dtype.as_numpy_dtype)
        if values[name].shape != node.shape:
            raise GraphError(
                f"feeds: '{name}' has shape {values[name].shape}, the step was captured with "
                f"{node.shape}; change the batch size or give shapes"
            )
    return values
