"""Fits the papers' machine to the papers' single-device step times.

    python -m benchmarks.fit_papers_machine [--output DIR] [--json]

Builds the six graphs for the machine as its data sheets have it (some minutes; the problem files
are kept in DIR and used again), simulates every step on the CPU alone and on one GPU alone, and
fits two numbers per device kind to the columns "CPU only" and "GPU only" of the papers' table. What
comes out stands in the machines `papers-*` (hplacer_optimizer/machines/data).

Peak rates and today's overheads do not give the papers' step times. Each kind gets a share of its
peak rates (arithmetic and memory alike) and a factor on its overheads, which are launches on a GPU,
and no more. They are fitted in logarithms, so that a task of a second counts like one of ten. Step
times over several devices never enter: they are what is predicted.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from hplacer_optimizer.bench.experiment import prepare
from hplacer_optimizer.bench.tasks import PAPER
from hplacer_optimizer.machines import load_machine
from hplacer_optimizer.planners import get_planner
from testbed.papers_machine import Observation, fit

COLUMNS = {"haswell-18": "cpu_only", "k40": "gpu_only"}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the fit and its residuals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("hplacer-fit"), metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    seen: dict[str, list[Observation]] = {kind: [] for kind in COLUMNS}
    for task in PAPER:
        machine = task.machine.replace("papers-", "1cpu-")  # as its data sheets have it
        problem = prepare(replace(task, machine=machine), options.output)
        kinds = {kind.name: kind for kind in load_machine(machine).kinds}
        for kind, planner in COLUMNS.items():
            published_s = task.published_s.get(planner, math.inf)
            if math.isfinite(published_s):
                placement = get_planner(planner).plan(problem).placement
                seen[kind].append(
                    Observation(
                        task=task.name,
                        problem=problem,
                        placement=placement,
                        kind=kinds[kind],
                        published_s=published_s,
                    )
                )
    report = []
    for kind, observations in seen.items():
        efficiency = fit(observations)
        rows = [
            {
                "task": one.task,
                "published_s": one.published_s,
                "predicted_s": one.predicted_s(efficiency),
            }
            for one in observations
        ]
        report.append({"kind": kind, **asdict(efficiency), "observations": rows})
    if options.json:
        print(json.dumps(report, indent=2))
        return 0
    for fitted in report:
        print(f"{fitted['kind']}: rates {fitted['rates']:.3g}, overhead {fitted['overhead']:.3g}")
        for row in fitted["observations"]:
            error = row["predicted_s"] / row["published_s"] - 1
            print(
                f"  {row['task']:14} published {row['published_s']:6.2f} s, "
                f"fitted {row['predicted_s']:6.2f} s ({error:+.0%})"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
