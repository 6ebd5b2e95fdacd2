"""A bar chart per task: step time by planner, beside the papers' own figure."""

from __future__ import annotations

import math
from pathlib import Path

from hplacer_optimizer.bench.experiment import Experiment, Results
from hplacer_optimizer.bench.tables import rows_of
from hplacer_optimizer.bench.tasks import Task
from hplacer_optimizer.errors import BenchError


def draw(experiment: Experiment, results: Results, task: Task, path: Path) -> None:
    """Writes a PNG. Raises BenchError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BenchError("charts need matplotlib: pip install 'hplacer-optimizer[bench]'") from None
    rows = rows_of(experiment, results, task)
    figure = Figure(figsize=(8, 1.2 + 0.35 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    positions = range(len(rows))
    for position, row in zip(positions, rows, strict=True):
        if row.step_time_ns is None:
            axes.text(0, position, " OOM" if row.cells[0].missing_bytes else " -", va="center")
            continue
        seconds, low, high = (
            time_ns / 1e9
            for time_ns in (row.step_time_ns, row.step_times_ns[0], row.step_times_ns[-1])
        )
        spread = [[seconds - low], [high - seconds]]
        axes.barh(position, seconds, height=0.6, color="tab:blue", xerr=spread)
    published = [(position, task.published_s.get(row.planner)) for position, row in enumerate(rows)]
    finite = [(position, s) for position, s in published if s is not None and not math.isinf(s)]
    if finite:
        axes.plot(
            [seconds for _, seconds in finite],
            [position for position, _ in finite],
            "k|",
            markersize=14,
            label="paper",
        )
    bound_ns = results.facts[task.name].lower_bound_ns
    if bound_ns is not None:
        axes.axvline(bound_ns / 1e9, linestyle="--", color="tab:red", label="lower bound")
    axes.set_yticks(list(positions), [row.planner for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("seconds per step (simulated)")
    axes.set_title(f"{task.title}, {task.machine}")
    axes.legend()
    figure.savefig(path, dpi=150)
