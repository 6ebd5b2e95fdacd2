"""`hplacer explain`: why a plan is as fast as it is and no faster."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hplacer_optimizer.cli.arguments import (
    MORE,
    OK,
    add_all,
    add_budget,
    add_command,
    add_json,
    add_seed,
)
from hplacer_optimizer.cli.load_tables import print_step_loads
from hplacer_optimizer.cli.plan_texts import comparison, print_plan
from hplacer_optimizer.cli.printing import certificate, print_json, step_time
from hplacer_optimizer.cli.search_progress import SearchProgress
from hplacer_optimizer.cli.stored_plans import (
    add_plan_arguments,
    add_simulation_options,
    find_plan,
    simulated,
)
from hplacer_optimizer.cli.terminal_tables import print_line, print_table, unbroken
from hplacer_optimizer.inspection.critical_path import Stage
from hplacer_optimizer.inspection.explanation import Explanation, explain
from hplacer_optimizer.inspection.loads import short_names, short_place
from hplacer_optimizer.inspection.what_if import WhatIf
from hplacer_optimizer.problem.bounds import gap
from hplacer_optimizer.support.formats import format_bytes, format_ns, format_ratio, times_as_fast

_MAX_STAGES = 20  # in tables; JSON has all
_MAX_LINKS = 20
_MAX_SHARES, _MAX_CHANGES = 3, 3  # in the headline
_WORTH = 1.01  # times as fast


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "tell why a plan is this fast and no faster, and which hardware would help most"
    example = "hplacer explain latest --budget 30s"
    parser = add_command(commands, "explain", _explain, text, example)
    add_plan_arguments(parser, "plan")
    text = "time of all searches together, one for each change of the machine, as 30s or 5m"
    add_budget(parser, f"{text} (default: 8s for up to 2,000 ops)")
    add_seed(parser)
    add_simulation_options(parser)
    add_all(parser)
    add_json(parser)


def _explain(options: argparse.Namespace) -> int:
    plan = find_plan(options, options.plan)
    step = simulated(options, plan)
    with SearchProgress() as shown:
        found = explain(
            step,
            seconds=options.budget,
            seed=options.seed,
            on_start=lambda change: shown.show(f"{plan.label}: {change}"),
        )
    if options.json:
        print_json(_document(found) | {"fingerprint": plan.fingerprint, **comparison(plan)})
        return OK
    print_plan(plan)
    names = _names(found)
    for line in _headline(found, names):
        print_line(line)
    bound = found.lower_bound_ns, found.lower_bound_term
    if line := certificate(found.step_time_ns, found.feasible, *bound, said_ns=plan.step_ns):
        print_line(line)
    for reason in found.infeasible_because:
        print_line(f"does not fit: {reason}")
    if options.all:
        _print_path(found, names)
        print_step_loads(found.devices, found.channels)
        _print_links(found, names)
        _print_transfers(found, names)
        _print_changes(found)
    else:
        print(MORE)
    return OK


def _names(found: Explanation) -> dict[str, str]:
    """The short names of devices."""
    names = [device.name for device in found.devices]
    return dict(zip(names, map(unbroken, short_names(names)), strict=True))


def _headline(found: Explanation, names: dict[str, str]) -> Iterator[str]:
    """What bounds the step, what would help most, and what would not."""
    shares = [
        f"{share.kind} on {short_place(share.where, names)} {_share(share.ns, found.step_time_ns)}"
        for share in found.path_shares[:_MAX_SHARES]
    ]
    yield f"the step is as long as: {', '.join(shares)}"
    before = found.unchanged
    if found.feasible and before.best_ns and found.step_time_ns > _WORTH * before.best_ns:
        gain = found.step_time_ns / before.best_ns
        yield f"this machine has a better plan: a search found one that is {times_as_fast(gain)}"
    helps = [tried for tried in found.changes if _helps(before, tried)]
    shown = [f"{tried.change} ({_speedup(before, tried)})" for tried in helps[:_MAX_CHANGES]]
    if len(helps) > _MAX_CHANGES:
        shown.append(f"and {len(helps) - _MAX_CHANGES} more")
    yield f"helps most (times as fast): {', '.join(shown) or 'no single change of the machine'}"
    rest = [tried.change for tried in found.changes if not _helps(before, tried)]
    if rest:
        yield f"helps less than {_WORTH - 1:.0%}: {', '.join(rest)}"


def _helps(unchanged: WhatIf, tried: WhatIf) -> bool:
    before, after = unchanged.best_ns, tried.best_ns
    return after is not None and (before is None or before > _WORTH * after)


def _document(found: Explanation) -> dict[str, Any]:
    share = gap(found.step_time_ns, found.lower_bound_ns) if found.feasible else None
    return asdict(found) | {"gap": share}


def _print_path(found: Explanation, names: dict[str, str]) -> None:
    totals = Counter[str]()
    for share in found.path_shares:
        totals[share.kind] += share.ns
    parts = [f"{kind} {_share(ns, found.step_time_ns)}" for kind, ns in totals.most_common()]
    print_line(f"critical path: {', '.join(parts)}")
    print_table(
        ("", "where", "stages", "time", "of the step"),
        [
            (
                share.kind,
                short_place(share.where, names),
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
        print_line(
            f"its {len(longest)} longest stages in the order of time; {rest} more: see --json"
        )
    print_table(
        ("from", "", "what", "where", "time", "of the step"),
        [
            (
                format_ns(stage.begin_ns),
                stage.kind,
                _what(stage),
                short_place(stage.where, names),
                format_ns(stage.duration_ns),
                _share(stage.duration_ns, found.step_time_ns),
            )
            for stage in sorted(longest, key=lambda stage: stage.begin_ns)
        ],
        spare=("of the step", "from"),
    )


def _what(stage: Stage) -> str:
    return stage.what if stage.behind is None else f"{stage.what}, behind {stage.behind}"


def _share(part_ns: int, step_ns: int) -> str:
    return f"{part_ns / max(step_ns, 1):.1%}"


def _print_links(found: Explanation, names: dict[str, str]) -> None:
    print_table(
        ("link from", "to", "transfers", "bytes", "busy"),
        [
            (
                names[link.src],
                names[link.dst],
                str(link.transfers),
                format_bytes(link.bytes),
                f"{link.busy:.1%}",
            )
            for link in found.links[:_MAX_LINKS]
        ],
        spare=("transfers",),
    )
    if len(found.links) > _MAX_LINKS:
        print(f"{len(found.links) - _MAX_LINKS} more links: see --json")


def _print_transfers(found: Explanation, names: dict[str, str]) -> None:
    if found.transfers:
        print("the most expensive transfers")
    print_table(
        ("tensor", "where", "bytes", "time", "waited", "critical"),
        [
            (
                transfer.tensor,
                f"{names[transfer.src]} -> {names[transfer.dst]}",
                format_bytes(transfer.bytes),
                format_ns(transfer.duration_ns),
                format_ns(transfer.wait_ns),
                "yes" if transfer.critical else "",
            )
            for transfer in found.transfers
        ],
        spare=("waited", "bytes"),
    )


def _print_changes(found: Explanation) -> None:
    print_line(
        "single changes of the machine, each simulated; placed again by a search from this plan"
    )
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
    return "fits" if before is None else format_ratio(before / max(after, 1))
