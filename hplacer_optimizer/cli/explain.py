"""`hplacer explain`: why a plan is as fast as it is and no faster."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from typing import Any

from hplacer_optimizer.cli.arguments import (
    OK,
    add_budget,
    add_command,
    add_json,
    add_planner,
    add_seed,
)
from hplacer_optimizer.cli.load_tables import print_step_loads
from hplacer_optimizer.cli.plan_texts import comparison, print_plan
from hplacer_optimizer.cli.printing import certificate, print_json, print_table, step_time
from hplacer_optimizer.cli.stored_plans import (
    add_plan_arguments,
    add_simulation_options,
    find_plan,
    simulated,
)
from hplacer_optimizer.inspection.critical_path import Stage
from hplacer_optimizer.inspection.explanation import Explanation, explain
from hplacer_optimizer.inspection.what_if import WhatIf
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.problem.bounds import gap
from hplacer_optimizer.support.formats import format_bytes, format_ns

_MAX_STAGES = 20  # in tables; JSON has all
_MAX_LINKS = 20


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "tell why a plan is this fast and no faster, and which hardware would help most"
    example = "hplacer explain 3f9c2b1a --planner heft"
    parser = add_command(commands, "explain", _explain, text, example)
    add_plan_arguments(parser, "plan")
    add_planner(parser, "places the graph again on each changed machine (default: etf)", "etf")
    add_budget(parser, "of the planner, on each of them, as 90s or 10m (default: its own)")
    add_seed(parser)
    add_simulation_options(parser)
    add_json(parser)


def _explain(options: argparse.Namespace) -> int:
    planner = get_planner(options.planner).plan
    plan = find_plan(options, options.plan)
    budget = None if options.budget is None else Budget(seconds=options.budget)
    found = explain(simulated(options, plan), planner, budget=budget, seed=options.seed)
    if options.json:
        of_plan = {"fingerprint": plan.fingerprint, **comparison(plan)}
        print_json(_document(found) | of_plan | {"planner": options.planner})
        return OK
    print_plan(plan)
    bound = found.lower_bound_ns, found.lower_bound_term
    if line := certificate(found.step_time_ns, found.feasible, *bound, said_ns=plan.step_ns):
        print(line)
    for reason in found.infeasible_because:
        print(f"does not fit: {reason}")
    _print_path(found)
    print_step_loads(found.devices, found.channels)
    _print_links(found)
    _print_transfers(found)
    _print_changes(found, options.planner)
    return OK


def _document(found: Explanation) -> dict[str, Any]:
    share = gap(found.step_time_ns, found.lower_bound_ns) if found.feasible else None
    return asdict(found) | {"gap": share}


def _print_path(found: Explanation) -> None:
    totals = Counter[str]()
    for share in found.path_shares:
        totals[share.kind] += share.ns
    parts = [f"{kind} {_share(ns, found.step_time_ns)}" for kind, ns in totals.most_common()]
    print(f"critical path: {', '.join(parts)}")
    print_table(
        ("", "where", "stages", "time", "of the step"),
        [
            (
                share.kind,
                share.where,
                str(share.stages),
                format_ns(share.ns),
                _share(share.ns, found.step_time_ns),
            )
            for share in found.path_shares
        ],
    )
    longest = sorted(found.path, key=lambda stage: -stage.duration_ns)[:_MAX_STAGES]
    rest = len(found.path) - len(longest)
    if rest:
        print(f"its {len(longest)} longest stages in the order of time; {rest} more: see --json")
    print_table(
        ("from", "", "what", "where", "time", "of the step"),
        [
            (
                format_ns(stage.begin_ns),
                stage.kind,
                _what(stage),
                stage.where,
                format_ns(stage.duration_ns),
                _share(stage.duration_ns, found.step_time_ns),
            )
            for stage in sorted(longest, key=lambda stage: stage.begin_ns)
        ],
    )


def _what(stage: Stage) -> str:
    return stage.what if stage.behind is None else f"{stage.what}, behind {stage.behind}"


def _share(part_ns: int, step_ns: int) -> str:
    return f"{part_ns / max(step_ns, 1):.1%}"


def _print_links(found: Explanation) -> None:
    print_table(
        ("link from", "to", "transfers", "bytes", "busy"),
        [
            (link.src, link.dst, str(link.transfers), format_bytes(link.bytes), f"{link.busy:.1%}")
            for link in found.links[:_MAX_LINKS]
        ],
    )
    if len(found.links) > _MAX_LINKS:
        print(f"{len(found.links) - _MAX_LINKS} more links: see --json")


def _print_transfers(found: Explanation) -> None:
    if found.transfers:
        print("the most expensive transfers")
    print_table(
        ("tensor", "from", "to", "bytes", "time", "waited", "critical"),
        [
            (
                transfer.tensor,
                transfer.src,
                transfer.dst,
                format_bytes(transfer.bytes),
                format_ns(transfer.duration_ns),
                format_ns(transfer.wait_ns),
                "yes" if transfer.critical else "",
            )
            for transfer in found.transfers
        ],
    )


def _print_changes(found: Explanation, planner: str) -> None:
    print(f"single changes of the machine, each simulated; placed again by {planner}")
    print_table(
        ("change", "this placement", "placed again", "times as fast"),
        [
            (
                tried.change,
                step_time(tried.same_placement_ns, tried.same_placement_ns is not None),
                step_time(tried.placed_again_ns, tried.placed_again_ns is not None),
                _speedup(found.unchanged, tried),
            )
            for tried in (found.unchanged, *found.changes)
        ],
    )


def _speedup(unchanged: WhatIf, tried: WhatIf) -> str:
    before, after = unchanged.best_ns, tried.best_ns
    if after is None:
        return ""
    return "fits" if before is None else f"{before / max(after, 1):.3f}"
