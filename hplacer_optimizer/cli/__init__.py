"""The command `hplacer`: a thin layer that parses, calls the package and prints.

    arguments.py  what all grammars share        plans.py   show
    printing.py   tables and JSON                graphs.py  export, the arguments of a graph
    machines.py   machine                        steps.py   simulate, plan
    doctor.py     doctor                         bench.py   bench
    report.py     report                         diff.py    diff
    explain.py    explain                        apply.py   apply
    why.py        why                            cache.py   cache
    pretrain.py   pretrain                       cluster.py  cluster
    calibrate.py  calibrate                      bench_cluster.py  bench predict, bench cluster
    policy.py     policy                         trying.py  try, measure

    stored_plans.py, load_tables.py: plans as arguments, tables of what they ask of devices
    search_progress.py, interruption.py: a long search's line on stderr, its end by a signal

Exit codes: 0 done, 1 failed (the reason is one line on stderr), 2 wrong usage, 130 interrupted,
141 the reader of stdout went away. People get tables; with `--json` stdout holds JSON and nothing
else. Nothing here imports TensorFlow: `doctor`, `machine detect` and whoever loads a graph do, in
processes of their own, and a plan store at a TensorFlow address.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from hplacer_optimizer.bench import demo
from hplacer_optimizer.cli import (
    apply,
    bench,
    cache,
    calibrate,
    cluster,
    diff,
    doctor,
    explain,
    graphs,
    machines,
    plans,
    policy,
    pretrain,
    report,
    steps,
    trying,
    why,
)
from hplacer_optimizer.cli.arguments import BROKEN_PIPE, FAILED, INTERRUPTED, USAGE, version
from hplacer_optimizer.errors import HPlacerError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; `argv` without the program name, by default the process's. Exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()  # here, where a closed pipe can still be handled
        return code
    except BrokenPipeError:
        # Python flushes stdout again at exit: give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except (HPlacerError, OSError) as error:
        print("hplacer: error:", " ".join(str(error).splitlines()), file=sys.stderr)
        return FAILED


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["demo"]:  # has options of its own
        return demo.main(arguments[1:])
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:  # --help: 0, wrong usage: 2
        return stop.code if isinstance(stop.code, int) else USAGE
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hplacer", description="Plan which device runs each operation of a TensorFlow graph."
    )
    parser.add_argument("--version", action="version", version=f"hplacer {version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    cache.add_commands(commands)
    plans.add_commands(commands)
    for command in (explain, report, diff, apply, why):
        command.add_commands(commands)
    graphs.add_commands(commands)
    steps.add_commands(commands)
    pretrain.add_commands(commands)
    policy.add_commands(commands)
    trying.add_commands(commands)
    machines.add_commands(commands)
    cluster.add_commands(commands)
    calibrate.add_commands(commands)
    bench.add_commands(commands)
    commands.add_parser("demo", help="plan and train a small model; see `hplacer demo --help`")
    doctor.add_commands(commands)
    return parser
