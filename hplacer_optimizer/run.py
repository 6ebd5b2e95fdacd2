"""Runs an unmodified TensorFlow script with the optimizer switched on.

`python -m hplacer_optimizer.run script.py ARGS` behaves as `python script.py ARGS`: same
`sys.argv`, `sys.path` and `__main__`, same exit code, exceptions pass through.
"""

from __future__ import annotations

import argparse
import builtins
import functools
import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import cast

from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.options import Options, describe

USAGE = 2

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
        sys.argv = arguments.module
        run = functools.partial(_run_module, arguments.module[0])
    elif arguments.script:
        sys.argv = arguments.script
        run = functools.partial(_run_script, arguments.script[0])
    else:
        parser.error("name a script, or a module with -m")
    try:
        run()
    except BaseException as error:
        _show_from_the_script(error)
        raise


def _show_from_the_script(error: BaseException) -> None:
    """Lets the interpreter print the traceback without the frames that lead to the script."""
    traceback = shown = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == __file__:
            shown = traceback.tb_next
        traceback = traceback.tb_next
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, _: TracebackType | None) -> None:
        hook(kind, value.with_traceback(shown), shown)

    sys.excepthook = show


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


def _new_main(**members: object) -> ModuleType:
    """A fresh `__main__`, which stays until the interpreter ends."""
    module = ModuleType("__main__")
    module.__dict__.update(__annotations__={}, __builtins__=builtins, **members)
    sys.modules["__main__"] = module
    return module


def _run_module(name: str, alter_argv: bool = True) -> None:
    """As `python -m name`, with the very function that the interpreter itself calls for it."""
    _new_main()
    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]


def _run_script(path: str) -> None:
    """As `python path`, where path may also be a directory, a zip archive or a .pyc file."""
    if pkgutil.get_importer(path) is not None:  # has a __main__.py inside
        sys.path[0] = os.path.abspath(path)
        _run_module("__main__", alter_argv=False)
        return
    if not getattr(sys.flags, "safe_path", False):  # Python 3.11
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    path = os.path.abspath(path)
    source = _content(path)
    loader: SourceFileLoader | SourcelessFileLoader
    if path.endswith(".pyc"):
        loader = SourcelessFileLoader("__main__", path)
        code = cast(CodeType, loader.get_code("__main__"))
    else:
        loader = SourceFileLoader("__main__", path)
        code = compile(source, path, "exec", dont_inherit=True)
    exec(code, _new_main(__file__=path, __cached__=None, __loader__=loader).__dict__)


def _content(path: str) -> bytes:
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as error:
        print(
            f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}",
            file=sys.stderr,
        )
        raise SystemExit(USAGE) from None


if __name__ == "__main__":
    main()
