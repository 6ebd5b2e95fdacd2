"""Draws one training step before and after: TensorFlow's own placement and the plan of `auto`.

    python tools/draw_timelines.py                  docs/timelines.png; about a minute
    python tools/draw_timelines.py FILE.png --budget 10

The step is that of the workload `nmt` with four layers, on the shipped machine `papers-4xk40`. Both
times are those of the simulator. A bar is the time that ops of one colour keep a device busy.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import hplacer_optimizer as hp
from hplacer_optimizer.workloads.graphs import write_graph

OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "timelines.png"
MACHINE = "papers-4xk40"
# By the beginning of an op's name. What has no colour of its own is the forward pass.
COLOURS = {"gradients": "#e69f00", "train_op": "#009e73"}
FORWARD = "#0072b2"
LEGEND = {"forward": FORWARD, "backward": COLOURS["gradients"], "update": COLOURS["train_op"]}


def main() -> None:
    """Plans the step, simulates it under both placements and writes the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    parser.add_argument("--budget", type=float, help="seconds of the search; default: that of auto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "nmt.meta"
        write_graph("nmt", path, layers=4)
        plan = hp.plan(path, machine=MACHINE, budget_s=options.budget)
    draw(plan.problem(), plan.placement, options.output)


def draw(problem: Any, placement: Any, output: Path) -> None:
    """Two timelines above each other, with one axis of time."""
    before = hp.simulate(problem, problem.default_device)
    after = hp.simulate(problem, placement)
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True)
    gain = before.makespan_ns / after.makespan_ns
    for axis, trace, title in (
        (axes[0], before, f"TensorFlow's own placement: {_ms(before)} a step"),
        (axes[1], after, f"the plan of auto: {_ms(after)} a step, {gain:.1f} times as many steps"),
    ):
        _draw_step(axis, problem, trace)
        axis.set_title(title, loc="left", fontsize=10)
    axes[1].set_xlabel("simulated time, ms")
    handles = [Patch(color=colour, label=name) for name, colour in LEGEND.items()]
    figure.legend(handles=handles, loc="outside right upper", fontsize=8, frameon=False)
    figure.savefig(output, dpi=110)


def _draw_step(axis: Any, problem: Any, trace: Any) -> None:
    """A row per device; ops that have no work are left out."""
    colours = np.array([_colour(name) for name in problem.op_names])
    busy = trace.finish_ns > trace.start_ns
    for row in range(problem.num_devices):
        for colour in LEGEND.values():
            chosen = busy & (trace.placement == row) & (colours == colour)
            begin, end = _merged(trace.start_ns[chosen], trace.finish_ns[chosen])
            bars = np.stack([begin, end - begin], axis=1) / 1e6
            axis.broken_barh(bars, (row - 0.4, 0.8), facecolor=colour)
    names = [name.rpartition("device:")[2] for name in problem.device_names]
    axis.set_yticks(range(problem.num_devices), names, fontsize=8)
    axis.set_ylim(problem.num_devices - 0.5, -0.5)
    axis.spines[["top", "right"]].set_visible(False)


def _colour(name: str) -> str:
    return COLOURS.get(name.partition("/")[0], FORWARD)


def _merged(begin: Any, end: Any) -> tuple[Any, Any]:
    """The intervals, those that follow each other without a gap joined; in ns."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    opens = np.append(True, begin[1:] > end[:-1])[: len(begin)]
    last = np.append(opens[1:], True)[: len(begin)]
    return begin[opens], end[last]


def _ms(trace: Any) -> str:
    return f"{trace.makespan_ns / 1e6:,.0f} ms"


if __name__ == "__main__":
    main()
