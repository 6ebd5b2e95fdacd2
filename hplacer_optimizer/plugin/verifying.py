"""Option `verify`: starts of a script time the steps of its sessions, with a plan and without it.

name_start  in the training process: the entry of the optimizer names this start
remember    where graphs are placed, also in a server: with the plan or without; the store remembers
Verifier    in the training process: once enough steps are timed, the store remembers that, too, and
            with enough starts the plan gets a verdict
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.log import LOGGER, warn_once
from hplacer_optimizer.machines import host
from hplacer_optimizer.measuring.training_steps import batches
from hplacer_optimizer.measuring.training_steps.recording import LEAST, WARMUP, Steps
from hplacer_optimizer.measuring.training_steps.step_observer import (
    Call,
    StepObserver,
    new_recorder,
)
from hplacer_optimizer.options import START, Options
from hplacer_optimizer.plans import training_starts
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.training_starts import Start, applies_next, placement_id
from hplacer_optimizer.plans.verdict import FASTER, SLOWER, Verdict, emulated_here
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.support.installed import own_version
from hplacer_optimizer.support.threads import AtExit, start_or_run

_LONGEST_S = 1200.0  # of watching; steps that are not known then stay unknown
_AT_EXIT_S = 2.0
_MAX_SCRIPT_BYTES = 1 << 20

_lock = threading.Lock()
_verifier: Verifier | None = None
_sides: dict[str, bool] = {}  # by start, where graphs are placed: whether plans take effect


# ---- where graphs are placed ----


def timed_start(request: Any, options: Options) -> str | None:
    """The name of this start if it times the steps of the graph, which is that of a session."""
    if request.function or not (options.verify and request.trains):
        return None
    return entry_of(request).parameter_map[START].s.decode() or None


def entry_of(request: Any) -> Any:
    """The entry of the optimizer in the config that a graph is placed under."""
    from tensorflow.core.protobuf import rewriter_config_pb2

    return rewriter_config_pb2.RewriterConfig.CustomGraphOptimizer.FromString(request.entry)


def remember(request: Any, plan: Plan | None, options: Options, *, moves: bool) -> bool:
    """Whether this start is one with the plan; the store remembers it if steps are timed.

    Args:
        request: of the graph.
        plan: that there is.
        options: of the request.
        moves: whether the plan may take effect.
    """
    start, applied = timed_start(request, options), moves
    if start is None:
        return moves
    if plan is not None and plan.verdict is not None and plan.verdict.binds:
        return moves  # that is known
    name, script = None if plan is None else placement_id(plan), start.partition(".")[0]

    def add(found: list[Start]) -> list[Start]:
        nonlocal applied
        if any(one.start == start for one in found):  # such as when it is traced again
            applied = _sides.get(start, applied)
            return found
        if moves and name is not None:  # all graphs of a start are on one side
            applied = _sides.setdefault(start, applies_next(found, script, name))
        new = Start(start=start, script=script, plan=name, moves=moves, applied=applied)
        return [*found, new]

    store = PlanStore.from_options(options)
    try:
        store.change_starts(request.fingerprint, add)
    except HPlacerError as error:
        warn_once(f"verify {store.directory}", f"option verify has no effect: {error}")
        return moves
    return applied


# ---- the training process ----


def name_start(options: Options) -> str | None:
    """Names this start, whose steps are timed from now on; None: option verify is off."""
    global _verifier
    if not options.verify or options.plan is not None or exchange.orders():
        return None
    try:
        with _lock:
            if _verifier is None:
                _verifier = Verifier(f"{_script_id()}.{os.urandom(8).hex()}")
                _verifier.install_sessions()
            _verifier.options = options
    except Exception as error:  # whatever it is, the user's program goes on
        warn_once("verify", f"option verify has no effect: {type(error).__name__}: {error}")
        return None
    return _verifier.name


class Verifier(StepObserver):
    """Times the steps of this start's sessions."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.options = Options()
        self.name = name
        self._batches: str | None = None
        self._began_s: float | None = None
        os.register_at_fork(after_in_child=self._begin_anew)
        AtExit(self._finish_at_exit, limit_s=_AT_EXIT_S, name="hplacer-exit")

    def _begin_anew(self) -> None:
        """In a forked child; what its parent has timed says nothing of it."""
        global _lock
        _lock = threading.Lock()
        self.recorder = new_recorder(None)

    def on_step(self, steps: Steps, call: Call, is_enough: bool) -> None:
        """Stops the timing once enough is known."""
        self.wait_for_devices(steps)
        if len(steps.starts) == WARMUP and self.recorder.main is steps:
            self._batches = batches.describe(call)
        self._began_s = self._began_s or steps.starts[0]
        if is_enough:
            self.is_over = True
            start_or_run(self._finish, steps, name="hplacer-verify")
        elif steps.ends[-1] - self._began_s > _LONGEST_S:
            self.is_over = True

    def _finish_at_exit(self) -> None:
        """For scripts of few steps."""
        main = self.recorder.main
        if self.is_over or main is None or main.timed < LEAST:
            return
        self.is_over = True
        self._finish(main)

    def _finish(self, steps: Steps) -> None:
        try:
            times_s = steps.lasts_s()
            if len(times_s) >= LEAST:
                self._remember(round(float(times_s.mean()) * 1e9))
        except Exception as error:  # training goes on, whatever it is
            warn_once("verify", f"option verify: the steps of this start are not kept: {error}")

    def _remember(self, step_ns: int) -> None:
        """Completes what the store holds of this start."""
        store = PlanStore.from_options(self.options)
        mine = {
            fingerprint: start
            for fingerprint in store.started()
            for start in store.starts(fingerprint)
            if start.start == self.name and start.step_ns is None
        }
        if not mine:
            return
        if self._batches is None:
            LOGGER.info(
                "option verify: the batch size cannot be seen, so starts of this script are "
                "not compared"
            )
            return
        if len({start.applied for start in mine.values() if start.moves}) > 1:
            LOGGER.debug("option verify: not all graphs of this start are on one side")
            return
        for fingerprint in mine:
            self._remember_of(store, fingerprint, mine, step_ns)

    def _remember_of(
        self, store: PlanStore, fingerprint: str, mine: Mapping[str, Start], step_ns: int
    ) -> None:
        context = self._context({f: one for f, one in mine.items() if f != fingerprint})

        def complete(found: list[Start]) -> list[Start]:
            return [
                replace(one, step_ns=step_ns, context=context) if one.start == self.name else one
                for one in found
            ]

        found = store.change_starts(fingerprint, complete)
        name = mine[fingerprint].plan
        if name is None or not mine[fingerprint].moves:
            return
        script = Path(sys.argv[0]).name or "a session"
        verdict = training_starts.verdict(
            found,
            name,
            context,
            by=lambda pairs: f"option verify in {2 * pairs} starts of {script}",
        )
        plan = None if verdict is None else store.get(fingerprint)
        if verdict is not None and plan is not None and placement_id(plan) == name:
            store.put(replace(plan, verdict=verdict))
            LOGGER.info("%s: %s: %s", plan.label, verdict, _conclusion(verdict))

    def _context(self, others: Mapping[str, Start]) -> str:
        """What a step depends on besides the placement of the graph."""
        import tensorflow as tf

        threading_config = tf.config.threading
        seen = [
            self.name.partition(".")[0],
            self._batches,
            tf.__version__,
            own_version(),
            emulated_here(),
            host.name(),
            *host.models(),
            host.usable_cores(),
            threading_config.get_inter_op_parallelism_threads(),
            threading_config.get_intra_op_parallelism_threads(),
            sorted((f, one.plan if one.moves else None) for f, one in others.items()),
        ]
        return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def _conclusion(verdict: Verdict) -> str:
    return {FASTER: "the plan is confirmed", SLOWER: "the plan is retired"}.get(
        verdict.outcome, "the plan makes no difference"
    )


def _script_id() -> str:
    """Of the command line and the script's text."""
    seen = hashlib.sha256("\0".join([os.getcwd(), *sys.orig_argv[1:]]).encode())
    path = Path(sys.argv[0] if sys.argv else "")
    if path.is_file() and path.stat().st_size <= _MAX_SCRIPT_BYTES:
        seen.update(path.read_bytes())
    return seen.hexdigest()[:16]
