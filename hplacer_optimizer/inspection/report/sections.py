"""The parts of the page that need no JavaScript: sentences, figures, tables and static charts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape

from hplacer_optimizer._engine import LowerBound, StepTrace
from hplacer_optimizer.inspection.critical_path import (
    CHANNEL_WAIT,
    COMPUTE,
    SLOT_WAIT,
    STREAM_WAIT,
    TRANSFER,
    path_shares,
)
from hplacer_optimizer.inspection.loads import channel_loads, device_loads, short_names
from hplacer_optimizer.inspection.provenance import Provenance
from hplacer_optimizer.inspection.report.colours import device_colours
from hplacer_optimizer.inspection.report.curve import draw_curve
from hplacer_optimizer.inspection.report.headline import gain, notes
from hplacer_optimizer.inspection.report.html import (
    Part,
    TableCell,
    bar,
    facts,
    items,
    legend,
    paragraph,
    table,
    tiles,
)
from hplacer_optimizer.inspection.report.references import DEFAULT, Reference
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.inspection.waits import DeviceWaits
from hplacer_optimizer.problem.bounds import gap
from hplacer_optimizer.problem.cost_sources import in_words
from hplacer_optimizer.support.formats import format_bytes, format_ns, format_ratio

__all__ = ["header", "learning", "loads", "provenance", "references", "summary", "waits"]


def header(plan: Provenance, step: SimulatedStep, default: Reference | None) -> str:
    """Title, what the plan gains in one sentence, and a line about the plan.

    `default` is TensorFlow's own placement; None: not known.
    """
    problem = step.problem
    line = (
        f"plan {plan.short_fingerprint} by {plan.planner} · {problem.num_ops:,} ops in "
        f"{problem.num_units:,} units on {problem.num_devices} devices · {plan.created}"
    )
    return (
        f"<h1>{escape(plan.label)}</h1>"
        + paragraph(gain(plan, step.trace, default), "headline")
        + "".join(paragraph(note) for note in notes(plan))
        + paragraph(line)
    )


def summary(plan: Provenance, step: SimulatedStep, default: Reference | None) -> str:
    """Step times, lower bound and gap; what the step consists of; what does not agree."""
    texts = [*_misfits(step), *_agreement(plan, step.trace)]
    return tiles(_figures(step, default)) + _composition(step) + "".join(texts)


def _figures(
    step: SimulatedStep, default: Reference | None
) -> Iterator[tuple[str, str, str, int | float]]:
    trace, bound = step.trace, step.bound
    if trace.makespan_ns is not None:
        text = format_ns(trace.makespan_ns)
        yield "step-time", "a step of this plan, simulated", text, trace.makespan_ns
    if default and default.trace and default.step_time_ns is not None:
        text = format_ns(default.step_time_ns)
        yield "default-time", f"{DEFAULT}, simulated", text, default.step_time_ns
        if trace.feasible:
            speedup = default.step_time_ns / max(trace.makespan_ns or 0, 1)
            label = f"times as fast as {DEFAULT}"
            yield "speedup", label, format_ratio(speedup), round(speedup, 6)
    if bound.ns is not None:
        text = format_ns(bound.ns)
        yield "lower-bound", f"no placement is faster: {bound.term}", text, bound.ns
        share = gap(trace.makespan_ns, bound.ns)
        if share is not None and trace.feasible:
            yield "gap", "the plan is above that bound by", f"{share:.1%}", round(share, 6)


# Of the critical path: what a kind of stage is called on the page, and its colour.
_STAGES = {
    COMPUTE: ("ops run", "--c0"),
    TRANSFER: ("tensors move between devices", "--channel"),
    STREAM_WAIT: ("copies wait for what was launched before them", "--c1"),
    SLOT_WAIT: ("ops wait for a busy device", "--waits"),
    CHANNEL_WAIT: ("tensors wait for a busy connection", "--blocked"),
}


def _composition(step: SimulatedStep) -> str:
    """What the critical path consists of, as a bar."""
    total_ns = step.trace.makespan_ns
    if not total_ns:
        return ""
    spent_ns = dict.fromkeys(_STAGES, 0)
    for share in path_shares(step.path):
        spent_ns[share.kind] += share.ns
    parts = [
        Part(label=text, colour=colour, share=spent_ns[kind] / total_ns)
        for kind, (text, colour) in _STAGES.items()
    ]
    texts = [(part.colour, f"{part.label}: {part.share:.1%}") for part in parts if part.share]
    why = (
        "One chain of ops and transfers makes the step as long as it is. The step gets faster "
        "only if this chain does. So its time is spent:"
    )
    return paragraph(why) + bar(parts) + legend(texts)


def _misfits(step: SimulatedStep) -> Iterator[str]:
    reasons = [*step.trace.infeasible_because, *step.bound.infeasible_because]
    for reason in dict.fromkeys(reasons):
        yield paragraph(f"Does not fit: {reason}", "bad")


def _agreement(plan: Provenance, trace: StepTrace) -> Iterator[str]:
    """Whether the step is what the plan states."""
    if plan.step_time_ns is not None and plan.step_time_ns != trace.makespan_ns:
        now = "no step time" if trace.makespan_ns is None else f"{trace.makespan_ns} ns"
        text = f"The plan states {plan.step_time_ns} ns, this simulation gives {now}: "
        yield paragraph(text + "another machine, other costs or another version.", "bad")
    elif trace.feasible:
        yield paragraph(
            "The step was simulated again for this page. It takes as long as the plan states and "
            "fits into the memory of every device."
        )


# Of the times in which a device runs nothing: the field, its colour, its column and what it means.
_WAITS = (
    ("others_ns", "--waits", "other devices", "waits for ops on other devices"),
    ("transfers_ns", "--channel", "transfers", "waits for transfers"),
    ("blocked_ns", "--blocked", "cores", "its cores are busy otherwise"),
    ("done_ns", "--done", "no more ops", "has no more ops in this step"),
)


def waits(step: SimulatedStep) -> str:
    """What each device does with the time of the step, as bars with figures."""
    if not step.trace.has_trace:
        return paragraph("There is no step to look at.")
    names, step_ns = step.problem.device_names, max(step.trace.makespan_ns or 0, 1)
    devices = zip(short_names(names), device_colours(names), step.waits, strict=True)
    rows = [
        (name, _wait_cells(_wait_parts(found, colour, step_ns)), False)
        for name, colour, found in devices
    ]
    colours = [("--c0", "runs ops, in the colour of the device")]
    colours += [(colour, meaning) for _, colour, _, meaning in _WAITS]
    heads = ("device", "", "runs ops", *(head for _, _, head, _ in _WAITS))
    why = (
        "A device that runs nothing waits for the op that it starts next. That op waits for "
        "its last input: until another device has made it, then until it has arrived. Then "
        "the device may be busy with transfers, its cores may serve another device, or it may "
        "not have started yet."
    )
    return legend(colours) + table("shares of the step, by device", heads, rows) + paragraph(why)


def _wait_parts(found: DeviceWaits, colour: str, step_ns: int) -> list[Part]:
    runs = Part(label="runs ops", colour=colour, share=found.computes_ns / step_ns)
    rest = [
        Part(label=meaning, colour=own, share=getattr(found, field) / step_ns)
        for field, own, _, meaning in _WAITS
    ]
    return [runs, *rest]


def _wait_cells(parts: list[Part]) -> list[TableCell]:
    figures = [TableCell(f"{part.share:.1%}", round(part.share, 6)) for part in parts]
    return [TableCell("", markup=bar(parts)), *figures]


def references(plan: Provenance, trace: StepTrace, found: Sequence[Reference]) -> str:
    """Step times as bars, the plan's own first."""
    own = Reference(
        planner=f"this plan ({plan.planner})",
        step_time_ns=trace.makespan_ns,
        feasible=trace.feasible,
        reason="; ".join(trace.infeasible_because),
    )
    rows = [own, *found]
    longest = max((row.step_time_ns or 0 for row in rows), default=0) or 1
    # An infeasible one's reason stands in the table, too: it may be faster than what fits.
    return table(
        "what simple planners make of the same graph; planned and simulated for this page",
        ("planner", "step time", ""),
        [(row.planner, _reference_cells(row, longest, row is own), row is own) for row in rows],
    )


