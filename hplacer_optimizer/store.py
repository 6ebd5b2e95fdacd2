"""The plan store: a directory with one self-describing file per fingerprint.

    put: lock -> read existing plan -> better? -> temporary file, fsync -> rename -> fsync directory
    get: read -> Plan | None

A reader takes no lock: a rename is atomic, so it sees the old plan or the new one. Writers of one
local directory take turns, so the best of several plans survives whatever the order. On a
TensorFlow filesystem (any address with "://") there is no lock: two writers that put plans for the
same fingerprint at the same instant may keep the worse of the two, and how atomic a rename is
depends on that filesystem; a half-written file still fails its checksum and counts as unreadable.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hplacer_optimizer.errors import HPlacerError, PlanError, StoreError
from hplacer_optimizer.plan import FINGERPRINT_HEX_DIGITS, Plan

SUFFIX = ".hplan"
_TEMPORARY = re.compile(r"\.[0-9a-f]+\..*\.tmp")
_TEMPORARY_MAX_AGE_S = 3600.0
_LOCK_NAME = ".lock"
_LOCK_TIMEOUT_S = 10.0
_LOCK_POLL_S = 0.02
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


def default_directory() -> Path:
    """`$XDG_CACHE_HOME/hplacer`, else `~/.cache/hplacer`; raises StoreError without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative value is to be ignored
        base = os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        raise StoreError("no home directory for the plan store: set HOME or XDG_CACHE_HOME")
    return Path(base) / "hplacer"


@dataclass(frozen=True, kw_only=True)
class StoreEntry:
    """One file of the store: either its plan or the reason why it cannot be read."""

    fingerprint: str
    path: str
    plan: Plan | None
    error: str | None


class PlanStore:
    """Plans by fingerprint, in a local directory or at a TensorFlow filesystem address.

    `trust_shared` allows a local directory that other users can write: whoever can write there
    decides where your ops run, so the default is to refuse it. New files then get the read and
    write permissions of the directory, so that the whole team can use them.
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, *, trust_shared: bool = False
    ) -> None:
        address = os.fspath(default_directory() if directory is None else directory)
        if not address:
            raise StoreError("the directory of the plan store is an empty string: name one")
        self._files: _Files
        if "://" in address:
            self._files = _GfileFiles(address)
        else:
            self._files = _LocalFiles(Path(address).expanduser(), trust_shared)

    @property
    def directory(self) -> str:
        """The local path or the address that this store was opened with, `~` expanded."""
        return self._files.address

    def path(self, fingerprint: str) -> str:
        """Where the plan of this fingerprint is, or would be."""
        return self._files.path(_file_name(fingerprint))

    def get(self, fingerprint: str) -> Plan | None:
        """The stored plan, None if there is none; raises PlanError or StoreError if unreadable."""
        data = self._files.read(_file_name(fingerprint))
        if data is None:
            return None
        path = self.path(fingerprint)
        plan = Plan.from_bytes(data, path)
        if plan.fingerprint != fingerprint:
            raise PlanError(
                f"{path}: holds the plan of fingerprint {plan.fingerprint}; "
                "delete the file, or rename it after its fingerprint"
            )
        return plan

    def put(self, plan: Plan) -> bool:
        """Stores the plan unless one as good is there already; True if it was written.

        An existing file that holds no valid plan is replaced. Raises StoreError if nothing can be
        written (no space, no permission, another writer holds the lock for ten seconds).
        """
        data = plan.to_bytes()
        with self._files.writing():
            try:
                existing = self.get(plan.fingerprint)
            except PlanError:
                existing = None
            if existing is not None and not plan.better_than(existing):
                return False
            self._files.write(_file_name(plan.fingerprint), data)
        return True

    def fingerprints(self) -> builtins.list[str]:
        """The fingerprints that have a file, sorted; [] where the directory does not exist."""
        stems = (name[: -len(SUFFIX)] for name in self._files.names() if name.endswith(SUFFIX))
        return sorted(stem for stem in stems if _is_fingerprint(stem))

    def list(self) -> builtins.list[StoreEntry]:
        """Every plan file, read and checked, in the order of their fingerprints."""
        entries = []
        for fingerprint in self.fingerprints():
            plan, error = None, None
            try:
                plan = self.get(fingerprint)
            except HPlacerError as failure:
                error = str(failure)
            if plan or error:  # neither: somebody removed the file meanwhile
                path = self.path(fingerprint)
                entries.append(
                    StoreEntry(fingerprint=fingerprint, path=path, plan=plan, error=error)
                )
        return entries

    def resolve(self, prefix: str) -> str:
        """The one stored fingerprint that starts with `prefix`; StoreError for none or several."""
        if not re.fullmatch(rf"[0-9a-f]{{1,{FINGERPRINT_HEX_DIGITS}}}", prefix):
            raise StoreError(
                f"{prefix!r} is not the start of a fingerprint: "
                f"1 to {FINGERPRINT_HEX_DIGITS} lower-case hex digits"
            )
        matches = [name for name in self.fingerprints() if name.startswith(prefix)]
        if len(matches) != 1:
            found = f"{len(matches)} plans whose fingerprint starts" if matches else "no plan"
            remedy = "give more digits" if matches else "`hplacer cache list` shows what is there"
            raise StoreError(f"{self.directory}: {found} with {prefix!r}; {remedy}")
        return matches[0]

    def remove(self, fingerprint: str) -> str:
        """Removes the plan of a fingerprint or a unique prefix of one; returns the removed path."""
        name = _file_name(self.resolve(fingerprint))
        with self._files.writing():
            self._files.remove(name)
        return self._files.path(name)


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Reads the plan file that the caller chose by name, whoever can write there."""
    directory, name = os.path.split(os.fspath(path))
    files: _Files
    if "://" in directory:
        files = _GfileFiles(directory)
    else:
        files = _LocalFiles(Path(directory), trust_shared=True)
    data = files.read(name)
    if data is None:
        raise StoreError(f"{path}: there is no such file")
    return Plan.from_bytes(data, path)


