"""Plan files at a TensorFlow filesystem address (any with "://"); TensorFlow is imported on use.

There is no lock: two writers that put plans for one fingerprint at the same instant may keep the
worse of the two. How atomic a rename is depends on the filesystem; a half-written file fails its
checksum and counts as unreadable. Nothing remembers when a file was last read.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

from hplacer_optimizer.errors import StoreError
from hplacer_optimizer.plans.directories.files import TEMPORARY, TEMPORARY_MAX_AGE_S, FileStatus
from hplacer_optimizer.plans.plan_file import BinaryFile


class GfileFiles:
    """`Files` of any TensorFlow filesystem."""

    is_local = False

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    def path(self, name: str) -> str:
        return f"{self.address}/{name}"

    def names(self) -> list[str]:
        with self._gfile(self.address, "list the plan store") as gfile:
            if not gfile.isdir(self.address):
                return []
            return [str(name).rstrip("/") for name in gfile.listdir(self.address)]

    def statuses(self) -> Iterator[FileStatus]:
        for name in self.names():
            status: Any = None
            with contextlib.suppress(StoreError), self._gfile(self.path(name), "look at") as gfile:
                status = gfile.stat(self.path(name))
            if status is not None and not status.is_directory:
                modified_s = status.mtime_nsec / 1e9
                yield FileStatus(name, int(status.length), modified_s)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryFile | None]:
        path = self.path(name)
        with self._gfile(path, "read the plan") as gfile:
            if not gfile.exists(path):
                yield None
                return
            with gfile.GFile(path, "rb") as file:
                yield file

    def check_trust(self) -> None:
        pass  # who may write there is up to the filesystem

    def mark_used(self, file: BinaryFile) -> None:
        pass

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with self._gfile(self.address, "create the plan store") as gfile:
            gfile.makedirs(self.address)
        yield

    def write(self, name: str, data: bytes) -> None:
        temporary = self.path(f".{name.strip('.').partition('.')[0]}.{uuid.uuid4().hex}.tmp")
        with self._gfile(self.path(name), "write the plan") as gfile:
            try:
                with gfile.GFile(temporary, "wb") as file:
                    file.write(data)
                gfile.rename(temporary, self.path(name), overwrite=True)
            except BaseException:
                with contextlib.suppress(Exception):
                    gfile.remove(temporary)
                raise

    def remove(self, name: str) -> bool:
        with self._gfile(self.path(name), "remove the plan") as gfile:
            if not gfile.exists(self.path(name)):
                return False
            gfile.remove(self.path(name))
            return True

    def remove_leftovers(self) -> None:
        for name in filter(TEMPORARY.fullmatch, self.names()):
            with (
                contextlib.suppress(StoreError),
                self._gfile(self.path(name), "remove a leftover file") as gfile,
            ):
                modified_s = gfile.stat(self.path(name)).mtime_nsec / 1e9  # 0: it does not know
                if 0 < modified_s < time.time() - TEMPORARY_MAX_AGE_S:
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
