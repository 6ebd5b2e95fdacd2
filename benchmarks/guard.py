"""Does the guard protect, and let pass what pays? Real steps on two workers with a core each.

Every graph is planned twice by `auto`, with measured and with estimated costs. Both plans and
TensorFlow's own placement take turns, until the 95% interval of each ratio is narrow. A plan that
takes effect must not be slower; of the plans that are faster, most should take effect.

With measured costs, the error of the predictions for all other graphs decides whether a plan takes
effect, so that no graph is judged by what it taught. With estimated costs that is the plan's own
error (problem/prediction_error.py), or the one of the other graphs where it is smaller. Beside it
stands what each plan would do without the guard. The package has the errors for all graphs. Some
graphs were chosen after all this was fixed; they are counted once more by themselves.

Graphs that guard.json in the folder of --output has are not measured again.

    python benchmarks/guard.py --output docs/results/guard
    python benchmarks/guard.py --graphs "two towers" "many tiny ops"
    python benchmarks/guard.py --judge docs/results/guard
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.bench.measured import Bench, calibrated_cluster
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.bench.small_graphs import CHOSEN_LAST, GRAPHS, write
from hplacer_optimizer.capture.loading import LoadedGraph, load_graph
from hplacer_optimizer.machines import Machine
from hplacer_optimizer.machines.describe import describe_cluster
from hplacer_optimizer.measuring.calibration.calibrate import calibrate_graph
from hplacer_optimizer.measuring.turns import WIDTH
from hplacer_optimizer.planners import Budget
from hplacer_optimizer.plans.making import Search, make_plan
from hplacer_optimizer.plans.plan import Plan

MEASURED, ESTIMATED = "measured", "estimated"
DEFAULT = "TensorFlow's"
HARM, PAYS, SHARE, AT_LEAST = 0.03, 0.10, 0.85, 8


@dataclass(frozen=True, kw_only=True)
class Row:
    """One plan of one graph."""

    graph: str
    costs: str
    ops: int
    default_s: float  # median step under TensorFlow's placement
    plan_s: float
    predicted_speedup: float
    own_error: float | None = None  # of the predicted speedup, as the plan has it
    speedup: float  # measured
    low: float  # 95% interval of `speedup`
    high: float
    turns: int

    @property
    def optimism(self) -> float:
        """By how much the prediction was too good, as a share of the measured speedup."""
        return self.predicted_speedup / self.speedup - 1


def main(argv: Sequence[str] | None = None) -> int:
    """Plans, measures, prints the table and writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS), metavar="NAME")
    parser.add_argument("--planning-s", type=float, default=5.0, help="default: 5")
    parser.add_argument("--limit-s", type=float, default=60.0, help="of turns a graph, default: 60")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for guard.json and table.md")
    parser.add_argument(
        "--judge", type=Path, metavar="DIR", help="measure nothing, read guard.json"
    )
    options = parser.parse_args(argv)
    rows: list[Row] = []
    notes: list[str] = []
    if options.output and (options.output / "guard.json").exists():
        rows, notes = load(options.output / "guard.json")
    if options.judge:
        rows, notes = load(options.judge / "guard.json")
        save(rows, notes, options.judge)
        print((options.judge / "table.md").read_text())
        return 0

    def tell(what: str) -> None:
        print(f"  {what}", file=sys.stderr, flush=True)

    measured = {row.graph for row in rows}
    missing = [name for name in options.graphs if name not in measured]
    if measured:
        tell(f"{len(measured)} graphs are in guard.json already, and are not measured again")
    with calibrated_cluster(tell) as bench:
        described = describe_cluster(bench.cluster.addresses, timeout_s=120.0)
        for name in missing:
            tell(name)
            rows += compare(bench, described, name, options.planning_s, options.limit_s)
            for row in rows[-2:]:
                print(f"  {row}", flush=True)
            if options.output:
                save(rows, [*notes, *bench.notes], options.output)
    print("\n".join(["", *summary(rows)]))
    return 0


