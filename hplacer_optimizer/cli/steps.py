"""`hplacer simulate` and `hplacer plan`: placements of one graph."""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hplacer_optimizer.cli.arguments import FAILED, OK, add_command, add_json
from hplacer_optimizer.cli.printing import count_per_device, print_devices, print_json, step_time
from hplacer_optimizer.errors import ProblemError

if TYPE_CHECKING:
    from hplacer_optimizer._engine import Problem, StepTrace


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    example = "hplacer simulate mlp.hplacer.json --placement all:0"
    text = "predict the step time of a placement; exit code 1 if it is infeasible"
    simulate = add_command(commands, "simulate", _simulate, text, example)
    simulate.add_argument("problem", metavar="PROBLEM", help="a problem file (*.hplacer.json)")
    simulate.add_argument(
        "--placement",
        required=True,
        metavar="P",
        help="a JSON file with one device index per op, `round_robin` or `all:DEVICE_INDEX`",
    )
    add_json(simulate)

    example = "hplacer plan mlp.hplacer.json --planner etf -o placement.json"
    text = "plan a placement of a problem file; exit code 1 if none that fits was found"
    plan = add_command(commands, "plan", _plan, text, example)
    plan.add_argument("problem", metavar="PROBLEM", help="a problem file (*.hplacer.json)")
    plan.add_argument("--planner", default="etf", metavar="NAME", help="default: etf")
    plan.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    plan.add_argument("-o", "--output", metavar="FILE", help="write the placement here, as JSON")
    add_json(plan)


def _simulate(options: argparse.Namespace) -> int:
    from hplacer_optimizer.problem import load_problem_file
    from hplacer_optimizer.simulator import simulate

    problem = load_problem_file(options.problem)
    placement = _placement(problem, options.placement)
    return _report_step(problem, placement, simulate(problem, placement), {}, options.json)


def _plan(options: argparse.Namespace) -> int:
    from hplacer_optimizer.planners import get_planner
    from hplacer_optimizer.problem import load_problem_file
    from hplacer_optimizer.simulator import simulate

    problem = load_problem_file(options.problem)
    planner = get_planner(options.planner)
    start_s = time.perf_counter()
    placement = planner(problem, seed=options.seed)
    planning_s = time.perf_counter() - start_s
    if options.output:
        Path(options.output).write_text(json.dumps(placement.tolist()) + "\n", encoding="ascii")
    facts = {"planner": options.planner, "seed": options.seed, "planning_s": round(planning_s, 6)}
    return _report_step(problem, placement, simulate(problem, placement), facts, options.json)


def _placement(problem: Problem, text: str) -> npt.NDArray[np.int32]:
    """int32[n] from a file or a rule; raises ProblemError if it does not fit the problem."""
    from hplacer_optimizer.problem import check_placement

    devices: list[int]
    if text == "round_robin":
        devices = (problem.units % problem.num_devices).tolist()
    elif match := re.fullmatch(r"all:(\d{1,9})", text, re.ASCII):
        devices = [int(match[1])] * problem.num_ops
    else:
        try:
            devices = json.loads(Path(text).read_text(encoding="utf-8"))
        except FileNotFoundError:
            choices = "--placement takes a JSON file, round_robin or all:DEVICE_INDEX"
            raise ProblemError(f"{text}: no such file; {choices}") from None
        except (ValueError, RecursionError) as error:
            raise ProblemError(f"{text}: is not JSON: {error}") from None
    try:
        return check_placement(problem, devices)
    except ProblemError as error:
        raise ProblemError(f"{text}: {error}") from None


def _report_step(
    problem: Problem,
    placement: npt.NDArray[np.int32],
    trace: StepTrace,
    facts: dict[str, Any],
    as_json: bool,
) -> int:
    """Prints what the simulator says of a placement; `facts` are extra entries for JSON."""
    counts = count_per_device(placement, problem.num_devices)
    peak_bytes = [int(peak) for peak in trace.peak_bytes]
    if as_json:
        print_json(
            {
                **facts,
                "num_ops": problem.num_ops,
                "num_units": problem.num_units,
                "feasible": trace.feasible,
                "infeasible_because": list(trace.infeasible_because),
                "makespan_ns": trace.makespan_ns,
                "device_names": list(problem.device_names),
                "ops_per_device": counts,
                "peak_bytes": peak_bytes,
            }
        )
    else:
        print(f"step time: {step_time(trace.makespan_ns, trace.feasible)}")
        for reason in trace.infeasible_because:
            print(f"infeasible: {reason}")
        print_devices(problem.device_names, counts, peak_bytes, "ops")
    return OK if trace.feasible else FAILED