def _reference_cells(row: Reference, longest_ns: int, own: bool) -> list[TableCell]:
    if row.step_time_ns is None:
        return [TableCell("none", -1), TableCell(_shortened(row.reason))]
    share = 100 * row.step_time_ns / longest_ns
    bar = f'<i{" class=own" if own else ""} style="width:{share:.2f}%"></i>'
    if not row.feasible:
        bar += f'<span class="hint">does not fit: {escape(_shortened(row.reason))}</span>'
    return [TableCell(format_ns(row.step_time_ns), row.step_time_ns), TableCell("", markup=bar)]


def _shortened(reason: str, limit: int = 160) -> str:
    return reason if len(reason) <= limit else f"{reason[: limit - 1]}…"


def learning(plan: Provenance, bound: LowerBound) -> str:
    """The best and the mean step time over the search's steps, as a static chart."""
    points = [point for point in plan.learning_curve if point["best_ns"] is not None]
    if len(points) < 2:
        return paragraph(f"The planner {plan.planner} does not search step by step.")
    best = [(point["steps"], point["best_ns"]) for point in points]
    mean = [(point["steps"], point["mean_ns"]) for point in points if point["mean_ns"] is not None]
    last = points[-1]
    placements = f", {last['placements']} placements tried" if last["placements"] else ""
    return draw_curve(best, mean, bound.ns) + paragraph(
        f"{last['steps']} steps{placements}; best {format_ns(last['best_ns'])}"
    )


