"""`hplacer machine`: machines that have a name, are in a file, or here."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hplacer_optimizer import machines
from hplacer_optimizer.cli.arguments import (
    OK,
    add_cluster_option,
    add_command,
    add_json,
    add_output,
    duration,
)
from hplacer_optimizer.cli.arguments import machine as machine_name
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.terminal_tables import print_line, print_table, without_empty_columns
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.inspection.loads import short_names
from hplacer_optimizer.machines.describe import describe_cluster, describe_host
from hplacer_optimizer.machines.topology import WORK
from hplacer_optimizer.support.formats import format_bytes
from hplacer_optimizer.support.quantities import BYTE_RATE, DURATION, FLOP_RATE, Dimension

_MAX_MATRIX = 16  # devices of which a matrix fits a screen


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    text = "list, show and detect machines"
    machine = commands.add_parser("machine", help=text, epilog="example: hplacer machine list")
    actions = machine.add_subparsers(metavar="ACTION", required=True)
    text = "list the machines that come with this package"
    listing = add_command(actions, "list", _list, text, "hplacer machine list")

    text = "show the kinds, devices and links of a machine"
    show = add_command(actions, "show", _show, text, "hplacer machine show 8xv100")
    show.add_argument(
        "machine",
        type=machine_name,
        metavar="MACHINE",
        help="a machine of `hplacer machine list`, or a YAML file",
    )

    text = "describe this machine, or the TensorFlow servers of a cluster"
    example = "hplacer machine detect -o here.yaml"
    detect = add_command(actions, "detect", _detect, text, example)
    add_output(detect, "write a machine file (YAML)", required=False)
    add_cluster_option(detect)
    detect.add_argument(
        "--timeout",
        type=duration,
        default="2m",
        metavar="TIME",
        help="longest wait for TensorFlow and the servers (default: 2m)",
    )
    for action in (listing, show, detect):
        add_json(action)


def _list(options: argparse.Namespace) -> int:
    found = [machines.load_machine(name) for name in machines.shipped_machines()]
    if options.json:
        print_json([asdict(machine) for machine in found])
        return OK
    rows = []
    for machine in found:
        counts = Counter(device.kind for device in machine.devices)
        kinds = ", ".join(f"{count} x {kind}" for kind, count in counts.items())
        rows.append((machine.name, kinds, format_bytes(sum(machine.memory_bytes))))
    print_table(("machine", "devices", "memory"), rows)
    print_line(f"others: {machines.family_rule()}")
    return OK


def _show(options: argparse.Namespace) -> int:
    return _report(machines.load_machine(options.machine), options.json)


def _detect(options: argparse.Namespace) -> int:
    if options.cluster is None:
        with waiting("looking at this machine"):
            machine = describe_host(timeout_s=options.timeout)
    else:
        with waiting("asking the servers"):
            machine = describe_cluster(options.cluster, timeout_s=options.timeout)
    if options.output:
        machines.save_machine(machine, options.output)
    return _report(machine, options.json)


def _report(machine: machines.Machine, as_json: bool) -> int:
    if as_json:
        print_json(asdict(machine))
        return OK
    print(f"{machine.name}: {len(machine.devices)} devices, {len(machine.links)} links")
    for assumption in machine.assumptions:
        print_line(f"assumes {assumption}")
    _print_used(
        ("kind", "type", "peak", "memory bandwidth", "op overhead", "slots", "turn", "cold"),
        [
            (
                kind.name,
                kind.type,
                "\n".join(f"{t} {_rounded(FLOP_RATE, r)}" for t, r in kind.flops_per_s.items()),
                _rounded(BYTE_RATE, kind.memory_bytes_per_s),
                DURATION.format(kind.launch_overhead_ns),
                str(kind.slots),
                _span_of_used(DURATION, [kind.turn_ns]),
                _span_of_used(DURATION, [kind.cold_ns]),
            )
            for kind in machine.kinds
        ],
    )
    _print_used(
        ("device", "kind", "memory", "cores", "start"),
        [
            (
                device.name,
                device.kind,
                format_bytes(memory),
                device.cores or "its own",
                _span_of_used(DURATION, [device.start_ns]),
            )
            for device, memory in zip(machine.devices, machine.memory_bytes, strict=True)
        ],
    )
    _print_links(machine)
    return OK


def _print_links(machine: machines.Machine) -> None:
    if len(machine.devices) <= _MAX_MATRIX and machine.links:
        names = machine.device_names
        found = {(link.src, link.dst): link for link in machine.links}
        print("GB/s from row to column:")
        print_table(
            ("", *(str(index) for index in range(len(machine.devices)))),
            [
                (f"{index} {short}", *(_cell(found.get((src, dst))) for dst in names))
                for index, (src, short) in enumerate(zip(names, short_names(names), strict=True))
            ],
        )
    channels: dict[str, list[machines.Link]] = {}
    for link in machine.links:
        channels.setdefault(link.channel, []).append(link)
    _print_used(
        ("channel", "pairs", "latency", "bandwidth", *(key.replace("_", " ") for key in WORK)),
        [
            (
                channel,
                str(len(links)),
                _span(DURATION, [link.latency_ns for link in links]),
                _span(BYTE_RATE, [link.bytes_per_s for link in links]),
                *(
                    _span_of_used(dimension, [getattr(link, field) for link in links])
                    for field, dimension in WORK.values()
                ),
            )
            for channel, links in channels.items()
        ],
    )


def _print_used(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print_table(*without_empty_columns(header, rows))


def _cell(link: machines.Link | None) -> str:
    return f"{link.bytes_per_s / 1e9:.3g}" if link else "-"


def _span(dimension: Dimension, values: Sequence[int]) -> str:
    ends = sorted({min(values), max(values)})
    return " to ".join(_rounded(dimension, end) for end in ends)


def _span_of_used(dimension: Dimension, values: Sequence[int]) -> str:
    """Of the values that are not 0."""
    used = [value for value in values if value]
    return _span(dimension, used) if used else ""


def _rounded(dimension: Dimension, value: int | float) -> str:
    """To four digits."""
    return dimension.format(type(value)(float(f"{value:.4g}")))
