"""What an experiment found, for people and for programs.

The overview is the papers' table: a row per task, a column per planner. Below it, each task has a
table with a row per planner. Of several seeds a cell shows the median and the range. Where the
step under TensorFlow's own placement is known, it has a column of its own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hplacer_optimizer.bench.experiment import Cell, Experiment, Results, TaskFacts
from hplacer_optimizer.bench.tasks import Task
from hplacer_optimizer.support.formats import format_ratio

EXPERT = "human_expert"
_DEFAULT = "TensorFlow"
_TASK_COLUMNS = (
    "planner",
    "step time",
    "vs expert",
    "times as fast as TensorFlow",
    "above bound",
    "planning",
    "scored",
    "paper",
    "paper vs expert",
    "notes",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One planner on one task, over all seeds."""

    planner: str
    cells: Sequence[Cell]

    @property
    def step_times_ns(self) -> list[int]:
        """Of the placements that fit, ascending."""
        return sorted(
            cell.step_time_ns
            for cell in self.cells
            if cell.feasible and cell.step_time_ns is not None
        )

    @property
    def step_time_ns(self) -> int | None:
        """The median; None if no placement fits."""
        return round(statistics.median(self.step_times_ns)) if self.step_times_ns else None


@dataclass(frozen=True)
class Table:
    """Rows of text under a line that introduces them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(experiment: Experiment, results: Results) -> list[Table]:
    """The overview, then a table per task that has been begun."""
    begun = [task for task in experiment.tasks if task.name in results.facts]
    overview = Table(
        "Seconds per step",
        ("task", "machine", _DEFAULT, *experiment.planners, "lower bound"),
        [_overview_row(experiment, results, task) for task in begun],
    )
    overview = _without_empty(overview, _DEFAULT)
    return [overview, *(_task_table(experiment, results, task) for task in begun)]


def markdown(experiment: Experiment, results: Results) -> str:
    """All tables as GitHub Markdown."""
    parts = []
    for table in tables(experiment, results):
        lines = [" | ".join(row) for row in (table.columns, ["---"] * len(table.columns))]
        lines += [" | ".join(cell.replace("|", "\\|") for cell in row) for row in table.rows]
        parts.append(f"## {table.title}\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n")
    return "\n".join(parts)


def document(experiment: Experiment, results: Results) -> dict[str, Any]:
    """Everything, for JSON; the names of times end with their unit, `_ns` or `_s`."""
    return {
        "seeds": list(experiment.seeds),
        "budget_s": experiment.budget_s,
        "tasks": [
            _task_document(experiment, results, task)
            for task in experiment.tasks
            if task.name in results.facts
        ],
    }


def _task_document(experiment: Experiment, results: Results, task: Task) -> dict[str, Any]:
    rows = rows_of(experiment, results, task)
    expert_ns = _expert_ns(rows)
    described = asdict(task)
    published_s = described.pop("published_s")
    return {
        **described,
        "published_ns": {
            planner: None if math.isinf(seconds) else round(1e9 * seconds)
            for planner, seconds in published_s.items()
        },
        "facts": asdict(results.facts[task.name]),
        "planners": [
            {
                "planner": row.planner,
                "step_time_ns": row.step_time_ns,
                "reduction_vs_expert": _reduction(row.step_time_ns, expert_ns),
                "speedup": _speedup_of(row, results.facts[task.name]),
                "cells": [{**asdict(cell), "feasible": cell.feasible} for cell in row.cells],
            }
            for row in rows
        ],
    }


def rows_of(experiment: Experiment, results: Results, task: Task) -> list[Row]:
    """The planners that have at least one cell."""
    rows = []
    for planner in experiment.planners:
        keys = [(task.name, planner, seed) for seed in experiment.seeds]
        cells = [results.cells[key] for key in keys if key in results.cells]
        if cells:
            rows.append(Row(planner=planner, cells=cells))
    return rows


def _expert_ns(rows: Sequence[Row]) -> int | None:
    return next((row.step_time_ns for row in rows if row.planner == EXPERT), None)


def _reduction(time: float | None, expert: float | None) -> float | None:
    """By which share a step is shorter than the human expert's; None if one does not run.

    Both times have one unit.
    """
    if time is None or expert is None or math.isinf(time):
        return None
    return 1 - time / expert


def _overview_row(experiment: Experiment, results: Results, task: Task) -> list[str]:
    facts = results.facts[task.name]
    rows = {row.planner: row for row in rows_of(experiment, results, task)}
    cells = [_step(rows[p]) if p in rows else "" for p in experiment.planners]
    default = "" if facts.default_ns is None else _default(facts)
    return [task.title, task.machine, default, *cells, _bound(facts.lower_bound_ns)]


def _default(facts: TaskFacts) -> str:
    return f"{(facts.default_ns or 0) / 1e9:.3g}" if facts.default_fits else "OOM"


def _without_empty(table: Table, column: str) -> Table:
    """Without that column if nothing is in it."""
    at = list(table.columns).index(column)
    if any(row[at] for row in table.rows):
        return table
    rows = [[*row[:at], *row[at + 1 :]] for row in table.rows]
    return Table(table.title, [*table.columns[:at], *table.columns[at + 1 :]], rows)


def _task_table(experiment: Experiment, results: Results, task: Task) -> Table:
    facts, published_s = results.facts[task.name], task.published_s
    parameters = ", ".join(f"{name} {value}" for name, value in task.parameters.items())
    title = (
        f"{task.title} on {task.machine}: {facts.num_ops:,} ops, {facts.num_units:,} units"
        f"{', ' if parameters else ''}{parameters}; lower bound {_bound(facts.lower_bound_ns)} s "
        f"({facts.lower_bound_term})"
    )
    if facts.default_ns is not None:
        title += f"; TensorFlow's placement {_default(facts)}{' s' if facts.default_fits else ''}"
    rows = rows_of(experiment, results, task)
    expert_ns = _expert_ns(rows)
    cells = [
        [
            row.planner,
            _step_in_full(row),
            _percent(_reduction(row.step_time_ns, expert_ns)),
            _speedup(row, facts),
            _above(row, facts.lower_bound_ns),
            f"{max(cell.planning_s for cell in row.cells):.3g} s",
            _count(max(cell.placements for cell in row.cells)),
            _published(published_s.get(row.planner)),
            _percent(_reduction(published_s.get(row.planner), published_s.get(EXPERT))),
            "; ".join(dict.fromkeys(note for cell in row.cells for note in cell.notes)),
        ]
        for row in rows
    ]
    return _without_empty(Table(title, _TASK_COLUMNS, cells), "times as fast as TensorFlow")


def _step(row: Row) -> str:
    if row.step_time_ns is None:
        return "OOM" if any(cell.missing_bytes for cell in row.cells) else "-"
    return f"{row.step_time_ns / 1e9:.3g}"


def _step_in_full(row: Row) -> str:
    """The median with its range, or why there is none."""
    out_of_memory = [cell for cell in row.cells if cell.missing_bytes]
    if row.step_time_ns is not None:
        text = f"{row.step_time_ns / 1e9:.4g} s"
        if len(times_ns := row.step_times_ns) > 1:
            text += f" ({times_ns[0] / 1e9:.4g} to {times_ns[-1] / 1e9:.4g})"
        return text + (f", {len(out_of_memory)} seeds OOM" if out_of_memory else "")
    if out_of_memory:
        device, missing = max(out_of_memory[0].missing_bytes.items(), key=lambda item: item[1])
        return f"OOM ({device} lacks {missing / 2**30:.2f} GiB)"
    return row.cells[0].error


def _bound(bound_ns: int | None) -> str:
    return "none" if bound_ns is None else f"{bound_ns / 1e9:.3g}"


def _speedup(row: Row, facts: TaskFacts) -> str:
    found = _speedup_of(row, facts)
    return "" if found is None else format_ratio(found)


def _speedup_of(row: Row, facts: TaskFacts) -> float | None:
    """How many times as many steps a second as under TensorFlow's own placement."""
    if facts.default_ns is None or not facts.default_fits or not row.step_time_ns:
        return None
    return facts.default_ns / row.step_time_ns


def _above(row: Row, bound_ns: int | None) -> str:
    if row.step_time_ns is None or not bound_ns:
        return ""
    return f"{row.step_time_ns / bound_ns - 1:+.0%}"


def _count(placements: int) -> str:
    return f"{placements:,}" if placements else ""


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _published(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return "OOM" if math.isinf(seconds) else f"{seconds:g} s"
