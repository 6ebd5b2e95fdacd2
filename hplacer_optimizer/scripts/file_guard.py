"""Keeps an observed script from changing anything but its private copy of the working directory.

A script that is about to overwrite, rename or remove a file elsewhere is ended before it does, with
the path for a message. What the script has made itself is its own, and caches are free.
"""

from __future__ import annotations

import functools
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.support.own_directory import default_directory

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
_CHANGES = {  # audit events, with the number of paths that are changed
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.truncate": 1,
    "shutil.rmtree": 1,
}


class FileGuard:
    """Of this process and its forks."""

    def __init__(self, where: Path, free: Sequence[str | Path]) -> None:
        """`where`: for the exchange; `free`: directories that may be changed."""
        self._where, self._begin_s = where, time.time()
        free = [*free, where, "/dev", "/proc", "/sys", "~/.cache", "~/.keras"]
        free += [os.environ.get("XDG_CACHE_HOME") or "~/.cache", default_directory()]
        self._free = tuple(os.path.realpath(os.path.expanduser(path)) + os.sep for path in free)

    def install(self) -> None:
        """From now on; it cannot be taken back."""
        sys.addaudithook(self._audit)

    def on_tensorflow(self, _: ModuleType) -> None:
        """TensorFlow writes without Python's knowledge: wraps what saves, from now on."""
        from tensorflow.python.checkpoint import checkpoint
        from tensorflow.python.lib.io import file_io
        from tensorflow.python.training import saver

        self._wrap(checkpoint.TrackableSaver, "save", 1, "file_prefix", suffix=".index")
        self._wrap(saver.Saver, "save", 2, "save_path", suffix=".index")
        for name, parameter in (
            ("delete_file_v2", "path"),
            ("delete_recursively_v2", "path"),
            ("rename_v2", "src"),
        ):
            self._wrap(file_io, name, 0, parameter)

    def _wrap(self, owner: Any, name: str, position: int, parameter: str, suffix: str = "") -> None:
        """`position` and `parameter` tell where the path stands among the arguments."""
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            path: Any = keywords.get(parameter)
            path = arguments[position] if len(arguments) > position else path
            path = path.numpy() if hasattr(path, "numpy") else path  # of a string tensor
            if isinstance(path, (str, bytes, os.PathLike)):
                self._check(os.fsdecode(path) + suffix)
            return original(*arguments, **keywords)

        setattr(owner, name, checked)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = set(mode or "") & set("wax+") or (mode is None and (flags or 0) & _WRITES)
            if writes and isinstance(path, (str, bytes, os.PathLike)):
                self._check(path)
        elif event in _CHANGES:
            for path in arguments[: _CHANGES[event]]:
                self._check(path)

    def _check(self, path: Any) -> None:
        """Does not return if this must not be changed."""
        try:
            full = os.path.realpath(os.fsdecode(path))
            if (full + os.sep).startswith(self._free):
                return
            if not any(os.lstat(file).st_ctime < self._begin_s for file in _files(full)):
                return
        except (OSError, ValueError, TypeError):  # there is none, or not a path but a descriptor
            return
        exchange.give_up(
            self._where,
            f"would overwrite {full}, outside of its working directory: --in-place lets it",
        )


def _files(path: str) -> Iterator[str]:
    """It, or what a directory holds."""
    if not os.path.isdir(path) or os.path.islink(path):
        yield path
    for root, _, files in os.walk(path):
        yield from (os.path.join(root, file) for file in files)


class WatchedInput(io.RawIOBase):
    """An empty standard input, which remembers that it was asked for."""

    def __init__(self, where: Path) -> None:
        super().__init__()
        self._where = where

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        (self._where / exchange.INPUT).touch()
        return 0


def watch_input(where: Path) -> None:
    """In place of `sys.stdin`."""
    raw: Any = WatchedInput(where)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(raw))
