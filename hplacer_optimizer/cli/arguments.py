"""The pieces that every command's grammar is made of, and the exit codes."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

from hplacer_optimizer.errors import BenchError
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.support.quantities import parse_duration

OK, FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    """`example` is a command line, or several lines that are printed as they are."""
    has_lines = "\n" in example
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=example if has_lines else f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter
        if has_lines
        else argparse.HelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def add_host_offload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host-offload",
        action="store_true",
        default=None,
        help="offer the host's CPU for what can run on an accelerator, also where its cost is "
        "estimated",
    )


def add_cluster_option(parser: Any) -> None:
    """To a parser or a group."""
    parser.add_argument(
        "--cluster",
        type=addresses,
        metavar="HOST:PORT,...",
        help="addresses of running TensorFlow servers, one per task (default: this machine)",
    )


def addresses(text: str) -> list[str]:
    """The type of an argument HOST:PORT,...; who uses it checks each."""
    return [address.strip() for address in text.split(",")]


def chosen_tasks(tasks: Sequence[Any], names: Sequence[str] | None) -> tuple[Any, ...]:
    """Those of a name or workload, all without names. Raises BenchError for an unknown one."""
    known = {name for task in tasks for name in (task.name, task.workload)}
    for name in names or ():
        if name not in known:
            there = ", ".join(sorted(known))
            raise BenchError(f"--workload: unknown task '{name}'; there are {there}")
    return tuple(
        task for task in tasks if not names or task.name in names or task.workload in names
    )


def add_store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="the plan store: a directory or an address such as gs://bucket/plans, or several "
        "with ; between them, nearest first (default: $XDG_CACHE_HOME/hplacer or "
        "~/.cache/hplacer)",
    )
    parser.add_argument(
        "--trust-shared", action="store_true", help="read a directory that others can write, too"
    )


def duration(text: str) -> float:
    """The type of an argument such as 90s, 10m or 1h30m; seconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    """The type of an argument that is a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def open_store(options: argparse.Namespace) -> PlanStore:
    return PlanStore(options.cache, trust_shared=options.trust_shared)


def version() -> str:
    try:
        return importlib.metadata.version("hplacer-optimizer")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
