"""`hplacer cache` and `hplacer show`: the stored plans."""

from __future__ import annotations

import argparse
import os
from typing import Any

from hplacer_optimizer.cli.arguments import (
    FAILED,
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
    step_time,
)
from hplacer_optimizer.plan import Plan
from hplacer_optimizer.store import read_plan


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    _add_cache(commands)
    show = add_command(commands, "show", _show, "describe one plan", "hplacer show 3f9c2b1a")
    show.add_argument("plan", metavar="PLAN", help="a plan file, or the start of a fingerprint")
    add_store_options(show)
    add_json(show)


def _add_cache(commands: Any) -> None:
    text = "look after the stored plans"
    cache = commands.add_parser("cache", help=text, epilog="example: hplacer cache list")
    actions = cache.add_subparsers(metavar="ACTION", required=True)
    listing = add_command(
        actions, "list", _cache_list, "list the stored plans", "hplacer cache list"
    )
    path = add_command(actions, "path", _cache_path, "print the directory", "hplacer cache path")
    example = "hplacer cache remove 3f9c2b1a"
    remove = add_command(actions, "remove", _cache_remove, "remove one stored plan", example)
    remove.add_argument("fingerprint", metavar="FP", help="a fingerprint or its unique start")
    text = "read every stored plan; exit code 1 if one is damaged"
    verify = add_command(actions, "verify", _cache_verify, text, "hplacer cache verify --json")
    for action in (listing, path, remove, verify):
        add_store_options(action)
    add_json(listing)
    add_json(verify)


def _cache_list(options: argparse.Namespace) -> int:
    store = open_store(options)
    entries = store.list()
    if options.json:
        print_json(
            [
                {
                    "fingerprint": entry.fingerprint,
                    "path": entry.path,
                    "error": entry.error,
                    "plan": _plan_document(entry.plan) if entry.plan else None,
                }
                for entry in entries
            ]
        )
        return OK
    if not entries:
        print(f"no plans in {store.directory}")
    print_table(
        ("fingerprint", "label", "planner", "step", "ops", "devices", "created"),
        [
            (
                plan.short_fingerprint,
                plan.label,
                plan.planner,
                step_time(plan.step_time_ns, plan.feasible),
                str(plan.num_ops),
                str(len(plan.device_names)),
                plan.created,
            )
            for plan in (entry.plan for entry in entries)
            if plan
        ],
    )
    for entry in entries:
        if entry.error:
            print(f"unreadable: {entry.error}")
    return OK


def _cache_path(options: argparse.Namespace) -> int:
    print(open_store(options).directory)
    return OK


def _cache_remove(options: argparse.Namespace) -> int:
    print(f"removed {open_store(options).remove(options.fingerprint)}")
    return OK


def _cache_verify(options: argparse.Namespace) -> int:
    store = open_store(options)
    entries = store.list()
    damaged = [entry for entry in entries if entry.error]
    if options.json:
        errors = [{"path": entry.path, "error": entry.error} for entry in damaged]
        print_json({"directory": store.directory, "checked": len(entries), "damaged": errors})
    else:
        for entry in damaged:
            print(f"failed  {entry.error}")
        print(f"{len(entries)} plans in {store.directory}, {len(damaged)} damaged")
    return FAILED if damaged else OK


def _show(options: argparse.Namespace) -> int:
    plan = _find_plan(options)
    if options.json:
        print_json(_plan_document(plan))
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


def _plan_document(plan: Plan) -> dict[str, Any]:
    """The summary, and the columns summed up per device."""
    counts = count_per_device(plan.node_devices, len(plan.device_names))
    return {**plan.summary(), "num_nodes": len(plan.node_names), "nodes_per_device": counts}
