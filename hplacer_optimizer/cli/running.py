"""`hplacer run`: a script with the optimizer switched on, also on emulated GPUs."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from hplacer_optimizer.cli.arguments import add_command, add_emulate
from hplacer_optimizer.errors import OptionError

_MODULE = "hplacer_optimizer.run"
_EXAMPLES = """\
example: hplacer run --emulate 8xa100 train.py --epochs 3

more:
  hplacer run train.py                                     (with the optimizer, on this machine)
  hplacer run --options budget_s=20,seed=1 -m package.train
  HPLACER_DISABLE=1 hplacer run --emulate mine.yaml train.py       (without the optimizer)

Options of `hplacer run` go before the script; all that follows the script is its own. The script
takes the place of this process, and its exit code is that of the command.
"""


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "run a training script with the optimizer switched on, also on emulated GPUs"
    running = add_command(commands, "run", _run, text, _EXAMPLES)
    add_emulate(running, "give the script the GPUs of this machine")
    running.add_argument(
        "--options",
        metavar="TEXT",
        help="of the optimizer: key=value,key=value or a JSON object (default: $HPLACER_OPTIONS)",
    )
    running.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE ...",
        help="run a module as `python -m` does; all that follows is for the module",
    )
    running.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT ...",
        help="the script and its arguments",
    )


def _run(options: argparse.Namespace) -> int:
    command = ["-m", *options.module] if options.module else options.script
    if not command or command == ["-m"]:
        raise OptionError("name a script, or a module with -m")
    given = [("--emulate", options.emulate), ("--options", options.options)]
    own = [part for name, value in given if value is not None for part in (name, value)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", _MODULE, *own, *command])
