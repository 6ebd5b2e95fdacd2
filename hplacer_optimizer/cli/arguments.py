"""The pieces that every command's grammar is made of, and the exit codes."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable
from typing import Any

from hplacer_optimizer.store import PlanStore

OK, FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"example: {example}"
    )
    parser.set_defaults(run=run)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


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
    from hplacer_optimizer.pretraining.job_list import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def open_store(options: argparse.Namespace) -> PlanStore:
    return PlanStore(options.cache, trust_shared=options.trust_shared)


def version() -> str:
    try:
        return importlib.metadata.version("hplacer-optimizer")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
