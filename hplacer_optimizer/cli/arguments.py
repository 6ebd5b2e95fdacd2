"""The pieces that every command's grammar is made of, and the exit codes."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer.cli.parser import advanced
from hplacer_optimizer.cli.terminal_tables import print_table
from hplacer_optimizer.errors import MachineError, OptionError
from hplacer_optimizer.machines import check_machine_name
from hplacer_optimizer.planners import PLANNERS, check_planner_name
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.support.keywords import unknown_name
from hplacer_optimizer.support.new_file import check_new_directory, check_new_file
from hplacer_optimizer.support.quantities import INT64_MAX, parse_duration

OK, FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141
MORE = "--all prints more"
PLAN_HELP = "the start of a fingerprint, or latest"
_LIST_PLANNERS = "help"
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,6})?", re.ASCII)


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


def add_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="print everything that is known")


def add_host_offload(parser: argparse.ArgumentParser) -> None:
    advanced(parser).add_argument(
        "--host-offload",
        action="store_true",
        default=None,
        help="let planners move ops from an accelerator to its host's CPU, even if costs are "
        "estimated",
    )


def add_in_place(parser: argparse.ArgumentParser, copies: str) -> None:
    """`--in-place`; `copies`: what a script runs in without it."""
    parser.add_argument(
        "--in-place",
        action="store_true",
        default=None,
        help="run in the working directory itself, where the script may overwrite files (default: "
        f"in {copies})",
    )


def add_output(parser: argparse.ArgumentParser, text: str, *, required: bool = True) -> None:
    """`-o`, a file; that it can be written is checked before anything begins."""
    parser.add_argument(
        "-o", "--output", type=output_file, required=required, metavar="FILE", help=text
    )


def add_output_directory(parser: argparse.ArgumentParser, default: str, text: str) -> None:
    """`-o`, a directory."""
    parser.add_argument(
        "-o",
        "--output",
        type=output_directory,
        default=default,
        metavar="DIR",
        help=f"{text} (default: %(default)s)",
    )


def add_planner(parser: argparse.ArgumentParser, text: str, default: str | None = None) -> None:
    """`--planner`; `help` in place of a name lists them all."""
    parser.add_argument(
        "--planner",
        action=_PlannerAction,
        type=planner,
        default=default,
        metavar="NAME",
        help=f"{text}; `--planner help` lists them all",
    )


def add_seed(parser: argparse.ArgumentParser, default: int | None = 0) -> None:
    advanced(parser).add_argument(
        "--seed",
        type=whole(0),
        default=default,
        metavar="N",
        help="seed of the search (default: 0)",
    )


def add_budget(parser: argparse.ArgumentParser, text: str, default: str | None = None) -> None:
    """`--budget`: how long whatever searches may do so."""
    parser.add_argument("--budget", type=duration, default=default, metavar="TIME", help=text)


def add_time(parser: argparse.ArgumentParser, text: str, default: str) -> None:
    """`--time`: how long steps are measured."""
    parser.add_argument("--time", type=duration, default=default, metavar="TIME", help=text)


def add_cluster_option(parser: Any) -> None:
    """To a parser or a group."""
    parser.add_argument(
        "--cluster",
        type=addresses,
        metavar="HOST:PORT,...",
        help="addresses of running TensorFlow servers, one per task (default: this machine)",
    )


def add_emulate(parser: argparse.ArgumentParser, text: str) -> None:
    """`--emulate`: a machine whose GPUs are emulated."""
    parser.add_argument(
        "--emulate",
        type=machine,
        metavar="MACHINE",
        help=f"{text}: a name, see `hplacer machine list`, or a YAML file. Its GPUs are emulated: "
        "their kernels compute here, and take virtual time",
    )


class _PlannerAction(argparse.Action):
    """Keeps the name, or lists all planners and ends."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: Any = None
    ) -> None:
        if values == _LIST_PLANNERS:
            print_planners()
            parser.exit()
        setattr(namespace, self.dest, values)


