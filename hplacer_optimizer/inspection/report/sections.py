"""The parts of the page that need no JavaScript: figures, tables and the learning curve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from hplacer_optimizer._engine import Problem, StepTrace
from hplacer_optimizer.inspection.loads import channel_loads, device_loads
from hplacer_optimizer.inspection.provenance import Provenance
from hplacer_optimizer.inspection.report.baselines import Baseline
from hplacer_optimizer.inspection.report.curve import draw_curve
from hplacer_optimizer.inspection.report.html import Cell, facts, items, paragraph, table, tiles
from hplacer_optimizer.problem.bounds import StepBound, gap
from hplacer_optimizer.support.formats import format_bytes, format_ns, format_speedup

__all__ = ["baselines", "certificate", "header", "learning", "loads", "provenance"]

_Int32 = Any


def header(plan: Provenance, problem: Problem) -> str:
    """Title and one line about the plan."""
    title = f"<h1>{escape(plan.label)}</h1>"
    line = (
        f"plan {plan.short_fingerprint} by {plan.planner} · {problem.num_ops} ops in "
        f"{problem.num_units} units on {problem.num_devices} devices · {plan.created}"
    )
    return title + paragraph(line)


def certificate(
    plan: Provenance, trace: StepTrace, bound: StepBound, default: Baseline | None
) -> str:
    """Step time, how TensorFlow's placement compares, lower bound and gap; what does not agree.

    `default` is TensorFlow's own placement; None: not known.
    """
    entries: list[tuple[str, str, str, int | float | None]] = []
    if trace.makespan_ns is not None:
        text = format_ns(trace.makespan_ns)
        entries.append(("step-time", "step time, simulated", text, trace.makespan_ns))
    if default and default.feasible and default.step_time_ns is not None and trace.feasible:
        speedup = default.step_time_ns / max(trace.makespan_ns or 0, 1)
        label = f"TensorFlow's placement ({format_ns(default.step_time_ns)})"
        entries.append(("speedup", label, format_speedup(speedup), round(speedup, 6)))
    if bound.ns is not None:
        text = format_ns(bound.ns)
        entries.append(("lower-bound", "lower bound, no plan is faster", text, bound.ns))
        share = gap(trace.makespan_ns, bound.ns)
        if share is not None and trace.feasible:
            entries.append(("gap", "gap to the bound", f"{share:.1%}", round(share, 6)))
        entries.append(("term", "what binds the bound", bound.term or "", None))
    notes = [
        paragraph(f"Does not fit: {reason}", "bad")
        for reason in dict.fromkeys([*trace.infeasible_because, *bound.infeasible_because])
    ]
    if default and not default.feasible:
        notes.append(paragraph("TensorFlow's placement does not fit into memory."))
    if plan.step_time_ns is not None and plan.step_time_ns != trace.makespan_ns:
        now = "no step time" if trace.makespan_ns is None else f"{trace.makespan_ns} ns"
        notes.append(
            paragraph(
                f"The plan states {plan.step_time_ns} ns, this simulation gives {now}: "
                "another machine, other costs or another version.",
                "bad",
            )
        )
    elif trace.feasible:
        notes.append(
            paragraph(
                "Simulated again when this report was written, with the step time that the plan "
                "states, and within every device's memory."
            )
        )
    return tiles(entries) + "".join(notes)


def baselines(plan: Provenance, trace: StepTrace, found: Sequence[Baseline]) -> str:
    """Step times as bars, the plan's own first."""
    own = Baseline(
        planner=f"this plan ({plan.planner})",
        step_time_ns=trace.makespan_ns,
        feasible=trace.feasible,
        reason="; ".join(trace.infeasible_because),
    )
    rows = [own, *found]
    longest = max((row.step_time_ns or 0 for row in rows), default=0) or 1
    # An infeasible one's reason stands in the table, too: it may be faster than what fits.
    return table(
        "planned and simulated on this machine's description when the report was written",
        ("planner", "step time", ""),
        [(row.planner, _baseline_cells(row, longest, row is own), row is own) for row in rows],
    )


