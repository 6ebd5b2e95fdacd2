"""The command `hplacer`: a thin layer that parses, calls the package and prints.

    arguments.py  what all grammars share        show.py    show
    parser.py     errors that suggest            steps.py   simulate, plan
    completion.py completion                     demo.py    demo
    machine.py    machine                        graph_arguments.py  those of a graph, export
    doctor.py     doctor                         bench.py   bench
    report.py     report                         diff.py    diff
    explain.py    explain                        apply.py   apply
    why.py        why                            cache.py   cache
    pretrain.py   pretrain                       cluster.py  cluster
    calibrate.py  calibrate                      bench_cluster.py  bench predict, bench cluster
    trying.py     try, measure                   advise.py  advise
    running.py    run

    printing.py, terminal_tables.py: step times and JSON, tables that fit the terminal
    stored_plans.py, load_tables.py: plans as arguments, tables of what they ask of devices
    emulating.py: emulated devices for the processes of a command
    waiting.py, search_progress.py, interruption.py: a line on stderr while one waits or while a
        long search goes on, its end by a signal

Exit codes: 0 done, 1 failed (the reason is one line on stderr), 2 wrong usage, 130 interrupted,
141 the reader of stdout went away. People get tables; with `--json` stdout holds JSON and nothing
else. Its times end in `_ns` or `_s`, and that of a step is `step_time_ns`; what was written is in
`output`. Nothing here imports TensorFlow: `doctor`, `machine detect` and whoever loads a graph do,
in processes of their own, and a plan store at a TensorFlow address.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO, cast

from hplacer_optimizer.cli import (
    advise,
    apply,
    bench,
    cache,
    calibrate,
    cluster,
    completion,
    demo,
    diff,
    doctor,
    explain,
    graph_arguments,
    machine,
    pretrain,
    report,
    running,
    show,
    steps,
    trying,
    why,
)
from hplacer_optimizer.cli.arguments import BROKEN_PIPE, FAILED, INTERRUPTED, OK, USAGE, version
from hplacer_optimizer.cli.parser import Parser
from hplacer_optimizer.errors import HPlacerError, OptionError

# In the order of the help: what plans, what looks at plans, what describes hardware, what compares.
_COMMANDS: tuple[Any, ...] = (
    demo,
    advise,
    trying,
    running,
    steps,
    pretrain,
    why,
    show,
    explain,
    report,
    diff,
    apply,
    graph_arguments,
    cache,
    machine,
    cluster,
    calibrate,
    bench,
    doctor,
    completion,
)
_EPILOG = """\
start here:
  hplacer doctor                  is this installation in order?
  hplacer try train.py            what would a plan do for this script?
  hplacer COMMAND --help          options and an example
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; `argv` without the program name, by default the process's. Exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _make_printable()
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
        print("hplacer: error:", _say(error), file=sys.stderr)
        return USAGE if isinstance(error, OptionError) else FAILED


class _Messages:
    """A stream for those who watch. Where they have gone, the work goes on, and nothing is said."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def _make_printable() -> None:
    """Closed streams lead nowhere; what the encoding of stdout lacks becomes a question mark."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if not isinstance(sys.stderr, _Messages):
        sys.stderr = cast(TextIO, _Messages(sys.stderr))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _say(error: Exception) -> str:
    """On one line."""
    text = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.splitlines())


def _dispatch(arguments: list[str]) -> int:
    parser = _parser()
    if not arguments:
        parser.print_help()
        return OK
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:  # --help: 0, wrong usage: 2
        return stop.code if isinstance(stop.code, int) else USAGE
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _parser() -> Parser:
    parser = Parser(
        prog="hplacer",
        description="Plan which device runs each operation of a TensorFlow graph.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hplacer {version()}")
    parser.set_defaults(whole=parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_commands(commands)
    return parser
