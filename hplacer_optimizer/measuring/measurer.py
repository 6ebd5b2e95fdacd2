"""Measures placements of one step, in a process of its own that may die.

    Measurer.measure()  --- step, target, then placements --->  runner_process.py: StepRunner
                        <--- seconds, or a failure ---------

The process loads the graph once and is used again for the next placement. One that crashed, hung or
ran out of memory is replaced by a fresh one; the caller gets a failed Measurement.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hplacer_optimizer import errors
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.errors import HPlacerError, OptionError, PlanError
from hplacer_optimizer.machines import full_device_name
from hplacer_optimizer.measuring.measurement import (
    CRASH,
    INVALID_PLACEMENT,
    OUT_OF_MEMORY,
    TIME_LIMIT,
    Measurement,
    failed,
)
from hplacer_optimizer.measuring.target import LOCAL, Devices, Target, session_target
from hplacer_optimizer.problem.constraints import check_constraints
from hplacer_optimizer.support.child_process import ConnectedProcess, without_gpus
from hplacer_optimizer.support.tf_process import Child

_MODULE = "hplacer_optimizer.measuring.runner_process"
_ENVIRONMENT = {
    "HPLACER_DISABLE": "1",  # what is measured is the placement, not a plan for it
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
_LOAD_LIMIT_S = 300.0
_LOAD_LIMIT_S_PER_BYTE = 10e-6
_GRACE_S = 5.0  # for TensorFlow, which keeps the time limit too, to end the step by itself
_REAP_S = 5.0
_MEMORY = re.compile(
    r"bad_alloc|MemoryError|cannot allocate|out of memory|\bOOM\b|failed to map segment",
    re.IGNORECASE,
)


_MOST_S = 2_000_000.0  # that Linux waits in one call


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much of a step is measured. Raises OptionError."""

    steps: int = 10
    """Timed steps of a placement, at least 1."""
    warmup: int = 3
    """Steps before these, which TensorFlow spends on optimizing and allocating."""
    time_limit_s: float = 300.0
    """For all that a placement takes: to place, to initialise, to run."""

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("warmup", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise OptionError(f"{name}: must be an integer of at least {least}, got {value!r}")
        limit_s = self.time_limit_s
        if not isinstance(limit_s, (int, float)) or not 0 < limit_s <= _MOST_S:
            raise OptionError(
                f"time_limit_s: must be more than 0 and at most {_MOST_S:.0f}, got {limit_s!r}"
            )


class Measurer:
    """One place where a step is measured; `with`, or `close` at the end."""

    def __init__(
        self,
        step: RunnableStep,
        problem: Problem,
        *,
        devices: Devices = None,
        feeds: Mapping[str, ArrayLike] | None = None,
        effort: Effort | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            step: what `load_graph(..., keep_graph=True)` kept of the graph.
            problem: of the same graph; its devices are those that are measured.
            devices: of a TensorFlow cluster, see Devices; None: this machine's.
            feeds: values by the name of a placeholder or argument; others are random.
            effort: None: the defaults.

        Raises OptionError for a wrong address.
        """
        session = session_target(devices)
        names = [full_device_name(name) for name in problem.device_names]
        self._problem = problem
        self._effort = effort or Effort()
        self._load_limit_s = _LOAD_LIMIT_S + _LOAD_LIMIT_S_PER_BYTE * len(step.graph_def)
        self._environment = dict(_ENVIRONMENT)
        if session != LOCAL:
            self._environment |= without_gpus()  # the devices are the servers'
        target = Target(session=session, device_names=names)
        self._request = {"step": step, "target": target, "feeds": feeds}
        self._worker: _Worker | None = None
        self._measuring = threading.Lock()
        self._closed = False

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process; what another thread measures meanwhile fails."""
        self._closed = True
        if worker := self._worker:
            worker.kill()
        with self._measuring:
            self._stop()

    @property
    def pid(self) -> int | None:
        """Of the process that measures, if there is one."""
        return self._worker.pid if self._worker else None

    def measure(self, placement: NDArray[np.int32], *, memory: bool = False) -> Measurement:
        """Runs the step under a placement.

        Args:
            placement: int32[n], a device index per op of the problem.
            memory: runs one more step, with a trace, for `peak_bytes`.

        Returns a Measurement, also of a failure; raises GraphError, OptionError or MachineError if
        no placement of this step can be measured here.
        """
        try:
            check_constraints(self._problem, placement)
        except PlanError as error:
            return failed(INVALID_PLACEMENT, str(error))
        with self._measuring:
            return self._run(placement, memory)

    def _run(self, placement: NDArray[np.int32], memory: bool) -> Measurement:
        try:
            if self._worker is None or self._worker.returncode is not None:
                self._start()
            assert self._worker is not None
            request = {
                "placement": placement,
                "steps": self._effort.steps,
                "warmup": self._effort.warmup,
                "time_limit_s": self._effort.time_limit_s,
                "memory": memory,
            }
            seconds, peak_bytes = self._worker.ask(
                "measure", request, self._effort.time_limit_s + _GRACE_S
            )
        except _FailedError as error:
            if error.kind != INVALID_PLACEMENT:
                self._stop()
            return failed(error.kind, error.message)
        return Measurement(
            times_s=tuple(seconds), warmup=self._effort.warmup, peak_bytes=tuple(peak_bytes)
        )

    def _start(self) -> None:
        self._stop()
        self._worker = _Worker(_MODULE, self._environment)
        if self._closed:  # by another thread, maybe just now
            self._worker.kill()
        try:
            self._worker.ask("load", self._request, self._load_limit_s)
        except HPlacerError:
            self._stop()
            raise

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class _FailedError(Exception):
    """A failure of the process, or one that it tells."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class _Worker(ConnectedProcess):
    """The child process, which answers."""

    def ask(self, kind: str, content: Any, limit_s: float) -> Any:
        """The answer. Raises _FailedError, or the error of this package that it is."""
        ends = time.monotonic() + limit_s
        try:
            self.connection.send((kind, content))
            if not self.connection.poll(max(0.0, ends - time.monotonic())):
                raise _FailedError(TIME_LIMIT, f"no answer within {limit_s:g} s")
            answer, what = self.connection.recv()
        except (EOFError, OSError):
            raise self._crash() from None
        if answer == "failed":
            raise _FailedError(*what)
        if answer == "error":
            name, text = what
            known: type[HPlacerError] = getattr(errors, name, HPlacerError)
            raise known(text)
        return what

    def _crash(self) -> _FailedError:
        self.wait(_REAP_S)
        child = Child(returncode=self.returncode or 0, log=self.log)
        kind = OUT_OF_MEMORY if _MEMORY.search(child.log) else CRASH
        return _FailedError(kind, child.cause_of_death)
