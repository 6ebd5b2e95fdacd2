"""One plan file by the path or address that the caller chose, whoever can write there."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from hplacer_optimizer.errors import StoreError
from hplacer_optimizer.plans.directories.files import reported
from hplacer_optimizer.plans.directories.gfile import GfileFiles
from hplacer_optimizer.plans.directories.local_files import LocalFiles
from hplacer_optimizer.plans.plan_file import BinaryFile
from hplacer_optimizer.support.new_file import new_file

__all__ = ["open_file", "read_file", "write_file"]


def open_file(path: str | os.PathLike[str]) -> AbstractContextManager[BinaryFile | None]:
    """For reading; None if there is no such file. Raises StoreError, which names the path."""
    directory, name = os.path.split(os.fspath(path))
    if "://" in directory:
        return GfileFiles(directory).open(name)
    if os.path.isdir(path):
        raise StoreError(f"{path}: is a directory; name a plan file in it")
    return LocalFiles(Path(directory), trust_shared=True).open(name)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The content, unchecked. Raises StoreError, which names the path."""
    with open_file(path) as file:
        if file is None:
            raise StoreError(f"{path}: there is no such file")
        return bytes(file.read())


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes all or nothing. Raises StoreError, which names the path."""
    directory, name = os.path.split(os.fspath(path))
    if "://" in directory:
        GfileFiles(directory).write(name, data)
        return
    with reported(path, "write the plan"), new_file(path) as file:
        file.write(data)
