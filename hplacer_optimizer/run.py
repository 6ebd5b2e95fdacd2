"""Runs an unmodified TensorFlow script with the optimizer switched on.

`python -m hplacer_optimizer.run script.py ARGS` behaves as `python script.py ARGS`: same
`sys.argv`, `sys.path` and `__main__`, same exit code, exceptions pass through.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.options import Options, describe
from hplacer_optimizer.support.script import run_script

_DESCRIPTION = "Run an unmodified TensorFlow script with the optimizer switched on."
_USAGE = "python -m hplacer_optimizer.run [--options TEXT] (script.py | -m module) [ARG ...]"
_EPILOG = """\
examples:
  python -m hplacer_optimizer.run train.py --epochs 3
  python -m hplacer_optimizer.run --options budget_s=20,seed=1 train.py
  python -m hplacer_optimizer.run --options '{{"targets": ["train_op"]}}' -m package.train
  HPLACER_DISABLE=1 python -m hplacer_optimizer.run train.py     (as without the optimizer)

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
    if arguments.module:
        run_script(["-m", *arguments.module])
    elif arguments.script:
        run_script(arguments.script)
    else:
        parser.error("name a script, or a module with -m")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hplacer_optimizer.run",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG.format(options=describe()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--options", metavar="TEXT", help="options of the optimizer, see below")
    text = "run a module as `python -m` does; all that follows is for the module"
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help=text)
    text = "the script; all that follows is for the script"
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="script.py", help=text)
    return parser


if __name__ == "__main__":
    main()
