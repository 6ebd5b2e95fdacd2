"""`hplacer show`: one plan."""

from __future__ import annotations

import argparse
import time
from typing import Any

from hplacer_optimizer.cli.arguments import MORE, OK, add_all, add_command, add_json
from hplacer_optimizer.cli.load_tables import (
    add_depth,
    devices_line,
    load_document,
    print_loads,
)
from hplacer_optimizer.cli.plan_texts import comparison, print_plan
from hplacer_optimizer.cli.printing import certificate, count_per_device, print_json
from hplacer_optimizer.cli.stored_plans import (
    add_plan_arguments,
    add_simulation_options,
    find_plan,
    simulated_if_possible,
    timed_starts,
)
from hplacer_optimizer.cli.terminal_tables import print_line, print_table
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.plans.elsewhere import made_for
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.problem.cost_sources import in_words
from hplacer_optimizer.support.formats import format_age, format_ns


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    show = add_command(commands, "show", _show, "describe one plan", "hplacer show 3f9c2b1a")
    add_plan_arguments(show, "plan")
    add_simulation_options(show)
    add_depth(show)
    add_all(show)
    add_json(show)


def _show(options: argparse.Namespace) -> int:
    plan = find_plan(options, options.plan)
    step = simulated_if_possible(options, plan)
    timed = timed_starts(options, options.plan, plan)
    if options.json:
        document = {**plan_document(plan), **load_document(plan, step, options.depth)}
        print_json({**document, "timed_starts": timed})
        return OK
    _print_summary(plan, step)
    if options.all:
        _print_rest(plan, step, timed, options.depth)
    else:
        print(MORE)
    return OK


def _print_summary(plan: Plan, step: SimulatedStep | None) -> None:
    """What matters most, a line each."""
    print_plan(plan)
    bound = plan.lower_bound_ns, plan.lower_bound_term
    if line := certificate(plan.step_time_ns, plan.feasible, *bound, said_ns=plan.step_ns):
        print_line(line)
    if plan.step_spread_ns:
        low, high = map(format_ns, plan.step_spread_ns)
        print_line(f"with typical errors of the costs: {low} to {high} in 90% of the cases")
    print_line(devices_line(plan, step))
    if line := made_for(plan):
        print_line(line)
    age, day = format_age(plan.created, time.time()), plan.created.partition("T")[0]
    when = age if age == day else f"{day} ({age})"
    made = f"planned by {plan.planner} (seed {plan.seed}) in {plan.planning_s:.3g} s"
    print_line(f"{made} on {plan.host}, {when}; costs: {in_words(plan.cost_source)}")


def _print_rest(plan: Plan, step: SimulatedStep | None, timed: dict[str, int], depth: int) -> None:
    if any(timed.values()) and not plan.verdict:
        with_plan, without = timed["with_plan"], timed["without"]
        print_line(
            f"option verify has timed {with_plan} starts with this plan, {without} without it"
        )
    print_line(f"{plan.num_ops} ops, {plan.num_units} units, {len(plan.node_names)} nodes")
    for note in plan.planner_notes:
        print_line(note)
    for assumption in plan.assumptions:
        print_line(f"assumes {assumption}")
    print_loads(plan, step, depth)
    print_table(("fingerprint part", "value"), list(plan.fingerprint_parts.items()))


def plan_document(plan: Plan) -> dict[str, Any]:
    """The summary, and the columns summed up per device."""
    counts = count_per_device(plan.node_devices, len(plan.device_names))
    return {
        **plan.summary(),
        **comparison(plan),
        "made_for": made_for(plan) or None,
        "gap": plan.gap,
        "num_nodes": len(plan.node_names),
        "nodes_per_device": counts,
    }