def compare(
    bench: Bench, described: Machine, name: str, planning_s: float, limit_s: float
) -> list[Row]:
    """The two plans of a graph."""
    path = bench.directory / "graph.meta"
    write(name, path)
    costs = calibrate_graph(path, bench.machine, addresses=bench.cluster.addresses).costs
    plans: dict[str, Plan] = {}
    measured: LoadedGraph | None = None
    for source, machine, table in ((MEASURED, bench.machine, costs), (ESTIMATED, described, None)):
        loaded = load_graph(path, machine=machine, cost_table=table, keep_graph=True)
        measured = measured or loaded
        search = Search(planner="auto", budget=Budget(seconds=planning_s), cost_table=table)
        plans[source], _ = make_plan(loaded.captured, loaded.machine, search)
    assert measured is not None
    default = measured.problem.default_device
    assert default is not None
    placements = {DEFAULT: default} | {source: placed(plan) for source, plan in plans.items()}
    turns = bench.take_turns(measured, placements, DEFAULT, limit_s)
    rows = []
    for source, plan in plans.items():
        low, high = turns[source].interval
        rows.append(
            Row(
                graph=name,
                costs=source,
                ops=plan.num_ops,
                default_s=turns[DEFAULT].step_s,
                plan_s=turns[source].step_s,
                predicted_speedup=plan.speedup or math.nan,
                own_error=plan.prediction_error,
                speedup=turns[source].speedup,
                low=low,
                high=high,
                turns=len(turns[source].logarithms),
            )
        )
    return rows


def placed(plan: Plan) -> NDArray[np.int32]:
    placement = plan.placement
    assert placement is not None
    return placement


def error_without(rows: Sequence[Row], graph: str, costs: str) -> float:
    """The 95th percentile of the optimism for the other graphs."""
    others = [row.optimism for row in rows if row.graph != graph and row.costs == costs]
    return float(np.percentile(others, 95)) if others else math.inf


def takes_effect(row: Row, rows: Sequence[Row]) -> bool:
    """As the guard would decide if it knew all graphs but this one."""
    error = error_without(rows, row.graph, row.costs)
    if row.own_error is not None:
        error = min(error, row.own_error)
    return row.predicted_speedup - 1 > error


def lines(rows: Sequence[Row]) -> str:
    """Of a table in Markdown."""
    return "\n".join(
        f"| {row.graph} | {row.ops} | {row.costs} | {row.default_s * 1e3:.2f} | "
        f"{row.plan_s * 1e3:.2f} | {row.predicted_speedup:.2f} | {row.speedup:.2f} | "
        f"{row.low:.2f} to {row.high:.2f} | {'yes' if takes_effect(row, rows) else 'no'} |"
        for row in rows
    )


def summary(rows: Sequence[Row]) -> list[str]:
    """The goals, and what the plans would do without the guard."""
    found = []
    for costs in (MEASURED, ESTIMATED):
        mine = [row for row in rows if row.costs == costs]
        effective = [row for row in mine if takes_effect(row, mine)]
        late = [row for row in mine if row.graph in CHOSEN_LAST]
        worst = min((row.speedup for row in effective), default=1.0)
        paying = [row for row in mine if row.speedup >= 1 + PAYS]
        used = sum(row in effective for row in paying)
        harmful = [row for row in mine if row.speedup < 1 / (1 + HARM)]
        wide = sum(row.high - row.low > WIDTH * row.speedup for row in mine)
        optimism = [row.optimism for row in mine]
        found += [
            f"{costs} costs, {len(mine)} graphs, {wide} with an interval wider than {WIDTH:.0%}",
            f"  in effect: {len(effective)}, the worst at {worst:.2f} times the steps a second of "
            f"TensorFlow's placement (goal: at least {1 / (1 + HARM):.2f})",
            f"  at least {PAYS:.0%} faster: {len(paying)} (goal: {AT_LEAST}), of which in effect "
            f"{used} (goal: {SHARE:.0%})",
            f"  without the guard: {len(harmful)} plans more than {HARM:.0%} slower, the worst at "
            f"{min((row.speedup for row in mine), default=1.0):.2f}",
            f"  of the {len(late)} graphs chosen last: {sum(row in effective for row in late)} in "
            f"effect, the worst at "
            f"{min((row.speedup for row in late if row in effective), default=1.0):.2f}; "
            f"{sum(row in paying for row in late)} at least {PAYS:.0%} faster",
            f"  predicted gains too large by {np.percentile(optimism, 95):.2f} at the 95th "
            "percentile",
        ]
    return found


def load(path: Path) -> tuple[list[Row], list[str]]:
    """The rows of a run, and notes of its calibration."""
    document = json.loads(path.read_text())
    return [Row(**row) for row in document["rows"]], document["calibration"]


def save(rows: Sequence[Row], notes: Sequence[str], directory: Path) -> None:
    """The rows for programs, and the table for people."""
    directory.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"rows": [asdict(row) for row in rows], "calibration": list(notes)}
    (directory / "guard.json").write_text(result_json(document) + "\n")
    head = (
        "| graph | ops | costs | TensorFlow's, ms | plan, ms | predicted | measured | 95% | in "
        "effect |\n|---|---|---|---|---|---|---|---|---|\n"
    )
    text = head + lines(rows) + "\n\n```\n" + "\n".join(summary(rows)) + "\n```\n"
    (directory / "table.md").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
