"""What the pass did with each graph of this process: as records, and as lines of the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from hplacer_optimizer.capture import native
from hplacer_optimizer.log import LOGGER, log_once, warn_once
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.plans.plan import Plan

_MADE = {"planned": "made", "loaded": "loaded", "shared": "shared"}


@dataclass(frozen=True, kw_only=True)
class GraphRecord:
    """What the pass did with one graph.

    Attributes:
        graph: what it is, for people, such as "function train_step".
        fingerprint: of the graph; "" where the pass ended before it was known.
        outcome: "planned", "loaded" or "shared" (a plan is in effect), "kept" (TensorFlow's own
            placement is), "skipped" or "failed".
        reason: why there is no plan, or why it was planned again; "" for neither.
        ops: nodes of the graph.
        units: groups of them that are placed as one; None: there is no plan.
        devices: that the session offers.
        placed: nodes whose device was requested.
        planner: by name; None: there is no plan.
        planning_s: seconds that planning took; None: there is no plan.
        predicted_ns: step time that the simulator gives the plan, in ns; None: there is no plan.
        baseline_ns: the same of TensorFlow's own placement; None: not known.
        store_path: file of the plan; None: there is no plan.
        pass_s: seconds that the pass took, of which the following are parts.
        step_s: to find the training step in the graph.
        fingerprint_s: to fingerprint it.
        lookup_s: to look for a stored plan.
        capture_s: to capture the graph for a planner.
        plan_s: until the planner answered.
        rewrite_s: to write the devices into the graph.
    """

    graph: str
    fingerprint: str
    outcome: str
    reason: str
    ops: int
    units: int | None
    devices: int
    placed: int
    planner: str | None
    planning_s: float | None
    predicted_ns: int | None
    baseline_ns: int | None
    store_path: str | None
    pass_s: float
    step_s: float
    fingerprint_s: float
    lookup_s: float
    capture_s: float
    plan_s: float
    rewrite_s: float

    @classmethod
    def of(cls, report: Any, known: tuple[Plan, str] | None) -> GraphRecord:
        """From a report of the native pass, and the graph's plan with its path if it has one."""
        plan, path = known or (None, None)
        return cls(
            graph=report.label,
            fingerprint=report.fingerprint,
            outcome=report.outcome,
            reason=report.reason,
            ops=report.num_ops,
            units=plan.num_units if plan else None,
            devices=report.num_devices,
            placed=report.num_placed,
            planner=plan.planner if plan else None,
            planning_s=plan.planning_s if plan else None,
            predicted_ns=plan.step_time_ns if plan else None,
            baseline_ns=plan.baseline_ns if plan else None,
            store_path=path,
            pass_s=report.pass_s,
            step_s=report.step_s,
            fingerprint_s=report.fingerprint_s,
            lookup_s=report.lookup_s,
            capture_s=report.capture_s,
            plan_s=report.plan_s,
            rewrite_s=report.rewrite_s,
        )


@dataclass(frozen=True, kw_only=True)
class StepCheck:
    """A plan compared with what TensorFlow placed, of one optimised graph.

    Attributes:
        fingerprint: of the graph.
        fetches: names of what it returns; not known with option bitwise: [].
        nodes: of the graph after TensorFlow's placer.
        planned: those of them that the plan names.
        differences: (node, planned device, actual device) of those that are elsewhere.
    """

    fingerprint: str
    fetches: list[str]
    nodes: int
    planned: int
    differences: list[tuple[str, str, str]]


def step_checks() -> list[StepCheck]:
    """Comparisons of plans with what TensorFlow placed, one per optimised graph.

    Raises:
        NativeBuildError: the native part is missing or built for another TensorFlow.

    Example, after that of `history`:
        >>> hp.step_checks()[-1].differences
        []
    """
    return [
        StepCheck(
            fingerprint=check.fingerprint,
            fetches=list(check.fetches),
            nodes=check.num_nodes,
            planned=check.num_planned,
            differences=check.differences,
        )
        for check in native.load().step_checks()
    ]


def level(request_or_report: Any) -> int:
    """Of what is told of a graph: initialisations and the like are nobody's concern."""
    return logging.INFO if request_or_report.trains else logging.DEBUG


def log_report(report: Any, plan: Plan | None, *, is_tried: bool = False) -> None:
    """One line for each graph; more, for debugging, where it was planned.

    `is_tried`: the plan is, and its trial has lines of its own.
    """
    if report.outcome == "failed":
        warn_once(
            f"{report.label} {report.reason}",
            f"{report.label} keeps TensorFlow's own placement: {report.reason}",
        )
        return
    if report.outcome == "skipped" and report.num_devices < 2:
        log_once(logging.INFO, report.reason, report.reason)
        return
    if report.outcome == "skipped" and not report.fingerprint:  # so are all graphs of its kind
        log_once(logging.INFO, report.reason, f"{report.label} is left alone: {report.reason}")
        return
    if plan is None or report.outcome not in _MADE:
        LOGGER.log(level(report), "%s is left alone: %s", report.label, report.reason)
        return
    if report.reason:
        warn_once(
            f"{report.label} {report.reason}",
            f"{report.label} was planned again: {report.reason}",
        )
    LOGGER.log(
        logging.DEBUG if is_tried else level(report),
        "plan %s for %s (%d ops, %d units, %d devices): %s",
        _MADE[report.outcome],
        report.label,
        report.num_ops,
        plan.num_units,
        report.num_devices,
        plan.summary_line(),
    )
    if report.outcome == "planned":
        _log_planning(report.label, plan)


def _log_planning(label: str, plan: Plan) -> None:
    if plan.budget.get("steps_done"):
        LOGGER.debug(
            "planner of %s: %d %s, %d placements scored in %.1f s",
            label,
            plan.budget["steps_done"],
            "updates of the policy" if get_planner(plan.planner).learns else "steps",
            plan.budget["placements_scored"],
            plan.planning_s,
        )
    for note in plan.planner_notes:
        LOGGER.debug("planner of %s: %s", label, note)
    for assumption in plan.assumptions:
        log_once(logging.DEBUG, f"assumed {assumption}", f"assumed: {assumption}")
