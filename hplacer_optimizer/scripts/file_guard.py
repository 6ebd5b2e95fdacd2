"""Keeps an observed script from changing anything but its private copy of the working directory.

A script that is about to overwrite, rename or remove a file elsewhere is ended before it does, with
the path for a message. What the script has made itself is its own, and caches are free.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

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

    def on_tensorflow(self, tensorflow: ModuleType) -> None:
        """TensorFlow writes without Python's knowledge: wraps what does, from now on."""
        from tensorflow.python.checkpoint import checkpoint
        from tensorflow.python.lib.io import file_io, tf_record
        from tensorflow.python.training import saver

        saves: dict[Any, Callable[..., list[Any]]] = {
            checkpoint.TrackableSaver: _numbered_prefix,
            saver.Saver: _numbered_path,
        }
        for owner, path_of in saves.items():
            self._wrap(owner, "save", path_of, suffix=".index")
        self._wrap(file_io.FileIO, "_prewrite_check", _opened)
        self._wrap(tf_record.TFRecordWriter, "__init__", lambda _, path, *__: [path])
        self._wrap(tensorflow.io, "write_file", lambda filename, *_: [filename])
        gfile = tensorflow.io.gfile
        for inside, outside, paths_of in (
            ("delete_file_v2", "remove", lambda path: [path]),
            ("delete_recursively_v2", "rmtree", lambda path: [path]),
            ("rename_v2", "rename", lambda src, dst, *_: [src, dst]),
            ("copy_v2", "copy", lambda src, dst, *_: [dst]),
        ):
            self._wrap(file_io, inside, paths_of)  # for TensorFlow's own modules
            self._wrap(gfile, outside, paths_of)

    def on_h5py(self, h5py: ModuleType) -> None:
        """Keras saves weights with it."""
        self._wrap(h5py.File, "__init__", lambda _, name, mode="r", *__: [name] * (mode != "r"))

    def _wrap(
        self, owner: Any, name: str, paths_of: Callable[..., list[Any]], suffix: str = ""
    ) -> None:
        """`paths_of` takes the same arguments, and tells what is going to be changed."""
        known = inspect.signature(paths_of).parameters

        def checked(original: Any, instance: Any, positional: Any, keywords: Any) -> Any:
            own = () if instance is None else (instance,)
            named = {key: value for key, value in keywords.items() if key in known}
            with contextlib.suppress(TypeError):  # wrong arguments are for `original` to tell
                for path in paths_of(*own, *positional, **named):
                    path = path.numpy() if hasattr(path, "numpy") else path  # of a string tensor
                    self._check(os.fsdecode(path) + suffix)
            return original(*positional, **keywords)

        wrapt.wrap_function_wrapper(owner, name, checked)

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


def _numbered_prefix(
    _: Any, file_prefix: Any, checkpoint_number: Any = None, *__: Any
) -> list[Any]:
    """Where a `TrackableSaver` saves."""
    prefix = os.fsdecode(file_prefix.numpy() if hasattr(file_prefix, "numpy") else file_prefix)
    return [prefix if checkpoint_number is None else f"{prefix}-{int(checkpoint_number)}"]


def _numbered_path(
    saver: Any, sess: Any, save_path: Any, global_step: Any = None, *_: Any
) -> list[Any]:
    """Where a `Saver` of TensorFlow 1 saves."""
    from tensorflow.python.training import training_util
    from tensorflow.python.util import compat

    path = os.fsdecode(save_path)
    if global_step is None:
        return [path]
    if not isinstance(global_step, compat.integral_types):
        global_step = training_util.global_step(sess, global_step)
    return [f"{path}-{global_step:08d}" if saver._pad_step_number else f"{path}-{global_step}"]


def _opened(file: Any) -> list[Any]:
    """The path of a `tf.io.gfile.GFile` that is written to for the first time."""
    return [] if file._writable_file else [file.name]


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

    def fileno(self) -> int:
        """Of the real one, which is /dev/null, for those who do not read through Python."""
        return 0

    def readinto(self, buffer: Any) -> int:
        (self._where / exchange.INPUT).touch()
        return 0


def watch_input(where: Path) -> None:
    """In place of `sys.stdin`."""
    raw: Any = WatchedInput(where)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(raw))