def loads(step: SimulatedStep, default: Reference | None) -> str:
    """What the step asks of each device and channel, with the memory that `default` needs."""
    return _device_table(step, default) + _channel_table(step)


def _device_table(step: SimulatedStep, default: Reference | None) -> str:
    other = default.trace.peak_bytes.tolist() if default and default.trace else None
    heads = ("ops", "busy", "peak memory", *(("peak as TensorFlow places",) if other else ()))
    rows = []
    names = short_names(step.problem.device_names)
    for i, load in enumerate(device_loads(step.problem, step.placement, step.trace)):
        peaks = [load.peak_bytes, *([other[i]] if other else []), load.memory_bytes]
        cells = [
            TableCell(f"{load.ops:,}", load.ops),
            TableCell(f"{load.busy:.1%}", round(load.busy, 6)),
            *(TableCell(format_bytes(size), size) for size in peaks),
        ]
        rows.append((names[i], cells, False))
    caption = "busy: share of the step and of the ops that the device can run at once"
    return table(caption, ("device", *heads, "memory"), rows)


def _channel_table(step: SimulatedStep) -> str:
    sent = channel_loads(step.problem, step.trace)
    if not sent:
        return paragraph("Nothing moves between devices.")
    return table(
        "connections between devices that carry something; each carries one tensor at a time",
        ("connection", "transfers", "bytes", "busy"),
        [
            (
                load.name,
                (
                    TableCell(f"{load.transfers:,}", load.transfers),
                    TableCell(format_bytes(load.bytes), load.bytes),
                    TableCell(f"{load.busy:.1%}", round(load.busy, 6)),
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
        ("costs", escape(in_words(plan.cost_source))),
        ("step with typical errors of the costs", _spread(plan.step_spread_ns)),
        ("version of the simulator", str(plan.simulator_version or "not known")),
        ("made", escape(f"{plan.created} on {plan.host}")),
        ("versions", escape(", ".join(f"{name} {v}" for name, v in plan.versions.items()))),
        ("the planner says", items(plan.planner_notes)),
        ("assumed", items(plan.assumptions)),
    ]
    return facts(entries)
