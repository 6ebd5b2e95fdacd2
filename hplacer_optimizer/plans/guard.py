"""The guard: whether a plan takes effect, or TensorFlow's own placement is kept, and why.

    measured here        a plan that was slower does not take effect, one that was faster does
    option min_gain=-1   every other plan does
    predicted            one that fits does if TensorFlow's placement does not fit, or if it is
                         faster by more than such predictions are wrong and has as much room
    option verify        what would take effect without having been measured here is measured
    option on_miss=trial what may pay is tried as training goes on, and nothing else takes effect

A predicted gain within the error says nothing: a transfer that costs more than it was thought to
can turn it into a loss. A plan is tight if it fits, but perhaps not with what frameworks add to a
device's memory. Beside a placement of TensorFlow that is not, it can turn a step that runs into one
that does not.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hplacer_optimizer.errors import MachineError
from hplacer_optimizer.inspection.loads import short_names
from hplacer_optimizer.machines import Machine, machine_from_yaml
from hplacer_optimizer.machines.detect import is_limit
from hplacer_optimizer.options import EVERY_PLAN
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.verdict import FASTER, NO_DIFFERENCE, SLOWER, Hardware, Verdict
from hplacer_optimizer.problem.memory import MemoryRange, memory_range
from hplacer_optimizer.problem.prediction_error import prediction_error
from hplacer_optimizer.support.formats import format_bytes, format_ns

__all__ = ["APPLY", "KEEP", "MEASURE", "TRY", "Decision", "Here", "Judged", "decide"]

APPLY, KEEP, MEASURE, TRY = "apply", "keep", "measure", "try"

LEAST_TRIED = 0.01
"""Predicted gain below which a plan is not tried: a trial would not tell it from none."""


@dataclass(frozen=True, kw_only=True)
class Here:
    """What matters of the place where the plan would take effect.

    Attributes:
        hardware: that there is.
        min_gain: the gain that is asked for, as a share; 0.2: 1.2 times as many steps a second; -1:
            any. None: more than the prediction may be wrong, or any where both were measured.
        verifies: whether this start times its steps (option verify).
        tries: whether the plan can be tried as training goes on (option on_miss=trial).
    """

    hardware: Hardware
    min_gain: float | None = None
    verifies: bool = False
    tries: bool = False

    @classmethod
    def now(
        cls, *, min_gain: float | None = None, verifies: bool = False, tries: bool = False
    ) -> Here:
        """On the hardware of this process."""
        return cls(hardware=Hardware.here(), min_gain=min_gain, verifies=verifies, tries=tries)


@dataclass(frozen=True)
class Decision:
    """What becomes of a plan.

    Attributes:
        action: APPLY, KEEP TensorFlow's placement, MEASURE: starts do either in turn, or TRY: calls
            of this start do.
        why: a sentence on why TensorFlow's placement is kept; "": it is not.
    """

    action: str
    why: str = ""


class Judged(Protocol):
    """What of a plan decides; the fields are described at `Plan`."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def feasible(self) -> bool: ...
    @property
    def peak_bytes(self) -> list[int]: ...
    @property
    def machine(self) -> str | None: ...
    @property
    def step_time_ns(self) -> int | None: ...
    @property
    def measured_ns(self) -> int | None: ...
    @property
    def baseline(self) -> Baseline | None: ...
    @property
    def measured_baseline(self) -> Baseline | None: ...
    @property
    def prediction_error(self) -> float | None: ...
    @property
    def cost_source(self) -> str: ...
    @property
    def verdict(self) -> Verdict | None: ...
    @property
    def constant_bytes(self) -> int: ...


def decide(plan: Judged, here: Here) -> Decision:
    """Whether the plan takes effect here; a function of these two alone."""
    measured = plan.verdict.outcome_on(here.hardware) if plan.verdict else None
    if here.tries and here.min_gain != EVERY_PLAN and measured in (None, NO_DIFFERENCE):
        return _tried(plan, measured, here.min_gain)
    if why := _why_kept(plan, measured, here.min_gain):
        return Decision(KEEP, why)
    if here.verifies and measured is None:
        return Decision(MEASURE, "this start times TensorFlow's own placement (option verify)")
    return Decision(APPLY)


def _tried(plan: Judged, measured: str | None, min_gain: float | None) -> Decision:
    """Of a plan that can be tried: it need not promise more than predictions may be wrong."""
    if measured is not None:
        return Decision(KEEP, f"it was measured to make no difference: {plan.verdict}")
    step_ns, baseline, _ = _steps(plan)
    if baseline is not None and baseline.feasible and plan.feasible and step_ns is not None:
        least = LEAST_TRIED if min_gain is None else min_gain
        gain = (baseline.step_time_ns or 0) / max(step_ns, 1) - 1
        if gain > least:
            why = _too_tight_for_both(plan, baseline)
            return Decision(KEEP, why) if why else Decision(TRY)
        if min_gain is None and gain > 0:
            own = format_ns(baseline.step_time_ns or 0)
            return Decision(
                KEEP, f"{format_ns(step_ns)} instead of {own} is too little for a trial to tell"
            )
    why = _why_kept(plan, None, min_gain)
    return Decision(KEEP, why) if why else Decision(APPLY)


