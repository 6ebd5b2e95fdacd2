"""`hplacer show`: one plan."""

from __future__ import annotations

import argparse
import os
from typing import Any

from hplacer_optimizer.cli.arguments import (
    OK,
    add_command,
    add_json,
    add_store_options,
    open_store,
)
from hplacer_optimizer.cli.printing import (
    count_per_device,
    print_devices,
    print_json,
    print_table,
)
from hplacer_optimizer.plan import Plan
from hplacer_optimizer.store import read_plan


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    show = add_command(commands, "show", _show, "describe one plan", "hplacer show 3f9c2b1a")
    show.add_argument("plan", metavar="PLAN", help="a plan file, or the start of a fingerprint")
    add_store_options(show)
    add_json(show)


def _show(options: argparse.Namespace) -> int:
    plan = _find_plan(options)
    if options.json:
        print_json(plan_document(plan))
        return OK
    print(f"{plan.label}: {plan.summary_line()}")
    print(f"planned by {plan.planner} (seed {plan.seed}) in {plan.planning_s:.3g} s", end="")
    print(f" on {plan.host}, {plan.created}; costs: {plan.cost_source}")
    print(f"{plan.num_ops} ops, {plan.num_units} units, {len(plan.node_names)} nodes")
    for note in plan.planner_notes:
        print(note)
    for assumption in plan.assumptions:
        print(f"assumes {assumption}")
    counts = count_per_device(plan.node_devices, len(plan.device_names))
    print_devices(plan.device_names, counts, plan.peak_bytes, "nodes")
    print_table(("fingerprint part", "value"), list(plan.fingerprint_parts.items()))
    return OK


def _find_plan(options: argparse.Namespace) -> Plan:
    """A name that is a file or looks like one is a path, anything else a fingerprint prefix."""
    if "/" in options.plan or options.plan.endswith(".hplan") or os.path.isfile(options.plan):
        return read_plan(options.plan)
    store = open_store(options)
    fingerprint = store.resolve(options.plan)
    return store.get(fingerprint) or read_plan(store.path(fingerprint))  # None: just removed


def plan_document(plan: Plan) -> dict[str, Any]:
    """The summary, and the columns summed up per device."""
    counts = count_per_device(plan.node_devices, len(plan.device_names))
    return {**plan.summary(), "num_nodes": len(plan.node_names), "nodes_per_device": counts}
