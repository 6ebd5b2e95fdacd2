"""Plan files on a local disk.

A rename is atomic, so a reader takes no lock and sees the old file or the new one. Writers hold an
exclusive `flock` on `.lock`; a crashed writer loses it and leaves at most a temporary file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hplacer_optimizer.errors import StoreError
from hplacer_optimizer.plans.directories.files import (
    TEMPORARY,
    TEMPORARY_MAX_AGE_S,
    FileStatus,
    reported,
)
from hplacer_optimizer.plans.plan_file import BinaryFile

_LOCK_NAME = ".lock"
_LOCK_TIMEOUT_S = 10.0
_LOCK_POLL_S = 0.005

_held: set[int] = set()  # descriptors of locks that this process holds


class LocalFiles:
    """`Files` of a local directory."""

    is_local = True

    def __init__(self, directory: Path, trust_shared: bool) -> None:
        self.address = str(directory)
        self._directory = directory
        self._trust_shared = trust_shared

    def path(self, name: str) -> str:
        return os.path.join(self.address, name)

    def names(self) -> list[str]:
        with reported(self.address, "list the plan store"):
            try:
                return os.listdir(self._directory)
            except FileNotFoundError:
                return []

    def statuses(self) -> Iterator[FileStatus]:
        for name in self.names():
            try:
                status = os.lstat(self.path(name))
            except OSError:  # it has just been removed
                continue
            if stat.S_ISREG(status.st_mode):
                yield FileStatus(name, status.st_size, status.st_mtime)

    def check_trust(self) -> None:
        with reported(self.address, "look at the plan store"):
            self._refuse_writable_by_others(self.address, os.stat(self._directory))

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryFile | None]:
        with reported(self.path(name), "read the plan"):
            try:
                file = self._open(name)
            except FileNotFoundError:
                yield None
                return
            with file:
                yield file

    def _open(self, name: str) -> io.BufferedReader:
        self._refuse_writable_by_others(self.address, os.stat(self._directory))
        # Without blocking, or a FIFO of that name would stop us.
        descriptor = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
                raise OSError(code, "it is not a regular file")
            self._refuse_writable_by_others(self.path(name), status)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def mark_used(self, file: BinaryFile) -> None:
        assert isinstance(file, io.BufferedReader)
        with contextlib.suppress(OSError):  # somebody else's file, or a read-only directory
            os.utime(file.fileno())

    def _refuse_writable_by_others(self, path: str, status: os.stat_result) -> None:
        if self._trust_shared:
            return
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StoreError(
                f"{path}: other users can write here, so its plans are not trusted; "
                f"run `chmod go-w {path}`, or set trust_shared if you trust them"
            )
        if status.st_uid not in (0, os.geteuid()):
            raise StoreError(
                f"{path}: belongs to another user (uid {status.st_uid}), so its plans are not "
                f"trusted; run `chown {os.geteuid()} {path}`, or set trust_shared if you trust them"
            )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with reported(self.address, "create the plan store"):
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
        lock = self.path(_LOCK_NAME)
        with reported(lock, "lock the plan store"):
            descriptor = self._lock(lock)
        _held.add(descriptor)
        try:
            yield
        finally:
            _held.discard(descriptor)
            os.close(descriptor)  # gives the lock back

    def _lock(self, path: str) -> int:
        """A descriptor that holds the lock of the file that is at this path."""
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._share(descriptor)
                _acquire(descriptor, path)
                if _is_still_at(descriptor, path):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # somebody removed the file while we waited: others lock a new one

    def write(self, name: str, data: bytes) -> None:
        path = self.path(name)
        with reported(path, "write the plan"):
            stem = name.strip(".").partition(".")[0]
            descriptor, temporary = tempfile.mkstemp(".tmp", f".{stem}.", self._directory)
            try:
                with open(descriptor, "wb") as file:
                    self._share(descriptor)
                    file.write(data)
                    file.flush()
                    os.fsync(descriptor)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            self._sync_directory()

    def remove(self, name: str) -> bool:
        with reported(self.path(name), "remove the plan"):
            try:
                os.unlink(self.path(name))
            except FileNotFoundError:
                return False
            self._sync_directory()
            return True

    def remove_leftovers(self) -> None:
        for name in filter(TEMPORARY.fullmatch, self.names()):
            with contextlib.suppress(OSError):  # another user's file, or already gone
                age_s = time.time() - os.stat(self.path(name)).st_mtime
                if abs(age_s) > TEMPORARY_MAX_AGE_S:  # of the future: a clock was wrong
                    os.unlink(self.path(name))

    def _share(self, descriptor: int) -> None:
        """In a trusted shared directory, gives our new file the directory's permissions."""
        if self._trust_shared and os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, os.stat(self._directory).st_mode & 0o666)

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _forget_held() -> None:
    """In a forked child, whose copies of the parent's descriptors would keep the locks."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_held)


def _acquire(descriptor: int, path: str) -> None:
    """Locks the file; goes on unlocked where the file system has no locks (renames stay atomic)."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{path}: another process has held this lock for {_LOCK_TIMEOUT_S:g} seconds; "
                    f"see `fuser {path}`"
                ) from None
            time.sleep(_LOCK_POLL_S)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                return
            raise


def _is_still_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
