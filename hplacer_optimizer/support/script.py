"""Runs a script in this process as `python` would.

Same `sys.argv`, `sys.path` and `__main__`, same exit code; exceptions pass through, and their
traceback begins in the script.
"""

from __future__ import annotations

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

_USAGE = 2


def run_script(command: Sequence[str]) -> None:
    """Of `script.py ARGS`, or `-m module ARGS`."""
    if command[0] == "-m":
        sys.argv = [*command[1:]]
        run = functools.partial(_run_module, command[1])
    else:
        sys.argv = [*command]
        run = functools.partial(_run_file, command[0])
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


def _run_file(path: str) -> None:
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
        raise SystemExit(_USAGE) from None
