"""What commands tell of a plan beside TensorFlow's own placement."""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.plans.baseline import as_json
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.support.formats import format_speedup


def print_plan(plan: Plan) -> None:
    """What it gains, and whether a training run would follow it."""
    print(f"{plan.label}: {plan.summary_line()}")
    if note := training_note(plan):
        print(note)


def training_note(plan: Plan) -> str:
    """That a training run with default options leaves the graph alone; "": it does not."""
    reason = _why_left_alone(plan)
    return f"training leaves the graph alone (option min_gain): {reason}" if reason else ""


def speedup(plan: Plan) -> str:
    """As "2.0x", how many times as many steps a second as TensorFlow's placement; "-": unknown."""
    return "-" if plan.speedup is None else format_speedup(plan.speedup)


def comparison(plan: Plan | None) -> dict[str, Any]:
    """For JSON; null where nothing is known, or nothing keeps the plan from taking effect."""
    if plan is None:
        return dict.fromkeys(("baseline", "speedup", "why_left_alone"))
    return {
        "baseline": as_json(plan.baseline),
        "speedup": plan.speedup,
        "why_left_alone": _why_left_alone(plan) or None,
    }


def _why_left_alone(plan: Plan) -> str:
    """Of a plan that no run finds nothing is said, nor of one without a baseline: a run that finds
    it simulates TensorFlow's placement first.
    """
    return plan.why_left_alone() if plan.fingerprint and plan.baseline else ""
