"""What commands tell of a plan beside TensorFlow's own placement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hplacer_optimizer.cli.terminal_tables import print_line
from hplacer_optimizer.plans.baseline import as_json
from hplacer_optimizer.plans.guard import Here, decide
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.support.formats import format_ratio


def print_plan(plan: Plan) -> None:
    """What it gains, and whether training that does not try plans would use it."""
    print_line(f"{plan.label}: {plan.summary_line()}")
    for line in verdict_lines(plan):
        print_line(line)
    if (note := training_note(plan)) and not plan.is_retired:
        print_line(note)


def training_note(plan: Plan) -> str:
    """That training which does not try plans leaves the graph alone; "": it does not."""
    reason = _why_left_alone(plan)
    return (
        f"without a trial, training keeps TensorFlow's placement (option min_gain): {reason}"
        if reason
        else ""
    )


def speedup(plan: Plan) -> str:
    """As "2.0", how many times as fast as TensorFlow's placement it is; "-": unknown."""
    return "-" if plan.speedup is None else format_ratio(plan.speedup)


def measured(plan: Plan, *, short: bool = False) -> str:
    """As "0.52, retired", how fast it was beside TensorFlow's placement; "": nobody measured.

    A measurement on other hardware names its host, but for the `short` text.
    """
    if plan.verdict is None:
        return ""
    what = format_ratio(plan.verdict.speedup)
    what += " emulated" if plan.verdict.emulated is not None else ""
    if plan.is_retired:
        return f"{what}, retired"
    if plan.verdict.binds or plan.verdict.emulated is not None:
        return what
    return f"{what} elsewhere" if short else f"{what} on {plan.verdict.host}"


def verdict_lines(plan: Plan) -> Iterator[str]:
    """What was measured, and what follows from it."""
    verdict = plan.verdict
    if verdict is None:
        return
    yield f"measured: {verdict}, {verdict.source}"
    if verdict.emulated is not None and not verdict.binds:
        yield "those devices were emulated, so it decides nothing on real ones"
    elif not verdict.binds:
        yield "that is other hardware than this, so it decides nothing here"
    elif plan.is_retired:
        yield (
            f"retired: training keeps TensorFlow's placement; `hplacer cache restore "
            f"{plan.short_fingerprint}` undoes that"
        )


def comparison(plan: Plan | None) -> dict[str, Any]:
    """For JSON; null where nothing is known, or nothing keeps the plan from taking effect."""
    if plan is None:
        return dict.fromkeys(("baseline", "speedup", "why_left_alone", "verdict", "retired"))
    return {
        "baseline": as_json(plan.baseline),
        "speedup": plan.speedup,
        "why_left_alone": _why_left_alone(plan) or None,
        "verdict": plan.verdict.as_json() if plan.verdict else None,
        "retired": plan.is_retired,
    }


def _why_left_alone(plan: Plan) -> str:
    """Of a plan that no run finds nothing is said, nor of one without a baseline."""
    is_known = plan.baseline or plan.is_retired or plan.is_confirmed
    return decide(plan, Here.now()).why if plan.fingerprint and is_known else ""