def _baseline_cells(row: Baseline, longest_ns: int, own: bool) -> list[Cell]:
    if row.step_time_ns is None:
        return [Cell("none", -1), Cell(_shortened(row.reason))]
    share = 100 * row.step_time_ns / longest_ns
    bar = f'<i{" class=own" if own else ""} style="width:{share:.2f}%"></i>'
    if not row.feasible:
        bar += f'<span class="hint">does not fit: {escape(_shortened(row.reason))}</span>'
    return [Cell(format_ns(row.step_time_ns), row.step_time_ns), Cell("", markup=bar)]


def _shortened(reason: str, limit: int = 160) -> str:
    return reason if len(reason) <= limit else f"{reason[: limit - 1]}…"


def learning(plan: Provenance, bound: StepBound) -> str:
    """The best and the mean step time over the search's steps, as a static chart."""
    points = [point for point in plan.learning_curve if point["best_ns"] is not None]
    if len(points) < 2:
        return paragraph(f"The planner {plan.planner} left none: it does not search step by step.")
    best = [(point["steps"], point["best_ns"]) for point in points]
    mean = [(point["steps"], point["mean_ns"]) for point in points if point["mean_ns"] is not None]
    last = points[-1]
    placements = f", {last['placements']} placements tried" if last["placements"] else ""
    return draw_curve(best, mean, bound.ns) + paragraph(
        f"{last['steps']} steps{placements}; best {format_ns(last['best_ns'])}"
    )


def loads(problem: Problem, placement: _Int32, trace: StepTrace) -> str:
    """What the step asks of each device and channel."""
    devices = table(
        "busy: share of the step and of the device's slots",
        ("device", "ops", "busy", "peak memory", "memory"),
        [
            (
                load.name,
                (
                    Cell(str(load.ops), load.ops),
                    Cell(f"{load.busy:.1%}", round(load.busy, 6)),
                    Cell(format_bytes(load.peak_bytes), load.peak_bytes),
                    Cell(format_bytes(load.memory_bytes), load.memory_bytes),
                ),
                False,
            )
            for load in device_loads(problem, placement, trace)
        ],
    )
    sent = channel_loads(problem, trace)
    if not sent:
        return devices + paragraph("No channel carries anything: one device does it all.")
    return devices + table(
        "channels that carry something",
        ("channel", "transfers", "bytes", "busy"),
        [
            (
                load.name,
                (
                    Cell(str(load.transfers), load.transfers),
                    Cell(format_bytes(load.bytes), load.bytes),
                    Cell(f"{load.busy:.1%}", round(load.busy, 6)),
                ),
                False,
            )
            for load in sent
        ],
    )


def _spread(spread_ns: tuple[int, int] | None) -> str:
    if spread_ns is None:
        return "not known"
    low, high = map(format_ns, spread_ns)
    return f"{low} to {high} in 90% of the cases"


def provenance(plan: Provenance) -> str:
    """Who made the plan, how, when and from what."""
    entries = [
        ("fingerprint", escape(plan.fingerprint or "none: it was not made for a captured graph")),
        *((f"· {name}", escape(value)) for name, value in plan.fingerprint_parts.items()),
        ("planner", escape(f"{plan.planner}, seed {plan.seed}, {plan.planning_s:.3g} s")),
        ("budget", escape(json.dumps(plan.budget))),
        ("options", escape(json.dumps(plan.planner_options))),
        ("costs", escape(plan.cost_source)),
        ("step with typical errors of the costs", _spread(plan.step_spread_ns)),
        ("version of the simulator", str(plan.simulator_version or "not known")),
        ("made", escape(f"{plan.created} on {plan.host}")),
        ("versions", escape(", ".join(f"{name} {v}" for name, v in plan.versions.items()))),
        ("the planner says", items(plan.planner_notes)),
        ("assumed", items(plan.assumptions)),
    ]
    return facts(entries)
