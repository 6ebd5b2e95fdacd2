"""`hplacer simulate` and `hplacer plan`: placements of one graph."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hplacer_optimizer._engine import LowerBound, Problem, StepTrace, lower_bound
from hplacer_optimizer.capture.loading import load as load_graph_or_problem
from hplacer_optimizer.cli.arguments import (
    FAILED,
    OK,
    add_budget,
    add_command,
    add_host_offload,
    add_json,
    add_output,
    add_planner,
    add_seed,
    check_two_files,
    count,
    output_file,
)
from hplacer_optimizer.cli.graph_arguments import add_graph_arguments, load, step_options
from hplacer_optimizer.cli.interruption import Interruption
from hplacer_optimizer.cli.load_tables import print_step_loads
from hplacer_optimizer.cli.parser import advanced
from hplacer_optimizer.cli.plan_texts import comparison, training_note
from hplacer_optimizer.cli.printing import print_json, step_time
from hplacer_optimizer.cli.search_progress import SearchProgress
from hplacer_optimizer.cli.terminal_tables import print_line
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.errors import OptionError, ProblemError
from hplacer_optimizer.inspection.chrome_trace import write_chrome_trace
from hplacer_optimizer.inspection.loads import channel_loads, device_loads
from hplacer_optimizer.planners import PLANNERS, Budget, get_planner
from hplacer_optimizer.plans.baseline import Baseline, as_json
from hplacer_optimizer.plans.making import Search, plan_loaded
from hplacer_optimizer.plans.plan import Plan, load_plan
from hplacer_optimizer.plans.plan_file import is_plan_file
from hplacer_optimizer.problem.bounds import gap
from hplacer_optimizer.problem.problem_file import check_placement
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.support.formats import format_ns
from hplacer_optimizer.support.keywords import close_name

_PLAN_EXAMPLE = """\
example: hplacer plan model.meta --machine 1cpu-2xk40 --budget 2m -o model.hplan

