"""What is told of a comparison: for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hplacer_optimizer.measuring.turns import Turns
from hplacer_optimizer.plans.verdict import FASTER, SLOWER
from hplacer_optimizer.pretraining.trial import SAME, UNCERTAIN, Comparison
from hplacer_optimizer.scripts.step_timing import SESSION
from hplacer_optimizer.support.formats import format_ns, format_ratio, times_as_fast

_COLUMNS = ("placement", "step", "spread", "turns", "times as fast", "95%")

_WORTH_TELLING = 0.2  # share of a step that is the script's own work
_WORTH_SAYING = 0.01  # the same, where it is told in any case: what follows from it


def columns(found: Comparison) -> tuple[str, ...]:
    """Of the table of `rows`."""
    times = {"step", "times as fast"} if found.emulated is not None else set()
    return tuple(f"{name} (emulated)" if name in times else name for name in _COLUMNS)


def rows(found: Comparison) -> list[tuple[str, ...]]:
    """Of a table with these columns; [] if nothing had to be measured."""
    if found.baseline is None or found.planned is None:
        return []
    low, high = map(format_ratio, found.planned.interval)
    ratio = format_ratio(found.planned.speedup)
    return [
        ("TensorFlow's placement", *_row(found.baseline), "1.00", ""),
        (_names(found), *_row(found.planned), ratio, f"{low} to {high}"),
    ]


def _row(turns: Turns) -> tuple[str, str, str]:
    step, spread = (format_ns(_ns(s)) for s in (turns.step_s, turns.spread_s))
    return step, spread, str(len(turns.times_s))


def _names(found: Comparison) -> str:
    return ", ".join(f"plan {plan.short_fingerprint} ({plan.planner})" for plan in found.plans)


def facts(found: Comparison) -> Iterator[str]:
    """A line for each, what a step is first."""
    if found.emulated is not None:
        yield (
            f"emulated {found.emulated}: steps are virtual time, which a cost model tells; nothing "
            "of this was measured on such devices"
        )
    if found.planned is not None:
        what = "a run of the session" if found.timed == SESSION else f"a call of {found.timed}"
        what = what if found.is_of_script else f"one of {found.timed}"
        yield f"a step is {what}; medians of the turns, and how wide their middle half is"
    if predicted := predicted_speedup(found):
        yield f"predicted: {times_as_fast(predicted)}"
    before = []
    if found.first_step_s is not None:
        later = max(0.0, found.first_step_s)
        before.append(f"the first step ends {later:.2g} s later, with the plan from the store")
    if found.planned_now:
        planning_s = sum(plan.planning_s for plan in found.plans)
        before.append(f"planning took {planning_s:.2g} s, once")
    if before:
        yield "; ".join(before)
    if (found.outside_share or 0.0) > _WORTH_TELLING:
        yield (
            f"{found.outside_share:.0%} of a step without the plan passes between the calls, such "
            "as in Python and in the input: no plan shortens that"
        )
    if found.own_s is not None:
        yield _own_work(found, found.own_s)
    yield from found.notes
    yield from (f"the verdict is kept in {path}" for path in found.stored)


def _own_work(found: Comparison, own_s: float) -> str:
    """How much of the gain is left with the script's own work, which virtual time leaves out."""
    assert found.baseline is not None
    assert found.planned is not None
    share = own_s / found.baseline.step_s
    text = (
        f"the script's own work between steps (Python, input, checkpoints) takes no virtual time; "
        f"here it takes {format_ns(_ns(own_s))}, {share:.0%} of an emulated step without the plan"
    )
    if share < _WORTH_SAYING or found.planned.speedup <= 1.0:
        return text
    left = times_as_fast(speedup_with_own_work(found) or 1.0)
    return (
        f"{text}. If it is as slow on the real machine, and does not overlap with the step, the "
        f"plan is {left}"
    )


def speedup_with_own_work(found: Comparison) -> float | None:
    """Where the script's own work is as slow as here, and adds to a step; None: not known."""
    if found.own_s is None or found.baseline is None or found.planned is None:
        return None
    planned_s = found.baseline.step_s / found.planned.speedup
    return (found.baseline.step_s + found.own_s) / (planned_s + found.own_s)


def verdict_sentence(found: Comparison) -> str:
    """One sentence for people."""
    where = f" on the emulated {found.emulated}" if found.emulated is not None else ""
    if found.outcome == SAME:
        return f"The plan is TensorFlow's own placement{where}: there is nothing to try."
    assert found.planned is not None
    ratio = times_as_fast(found.planned.speedup)
    low, high = map(format_ratio, found.planned.interval)
    times = f"{ratio} as TensorFlow's placement ({low} to {high})"
    if found.outcome == FASTER:
        return f"The plan pays{where}: {times}."
    if found.outcome == SLOWER:
        on = "where this machine is emulated" if where else "on this host"
        retired = f", so it is retired {on}" if found.stored else ""
        return f"The plan does not pay{where}: {times}{retired}."
    if found.outcome == UNCERTAIN:
        return f"It is not certain whether the plan pays{where}: {times}; a longer --time tells."
    return f"The plan makes no difference{where}: {times}."


def predicted_speedup(found: Comparison) -> float | None:
    """The simulated speedup of the plan of the longest step."""
    plan = found.plans[0]
    if plan.baseline is None:
        return None
    return plan.baseline.speedup_of(plan.step_time_ns, plan.feasible)


def document(found: Comparison) -> dict[str, Any]:
    """For JSON."""
    low, high = found.planned.interval if found.planned else (None, None)
    return {
        "outcome": found.outcome,
        "pays": found.outcome == FASTER,
        "sentence": verdict_sentence(found),
        "emulated": found.emulated,
        "timed": found.timed,
        "plans": [
            {
                "fingerprint": plan.fingerprint,
                "label": plan.label,
                "planner": plan.planner,
                "planning_s": plan.planning_s,
            }
            for plan in found.plans
        ],
        "planned_now": found.planned_now,
        "speedup": found.planned.speedup if found.planned else None,
        "low": low,
        "high": high,
        "predicted_speedup": predicted_speedup(found),
        "without_plan": _turns_document(found.baseline),
        "with_plan": _turns_document(found.planned),
        "first_step_later_s": found.first_step_s,
        "outside_share": found.outside_share,
        "own_work_s": found.own_s,
        "speedup_with_own_work": speedup_with_own_work(found),
        "verdict": found.verdict.as_json() if found.verdict else None,
        "stored": found.stored,
        "notes": found.notes,
    }


def _turns_document(turns: Turns | None) -> dict[str, Any] | None:
    if turns is None:
        return None
    return {
        "step_time_ns": _ns(turns.step_s),
        "spread_ns": _ns(turns.spread_s),
        "turns_ns": [_ns(time_s) for time_s in turns.times_s],
    }


def _ns(seconds: float) -> int:
    return round(1e9 * seconds)
