"""Runs an unmodified TensorFlow script with the optimizer switched on.

`python -m hplacer_optimizer.run script.py ARGS` behaves as `python script.py ARGS`: same
`sys.argv`, `sys.path` and `__main__`, same exit code, exceptions pass through. With `--emulate` it
has the GPUs of a machine that is not here. `hplacer run` is the same.
"""

from __future__ import annotations

import argparse
import atexit
import os
import sys
import time
from collections.abc import Sequence

from hplacer_optimizer import emulation
from hplacer_optimizer.emulation.telling import announcement, passed
from hplacer_optimizer.errors import HPlacerError, OptionError
from hplacer_optimizer.machines import load_machine
from hplacer_optimizer.options import Options, describe
from hplacer_optimizer.support.script import run_script

_DESCRIPTION = "Run an unmodified TensorFlow script with the optimizer switched on."
_USAGE = (
    "python -m hplacer_optimizer.run [--emulate MACHINE] [--options TEXT] "
    "(script.py | -m module) [ARG ...]"
)
_EPILOG = """\
examples:
  python -m hplacer_optimizer.run train.py --epochs 3
  python -m hplacer_optimizer.run --options budget_s=20,seed=1 train.py
  python -m hplacer_optimizer.run --options '{{"targets": ["train_op"]}}' -m package.train
  HPLACER_DISABLE=1 python -m hplacer_optimizer.run train.py     (as without the optimizer)
  python -m hplacer_optimizer.run --emulate 8xa100 train.py      (on GPUs that are not there)

options, as key=value,key=value with ; between the items of a list, or as a JSON object:
{options}

Without --options those of the environment variable HPLACER_OPTIONS hold, else the defaults.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line, sets HPLACER_OPTIONS and runs the script in this process."""
    parser = _parser()
    arguments = parser.parse_args(sys.argv[1:] if argv is None else argv)
    text = arguments.options
    if text is None:
        text = os.environ.get("HPLACER_OPTIONS", "on")
    try:
        Options.from_environment(text)
    except OptionError as error:
        parser.error(str(error))
    os.environ["HPLACER_OPTIONS"] = text
    command = ["-m", *arguments.module] if arguments.module else arguments.script
    if not command:
        parser.error("name a script, or a module with -m")
    if arguments.emulate is not None:
        try:
            _emulate(arguments.emulate)
        except (HPlacerError, OSError) as error:
            parser.error(f"--emulate: {error}")
    run_script(command)


def _emulate(name: str) -> None:
    """From now on, also in processes that the script starts."""
    machine = load_machine(name)
    emulation.enable(machine)
    print(announcement(machine), file=sys.stderr, flush=True)
    begin_s, process_id = time.perf_counter(), os.getpid()

    def tell() -> None:
        if os.getpid() == process_id:  # not a fork
            print(passed(time.perf_counter() - begin_s), file=sys.stderr, flush=True)

    atexit.register(tell)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hplacer_optimizer.run",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG.format(options=describe()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    text = "emulate the GPUs of this machine, a shipped one or a YAML file; times are virtual"
    parser.add_argument("--emulate", metavar="MACHINE", help=text)
    parser.add_argument("--options", metavar="TEXT", help="options of the optimizer, see below")
    text = "run a module as `python -m` does; all that follows is for the module"
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help=text)
    text = "the script; all that follows is for the script"
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="script.py", help=text)
    return parser


if __name__ == "__main__":
    main()
