"""Tables of what a plan asks of devices, channels and name scopes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hplacer_optimizer.cli.arguments import whole
from hplacer_optimizer.cli.printing import count_per_device
from hplacer_optimizer.cli.terminal_tables import print_line, print_table, unbroken
from hplacer_optimizer.inspection.loads import (
    ChannelLoad,
    DeviceLoad,
    channel_loads,
    device_loads,
    scope_counts,
    scope_loads,
    short_names,
    short_place,
)
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.support.formats import format_bytes, format_ns

_MAX_SCOPES = 40  # in tables; JSON has all
_MAX_DEVICES = 4  # in a line


def add_depth(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--depth",
        type=whole(1, 100),
        default=1,
        metavar="N",
        help="of the table of name scopes: their first N parts (default: 1)",
    )


def print_step_loads(devices: Sequence[DeviceLoad], channels: Sequence[ChannelLoad]) -> None:
    """Of a simulated step."""
    names = [*map(unbroken, short_names([device.name for device in devices]))]
    short = dict(zip((device.name for device in devices), names, strict=True))
    print_table(
        ("device", "ops", "busy", "peak memory", "of"),
        [
            (
                name,
                str(device.ops),
                f"{device.busy:.1%}",
                format_bytes(device.peak_bytes),
                format_bytes(device.memory_bytes),
            )
            for name, device in zip(names, devices, strict=True)
        ],
    )
    print_table(
        ("channel", "transfers", "bytes", "busy"),
        [
            (
                short_place(channel.name, short),
                str(channel.transfers),
                format_bytes(channel.bytes),
                f"{channel.busy:.1%}",
            )
            for channel in channels
        ],
    )


def devices_line(plan: Plan, step: SimulatedStep | None) -> str:
    """The devices in use, such as "GPU:0 512 ops, 81.0% busy, 2 of 12 GiB; CPU:0 3 ops, ..."."""
    if step is None:
        counts = count_per_device(plan.node_devices, len(plan.device_names))
        return f"nodes: {_where(plan.device_names, counts)}"
    loads = device_loads(step.problem, step.placement, step.trace)
    names = short_names([load.name for load in loads])
    used = sorted(
        ((load, name) for load, name in zip(loads, names, strict=True) if load.ops),
        key=lambda pair: -pair[0].busy,
    )
    shown = [
        f"{unbroken(name)} {load.ops} ops, {load.busy:.0%} busy, "
        f"{format_bytes(load.peak_bytes)} of {format_bytes(load.memory_bytes)}"
        for load, name in used[:_MAX_DEVICES]
    ]
    more = [f"{len(used) - _MAX_DEVICES} more devices"] if len(used) > _MAX_DEVICES else []
    return "; ".join([*shown, *more])


def print_loads(plan: Plan, step: SimulatedStep | None, depth: int) -> None:
    """Of a plan: of its simulated step, or of its nodes alone where nothing can be simulated."""
    if step is None:
        _print_node_counts(plan, depth)
        return

    problem, placement, trace = step.problem, step.placement, step.trace
    print_step_loads(device_loads(problem, placement, trace), channel_loads(problem, trace))
    loads = scope_loads(problem, placement, trace, depth)
    print_table(
        ("scope", "ops", "busy time", "persistent", "devices"),
        [
            (
                load.scope or "(none)",
                str(load.ops),
                format_ns(load.busy_ns),
                format_bytes(load.persistent_bytes),
                _where(plan.device_names, load.ops_per_device),
            )
            for load in loads[:_MAX_SCOPES]
        ],
    )
    _print_rest(len(loads))


def _print_node_counts(plan: Plan, depth: int) -> None:
    counts = count_per_device(plan.node_devices, len(plan.device_names))
    total = max(sum(counts), 1)
    print_table(
        ("device", "nodes", "share", "peak memory"),
        [
            (name, str(count), f"{count / total:.1%}", format_bytes(peak))
            for name, count, peak in zip(
                short_names(plan.device_names), counts, plan.peak_bytes, strict=True
            )
        ],
    )
    scopes = _node_scopes(plan, depth)
    print_table(
        ("scope", "nodes", "devices"),
        [
            (
                scope["scope"] or "(none)",
                str(sum(per_device)),
                _where(plan.device_names, per_device),
            )
            for scope in scopes[:_MAX_SCOPES]
            for per_device in (scope["nodes_per_device"],)
        ],
    )
    _print_rest(len(scopes))
    print_line("busy shares need the problem, which this plan does not hold: name its --graph")


def _node_scopes(plan: Plan, depth: int) -> list[dict[str, Any]]:
    scopes, counts, _ = scope_counts(
        plan.node_names, plan.node_devices, len(plan.device_names), depth
    )
    found = [
        {"scope": scope, "nodes_per_device": per_device}
        for scope, per_device in zip(scopes, counts.tolist(), strict=True)
    ]
    return sorted(found, key=lambda entry: -sum(entry["nodes_per_device"]))


def _print_rest(num_scopes: int) -> None:
    if num_scopes > _MAX_SCOPES:
        print(f"{num_scopes - _MAX_SCOPES} more scopes: see --json")


def _where(device_names: Sequence[str], counts: Sequence[int]) -> str:
    """Such as "GPU:0 512, CPU:0 3", the most first."""
    names = short_names(device_names)
    used = sorted((-count, device) for device, count in enumerate(counts) if count)
    shown = [unbroken(f"{names[device]} {-count}") for count, device in used[:4]]
    return ", ".join(shown) + (f" and {len(used) - 4} more" if len(used) > 4 else "")


def load_document(plan: Plan, step: SimulatedStep | None, depth: int) -> dict[str, Any]:
    """The same for programs; `simulated` is None where nothing can be simulated."""
    document: dict[str, Any] = {"node_scopes": _node_scopes(plan, depth), "simulated": None}
    if step is None:
        return document

    problem, placement, trace = step.problem, step.placement, step.trace
    document["simulated"] = {
        "step_time_ns": trace.makespan_ns,
        "feasible": trace.feasible,
        "infeasible_because": list(trace.infeasible_because),
        "devices": [asdict(load) for load in device_loads(problem, placement, trace)],
        "channels": [asdict(load) for load in channel_loads(problem, trace)],
        "scopes": [asdict(load) for load in scope_loads(problem, placement, trace, depth)],
    }
    return document