Ctrl-C or SIGTERM ends the search and keeps the best plan so far (exit code 130 or 143). `hplacer
show`, `report`, `explain` and `diff` read the file; `hplacer cache import` puts the plan of a graph
where a training script finds it.
"""


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    example = "hplacer simulate model.meta --machine 1cpu-2xk40 --placement gpu_only"
    text = "predict the step time of a placement; exit code 1 if it is infeasible"
    simulate = add_command(commands, "simulate", _simulate, text, example)
    add_graph_arguments(simulate)
    simulate.add_argument(
        "--placement",
        required=True,
        metavar="PLACEMENT",
        help="cpu_only, gpu_only, round_robin, random:SEED or another planner, `all:DEVICE_INDEX`, "
        "a plan file, or a JSON file with one device index per op",
    )
    _add_trace(simulate)
    add_json(simulate)

    text = "plan a graph and write the plan; exit code 1 if none that fits was found"
    plan = add_command(commands, "plan", _plan, text, _PLAN_EXAMPLE)
    add_graph_arguments(plan)
    add_output(plan, "write the plan here, as .hplan", required=False)
    add_planner(plan, "searches for the plan (default: auto)", "auto")
    text = "longest search, as 90s, 10m or 1h30m (default: the planner's own, 10s or more for auto)"
    add_budget(plan, text)
    add_seed(plan)
    advanced(plan).add_argument(
        "--steps",
        type=count,
        metavar="N",
        help="end after N steps, with the same plan every time",
    )
    add_host_offload(plan)
    _add_trace(plan)
    add_json(plan)


def _add_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace",
        type=output_file,
        metavar="FILE",
        help="write the simulated step as .json or .json.gz, for ui.perfetto.dev or chrome://tracing",
    )


def _simulate(options: argparse.Namespace) -> int:
    problem = load(options)
    with waiting(f"placing {options.graph}"):
        placement = _placement(problem, options.placement)
    trace = simulate(problem, placement)
    return _report_step(problem, placement, trace, lower_bound(problem), {}, options)


def _plan(options: argparse.Namespace) -> int:
    check_two_files(options)
    interruption = Interruption()
    search = Search(
        planner=options.planner,
        seed=options.seed,
        budget=Budget(seconds=options.budget, steps=options.steps, stop=interruption.stop),
        cost_table=options.cost_table,
        host_offload=bool(options.host_offload),
    )
    with waiting(f"loading {options.graph}"):
        loaded = load_graph_or_problem(
            options.graph, machine=options.machine, **step_options(options)
        )
    with SearchProgress() as shown, interruption.watched():
        shown.watch(f"{options.graph}: {options.planner}", search.budget)
        plan, trace = plan_loaded(loaded, search, on_progress=shown.update)
        if options.output:
            plan.save(options.output)
    for note in plan.planner_notes:
        print(f"hplacer: {note}", file=sys.stderr)
    facts = {
        "planner": plan.planner,
        "seed": plan.seed,
        "budget": plan.budget,
        "planning_s": round(plan.planning_s, 6),
        "planner_notes": list(plan.planner_notes),
        "fingerprint": plan.fingerprint,
        "step_spread_ns": plan.step_spread_ns,
        **comparison(plan),
    }
    step = plan.simulated()
    code = _report_step(step.problem, step.placement, trace, step.bound, facts, options)
    note = training_note(plan)
    if note and not options.json:
        print_line(note)
    if interruption.signal is None:
        return code
    kept = f"the best plan so far is in {options.output}" if options.output else "not written"
    print(f"hplacer: interrupted: {kept}", file=sys.stderr)
    return interruption.exit_code


def _placement(problem: Problem, text: str) -> npt.NDArray[np.int32]:
    """int32[n] from a file, a rule or a planner; ProblemError if it does not fit the problem."""
    devices: list[int]
    if text.partition(":")[0] in PLANNERS:
        return get_planner(text).plan(problem).placement
    if match := re.fullmatch(r"all:(\d{1,9})", text, re.ASCII):
        devices = [int(match[1])] * problem.num_ops
    else:
        try:
            content = Path(text).read_bytes()
            if is_plan_file(content):
                return _placement_of_plan(problem, load_plan(text), text)
            devices = json.loads(content)
        except FileNotFoundError:
            close = close_name(text.partition(":")[0], PLANNERS)
            hint = f"did you mean {close!r}? " if close else ""
            raise OptionError(
                f"--placement {text!r}: no such file; {hint}valid are a plan file, a JSON file, "
                "all:DEVICE_INDEX and the names of `hplacer plan --planner help`"
            ) from None
        except (ValueError, RecursionError) as error:
            raise ProblemError(f"{text}: is not JSON: {error}") from None
    try:
        return check_placement(problem, devices)
    except ProblemError as error:
        raise ProblemError(f"{text}: {error}") from None


def _placement_of_plan(problem: Problem, plan: Plan, name: str) -> npt.NDArray[np.int32]:
    planned = plan.simulated()
    for what in ("op_names", "device_names"):
        if getattr(planned.problem, what) != getattr(problem, what):
            kind = what.removesuffix("_names")
            raise ProblemError(f"{name}: is a plan of another graph or machine: its {kind}s differ")
    return planned.placement


def _report_step(
    problem: Problem,
    placement: npt.NDArray[np.int32],
    trace: StepTrace,
    bound: LowerBound,
    facts: dict[str, Any],
    options: argparse.Namespace,
) -> int:
    """Prints what the simulator says of a placement; `facts` are extra entries for JSON."""
    if options.trace:
        write_chrome_trace(problem, placement, trace, options.trace)
    devices = device_loads(problem, placement, trace)
    channels = channel_loads(problem, trace)
    share = gap(trace.makespan_ns, bound.ns) if trace.feasible else None
    baseline, step = Baseline.of(problem), (trace.makespan_ns, trace.feasible)
    if options.json:
        print_json(
            {
                **facts,
                "num_ops": problem.num_ops,
                "num_units": problem.num_units,
                "feasible": trace.feasible,
                "infeasible_because": list(trace.infeasible_because),
                "step_time_ns": trace.makespan_ns,
                "baseline": as_json(baseline),
                "speedup": baseline.speedup_of(*step) if baseline else None,
                "lower_bound_ns": bound.ns,
                "lower_bound_term": bound.term,
                "gap": share,
                "device_names": list(problem.device_names),
                "ops_per_device": [device.ops for device in devices],
                "peak_bytes": [device.peak_bytes for device in devices],
                "devices": [asdict(device) for device in devices],
                "channels": [asdict(channel) for channel in channels],
            }
        )
    else:
        compared = baseline.beside(*step) if baseline else ""
        print_line(f"step time: {step_time(*step)}" + (f", {compared}" if compared else ""))
        if bound.ns is not None:
            gap_text = "" if share is None else f", gap {share:.1%}"
            print_line(f"lower bound: {format_ns(bound.ns)} ({bound.term}){gap_text}")
        for reason in dict.fromkeys([*trace.infeasible_because, *bound.infeasible_because]):
            print_line(f"infeasible: {reason}")
        print_step_loads(devices, channels)
    return OK if trace.feasible else FAILED