def _too_tight_for_both(plan: Judged, baseline: Baseline) -> str:
    """Each instantiation has constants of its own, and what one leaves is in the other's way."""
    # A measured baseline has no peaks: those of the simulated one are of the same placement.
    own = baseline.peak_bytes or (plan.baseline.peak_bytes if plan.baseline else [])
    peaks = [
        max(both) + plan.constant_bytes if max(both) else 0
        for both in zip(plan.peak_bytes, own or plan.peak_bytes, strict=True)
    ]
    found = _tightest(peaks, plan.machine, must_fit=True)
    if found is None:
        return ""
    return (
        "it is too tight in memory to be tried beside TensorFlow's placement: with what frameworks "
        f"add, both need {format_bytes(found.least_bytes)} to {format_bytes(found.most_bytes)} of "
        f"{format_bytes(found.memory_bytes)} on {found.device}"
    )


def _why_kept(plan: Judged, measured: str | None, min_gain: float | None) -> str:
    """`measured`: the outcome of the verdict here; None: there is none that counts."""
    if measured == SLOWER:
        return (
            f"it was measured, {plan.verdict}, so that the plan is retired; "
            f"`hplacer cache restore {plan.fingerprint[:8]}` undoes that"
        )
    if measured == FASTER and plan.verdict:
        return _too_small(plan.verdict.speedup - 1, min_gain, str(plan.verdict))
    if min_gain == EVERY_PLAN:
        return ""
    step_ns, baseline, error = _steps(plan)
    if baseline is None:
        return "TensorFlow's own placement is not known, so that nothing can be compared with it"
    if not baseline.feasible or baseline.step_time_ns is None:
        if plan.feasible:
            return ""
        return "the plan may not fit into memory, and neither may TensorFlow's placement"
    own = format_ns(baseline.step_time_ns)
    if not plan.feasible or step_ns is None:
        return f"the plan may not fit into memory, and TensorFlow's placement does ({own})"
    times = f"{format_ns(step_ns)} instead of {own}"
    if step_ns >= baseline.step_time_ns and (min_gain is None or min_gain >= 0):
        return f"nothing faster than TensorFlow's placement was found: {times}"
    gain = baseline.step_time_ns / max(step_ns, 1) - 1
    if min_gain is None and gain <= error:
        return f"{times} is within the error of the prediction"
    if why := _too_small(gain, min_gain, times):
        return why
    has_run = measured is not None or plan.measured_ns is not None
    return "" if has_run else _too_tight(plan, baseline)


def _too_small(gain: float, min_gain: float | None, what: str) -> str:
    if min_gain is None or gain > min_gain:
        return ""
    return f"{what} is less than option min_gain asks for ({min_gain:g})"


def _too_tight(plan: Judged, baseline: Baseline) -> str:
    found = _tightest(plan.peak_bytes, plan.machine)
    if found is None or _tightest(baseline.peak_bytes, plan.machine) is not None:
        return ""
    return (
        "the plan is tight in memory, and TensorFlow's placement is not: with what frameworks "
        f"add, the plan needs {format_bytes(found.least_bytes)} to "
        f"{format_bytes(found.most_bytes)} of {format_bytes(found.memory_bytes)} on {found.device}"
    )


def _tightest(
    peak_bytes: Sequence[int], machine_text: str | None, *, must_fit: bool = False
) -> MemoryRange | None:
    """The device that may lack most with what frameworks add; None: none does, as far as known.

    A device that holds nothing lacks nothing. `must_fit`: what does not fit at all counts, too.
    """
    machine = machine_of(machine_text) if machine_text is not None else None
    if machine is None or len(machine.devices) != len(peak_bytes):
        return None
    kinds = [machine.kinds[kind] for kind in machine.device_kind]
    names = short_names(machine.device_names)
    rows = zip(names, kinds, peak_bytes, machine.memory_bytes, strict=True)
    ranges = [
        memory_range(
            name,
            kind.type,
            peak_bytes=peak,
            memory_bytes=memory_bytes,
            is_limit=is_limit(kind.name, kind.type),
        )
        for name, kind, peak, memory_bytes in rows
        if peak
    ]
    tight = [found for found in ranges if found.is_tight or (must_fit and not found.fits)]
    return max(tight, key=lambda found: found.most_bytes - found.memory_bytes, default=None)


@functools.lru_cache(maxsize=4)
def machine_of(text: str) -> Machine | None:
    """Kept, since a process judges plans for one machine; None: it cannot be read."""
    try:
        return machine_from_yaml(text)
    except MachineError:
        return None


def _steps(plan: Judged) -> tuple[int | None, Baseline | None, float]:
    """The step, that under TensorFlow's placement, and by how much the gain may be too large."""
    if plan.measured_baseline is not None:
        return plan.measured_ns, plan.measured_baseline, 0.0
    error = plan.prediction_error
    if error is None:
        error = prediction_error(plan.cost_source)
    return plan.step_time_ns, plan.baseline, error