def _is_fingerprint(text: str) -> bool:
    return bool(re.fullmatch(rf"[0-9a-f]{{{FINGERPRINT_HEX_DIGITS}}}", text))


def _file_name(fingerprint: str) -> str:
    if not _is_fingerprint(fingerprint):
        raise StoreError(
            f"{fingerprint!r} is not a fingerprint: {FINGERPRINT_HEX_DIGITS} lower-case hex digits"
        )
    return fingerprint + SUFFIX


class _Files(Protocol):
    """Named files of one directory; every failure is a StoreError."""

    address: str

    def path(self, name: str) -> str: ...
    def names(self) -> list[str]: ...
    def read(self, name: str) -> bytes | None: ...
    def write(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...
    def writing(self) -> contextlib.AbstractContextManager[None]: ...


@contextlib.contextmanager
def _reported(path: object, action: str) -> Iterator[None]:
    """Turns an OSError into a StoreError that names the path and the fix."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        fix = _FIXES.get(error.errno or 0, "check the directory, or choose another one")
        raise StoreError(f"{path}: cannot {action}: {error.strerror or error}; {fix}") from error


class _LocalFiles:
    def __init__(self, directory: Path, trust_shared: bool) -> None:
        self.address = str(directory)
        self._directory = directory
        self._trust_shared = trust_shared

    def path(self, name: str) -> str:
        return str(self._directory / name)

    def names(self) -> list[str]:
        with _reported(self.address, "list the plan store"):
            try:
                return os.listdir(self._directory)
            except FileNotFoundError:
                return []

    def read(self, name: str) -> bytes | None:
        with _reported(self.path(name), "read the plan"):
            try:
                self._refuse_writable_by_others(self.address, os.stat(self._directory))
                with open(self.path(name), "rb") as file:
                    self._refuse_writable_by_others(file.name, os.fstat(file.fileno()))
                    return file.read()
            except FileNotFoundError:
                return None

    def _refuse_writable_by_others(self, path: str, status: os.stat_result) -> None:
        if not self._trust_shared and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StoreError(
                f"{path}: other users can write here, so its plans are not trusted; "
                f"run `chmod go-w {path}`, or set trust_shared if you trust them"
            )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the directory's lock; creates the directory; removes what crashed writers left."""
        with _reported(self.address, "create the plan store"):
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
        lock = self.path(_LOCK_NAME)
        with _reported(lock, "lock the plan store"):
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._share(descriptor)
                _acquire(descriptor, lock)
            except BaseException:
                os.close(descriptor)
                raise
        try:
            self._remove_leftovers()
            yield
        finally:
            os.close(descriptor)  # gives the lock back

    def write(self, name: str, data: bytes) -> None:
        path = self.path(name)
        with _reported(path, "write the plan"):
            stem = name[: -len(SUFFIX)]
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

    def remove(self, name: str) -> None:
        with _reported(self.path(name), "remove the plan"):
            os.unlink(self.path(name))
            self._sync_directory()

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

    def _remove_leftovers(self) -> None:
        for name in filter(_TEMPORARY.fullmatch, self.names()):
            with contextlib.suppress(OSError):  # another user's file, or already gone
                if time.time() - os.stat(self.path(name)).st_mtime > _TEMPORARY_MAX_AGE_S:
                    os.unlink(self.path(name))


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


class _GfileFiles:
    """The same on any TensorFlow filesystem; TensorFlow is imported on first use."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    def path(self, name: str) -> str:
        return f"{self.address}/{name}"

    def names(self) -> list[str]:
        with self._gfile(self.address, "list the plan store") as gfile:
            if not gfile.isdir(self.address):
                return []
            return [str(name).rstrip("/") for name in gfile.listdir(self.address)]

    def read(self, name: str) -> bytes | None:
        path = self.path(name)
        with self._gfile(path, "read the plan") as gfile:
            if not gfile.exists(path):
                return None
            with gfile.GFile(path, "rb") as file:
                return bytes(file.read())

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with self._gfile(self.address, "create the plan store") as gfile:
            gfile.makedirs(self.address)
        self._remove_leftovers()
        yield

    def write(self, name: str, data: bytes) -> None:
        temporary = self.path(f".{name[: -len(SUFFIX)]}.{uuid.uuid4().hex}.tmp")
        with self._gfile(self.path(name), "write the plan") as gfile:
            try:
                with gfile.GFile(temporary, "wb") as file:
                    file.write(data)
                gfile.rename(temporary, self.path(name), overwrite=True)
            except BaseException:
                with contextlib.suppress(Exception):
                    gfile.remove(temporary)
                raise

    def remove(self, name: str) -> None:
        with self._gfile(self.path(name), "remove the plan") as gfile:
            gfile.remove(self.path(name))

    def _remove_leftovers(self) -> None:
        for name in filter(_TEMPORARY.fullmatch, self.names()):
            with (
                contextlib.suppress(StoreError),
                self._gfile(self.path(name), "remove a leftover file") as gfile,
            ):
                modified_s = gfile.stat(self.path(name)).mtime_nsec / 1e9  # 0: it does not know
                if 0 < modified_s < time.time() - _TEMPORARY_MAX_AGE_S:
                    gfile.remove(self.path(name))

    @contextlib.contextmanager
    def _gfile(self, path: str, action: str) -> Iterator[Any]:
        """Yields `tf.io.gfile`; turns TensorFlow's errors into StoreErrors that name the path."""
        try:
            import tensorflow as tf
        except ImportError as error:
            raise StoreError(
                f"{path}: only TensorFlow can open this address and it cannot be imported "
                f"({error}); install tensorflow, or choose a local directory"
            ) from error
        try:
            yield tf.io.gfile
        except tf.errors.OpError as error:
            raise StoreError(
                f"{path}: cannot {action}: {error.message}; check the address and your credentials"
            ) from error
