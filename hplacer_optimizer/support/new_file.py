"""Files that appear complete or not at all, and whether they can be written."""

from __future__ import annotations

import errno
import gzip
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_new_directory", "check_new_file", "new_file"]


@contextmanager
def new_file(
    path: str | os.PathLike[str], *, may_compress: bool = False
) -> Iterator[io.BufferedIOBase]:
    """A binary stream whose bytes take the place of `path` when the block ends without an error.

    With `may_compress` they are compressed if the name ends with `.gz`; equal contents give equal
    bytes. A reader sees the old file or the new one, never a part; that of a pipe or of a device
    what comes. A link stays one. Raises OSError if the file cannot be written.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        with open(path, "wb") as stream, _packed(stream, path, may_compress) as packed:
            yield packed
        return
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            with _packed(file, path, may_compress) as packed:
                yield packed
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _packed(file: io.BufferedIOBase, path: Path, may_compress: bool) -> Iterator[io.BufferedIOBase]:
    if may_compress and path.suffix == ".gz":
        # No name and no time in the header, hence the same bytes every time.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield packed
    else:
        yield file


def check_new_file(path: str | os.PathLike[str]) -> None:
    """Raises OSError if no file can be written there, for those who search for long before that.

    Nothing is written now.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory; name a file", str(path))
    if path.exists() and not path.is_file():
        return
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its directory does not exist", str(path))
    _check_writable(parent, path)


def check_new_directory(path: str | os.PathLike[str]) -> None:
    """Raises OSError if no files can be written in a directory, which need not exist yet."""
    existing = Path(path).absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{existing} is a file", str(path))
    _check_writable(existing, path)


def _check_writable(directory: Path, path: str | os.PathLike[str]) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "you may not write there", str(path))
