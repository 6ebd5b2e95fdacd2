"""Named files of one directory, wherever it is."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

from hplacer_optimizer.errors import StoreError
from hplacer_optimizer.plans.plan_file import BinaryFile

TEMPORARY = re.compile(r"\.[0-9a-f]+\..*\.tmp")
TEMPORARY_MAX_AGE_S = 3600.0
_FIXES = {
    errno.ENOSPC: "free some space, or choose another directory",
    errno.EDQUOT: "free some of your quota, or choose another directory",
    errno.EROFS: "the file system is read-only: choose another directory",
    errno.EACCES: "make it accessible to this user (chmod u+rwx), or choose another directory",
    errno.EPERM: "make it accessible to this user, or choose another directory",
    errno.ENOTDIR: "a part of this path is a file: choose another directory",
    errno.EEXIST: "it exists and is not a directory: choose another directory",
    errno.EISDIR: "a directory stands where a plan file belongs: remove it",
}


class FileStatus(NamedTuple):
    """What a listing tells of one file."""

    name: str
    size_bytes: int
    used_s: float  # when it was last read or written, as far as the files remember: Unix time


class Files(Protocol):
    """Every failure is a StoreError."""

    address: str
    is_local: bool

    def path(self, name: str) -> str: ...
    def names(self) -> list[str]: ...
    def statuses(self) -> Iterator[FileStatus]:
        """Of the regular files; those that vanish meanwhile are left out."""

    def check_trust(self) -> None:
        """Raises StoreError if others can write the directory and nobody said to trust them."""

    def open(self, name: str) -> AbstractContextManager[BinaryFile | None]:
        """For reading; None if there is no such file."""

    def mark_used(self, file: BinaryFile) -> None:
        """Makes an opened file the most recently used one, where files remember that."""

    def writing(self) -> AbstractContextManager[None]:
        """Holds the lock where there is one, and creates the directory."""

    def write(self, name: str, data: bytes) -> None:
        """All or nothing; within `writing()`."""

    def remove(self, name: str) -> bool:
        """False if there is no such file; within `writing()`."""

    def remove_leftovers(self) -> None:
        """Removes what crashed writers left some time ago; within `writing()`."""


@contextmanager
def reported(path: object, action: str) -> Iterator[None]:
    """Turns an OSError into a StoreError that names the path and the fix."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        fix = _FIXES.get(error.errno or 0, "check the directory, or choose another one")
        raise StoreError(f"{path}: cannot {action}: {error.strerror or error}; {fix}") from error
