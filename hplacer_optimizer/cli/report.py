"""`hplacer report`: a plan as a web page, for Perfetto and for TensorBoard."""

from __future__ import annotations

import argparse
from typing import Any

from hplacer_optimizer.cli.arguments import (
    OK,
    add_command,
    add_json,
    add_output,
    check_two_files,
    output_directory,
    output_file,
)
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.stored_plans import (
    add_plan_arguments,
    add_simulation_options,
    find_plan,
    simulated,
)
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.inspection.chrome_trace import write_chrome_trace
from hplacer_optimizer.inspection.report import write_report
from hplacer_optimizer.inspection.tensorboard import write_tensorboard


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "write a web page about a plan: its timeline beside TensorFlow's, waits, memory, graph"
    report = add_command(
        commands, "report", _report, text, "hplacer report 3f9c2b1a -o report.html"
    )
    add_plan_arguments(report, "plan")
    add_output(report, "the page, one file that needs no network", required=False)
    report.add_argument(
        "--trace",
        type=output_file,
        metavar="FILE",
        help="write the simulated step as .json or .json.gz, for ui.perfetto.dev",
    )
    report.add_argument(
        "--tensorboard",
        type=output_directory,
        metavar="DIR",
        help="write the graph with its devices and times for TensorBoard's graph page",
    )
    add_simulation_options(report)
    add_json(report)


def _report(options: argparse.Namespace) -> int:
    if not (options.output or options.trace or options.tensorboard):
        raise OptionError("nothing to write: name -o, --trace or --tensorboard")
    check_two_files(options)
    plan = find_plan(options, options.plan)
    step = simulated(options, plan)
    with waiting("writing"):
        if options.output:
            write_report(step, plan, options.output)
        if options.trace:
            write_chrome_trace(step.problem, step.placement, step.trace, options.trace)
        if options.tensorboard:
            write_tensorboard(step, options.tensorboard)
    written = {
        name: str(getattr(options, name))
        for name in ("output", "trace", "tensorboard")
        if getattr(options, name)
    }
    if options.json:
        found = {"step_time_ns": step.trace.makespan_ns, "feasible": step.trace.feasible}
        print_json({**written, **found})
    else:
        for path in written.values():
            print(path)
    return OK