class AppendPlanner(_PlannerAction):
    """The same for an option that may be repeated."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: Any = None
    ) -> None:
        before = getattr(namespace, self.dest) or []
        super().__call__(parser, namespace, values, option)
        setattr(namespace, self.dest, [*before, values])


def print_planners() -> None:
    """All of them, one line each; those for studies at the end."""
    names = sorted(PLANNERS, key=lambda name: (PLANNERS[name].for_studies, name))
    print_table(("planner", "what it does"), [(name, PLANNERS[name].summary) for name in names])


def chosen_tasks(tasks: Sequence[Any], names: Sequence[str] | None) -> tuple[Any, ...]:
    """Those of a name or workload, all without names. Raises OptionError for an unknown one."""
    known = sorted({name for task in tasks for name in (task.name, task.workload)})
    for name in names or ():
        if name not in known:
            raise OptionError(f"--workload: {unknown_name('task', name, known)}")
    return tuple(
        task for task in tasks if not names or task.name in names or task.workload in names
    )


def add_store_options(parser: argparse.ArgumentParser) -> None:
    group = advanced(parser)
    group.add_argument(
        "--cache",
        metavar="DIR",
        help="the plan store: a directory or an address such as gs://bucket/plans, or several "
        "with ; between them, nearest first (default: $XDG_CACHE_HOME/hplacer or "
        "~/.cache/hplacer)",
    )
    group.add_argument(
        "--trust-shared", action="store_true", help="read a directory that others can write, too"
    )


# ---- types of arguments ----


def duration(text: str) -> float:
    """As 90s, 10m, 1h30m, or a number of seconds; in seconds."""
    if text.startswith("-"):
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text!r}")
    try:
        return parse_duration(f"{text}s" if _SECONDS.fullmatch(text) else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of a whole number of 63 bits that is at least `least`, and at most `most`."""
    valid = f"of at least {least}" if most is None else f"from {least} to {most}"

    def convert(text: str) -> int:
        number = int(text) if text.isdecimal() and text.isascii() and len(text) < 100 else -1
        if number > INT64_MAX and most is None:
            raise argparse.ArgumentTypeError(f"must be at most {INT64_MAX}, not {text}")
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"must be a whole number {valid}, not {text!r}")
        return number

    return convert


count = whole(1)
"""The type of a whole number that is at least 1."""


def addresses(text: str) -> list[str]:
    """The type of HOST:PORT,...; who uses it checks each."""
    return [address.strip() for address in text.split(",")]


def planner(text: str) -> str:
    """The type of a planner's name; files and code that it names are not looked for yet."""
    if text == _LIST_PLANNERS:
        return text
    try:
        check_planner_name(text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("planner: ")) from None
    return text


def machine(text: str) -> str:
    """The type of a machine's name, or of a YAML file, which is not read yet."""
    try:
        check_machine_name(text)
    except MachineError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def output_file(text: str) -> str:
    """The type of a file to be written. Raises OSError if that cannot be done."""
    check_new_file(text)
    return text


def output_directory(text: str) -> Path:
    """The type of a directory to write files in. Raises OSError if that cannot be done."""
    check_new_directory(text)
    return Path(text)


# ---- what arguments stand for ----


def check_two_files(options: argparse.Namespace) -> None:
    """Raises OptionError if --output and --trace name the same file; a device is none."""
    output, trace = options.output, options.trace
    if not output or not trace or os.path.realpath(output) != os.path.realpath(trace):
        return
    if os.path.isfile(trace) or not os.path.exists(trace):
        raise OptionError(f"--output and --trace name the same file, {trace}")


def open_store(options: argparse.Namespace) -> PlanStore:
    return PlanStore(options.cache, trust_shared=options.trust_shared)


def version() -> str:
    try:
        return importlib.metadata.version("hplacer-optimizer")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
