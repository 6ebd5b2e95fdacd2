"""A copy of the working directory, for a script that writes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hplacer_optimizer.errors import HPlacerError, MeasuringError
from hplacer_optimizer.support.formats import format_bytes

MAX_COPY_BYTES = 1 << 30
_MAX_NEIGHBOURS = 1_000


@contextlib.contextmanager
def private_copy(directory: Path, error: type[HPlacerError] = MeasuringError) -> Iterator[Path]:
    """A copy of a working directory that lasts as long as the block.

    Virtual environments and compiled Python are left out. Beside it, and beside what it is in, are
    links to what is there in the original. Raises the error for a directory that is too large.
    """
    total = 0
    for root, names, files in os.walk(directory):
        names[:] = [name for name in names if not _is_left_out(Path(root, name))]
        for file in files:
            with contextlib.suppress(OSError):
                total += os.lstat(Path(root, file)).st_size
        if total > MAX_COPY_BYTES:
            raise error(
                f"{directory}: holds more than {format_bytes(MAX_COPY_BYTES)}, too much for a copy "
                "for each run: --in-place runs the script there, or start in a smaller directory"
            )
    with tempfile.TemporaryDirectory(prefix="hplacer-", ignore_cleanup_errors=True) as kept:
        top = Path(kept).resolve()
        copy = top.joinpath(*directory.parts[1:]) if directory.name else top / "root"
        copy.parent.mkdir(parents=True, exist_ok=True)
        for inside in (directory, *directory.parents):
            _link_neighbours(inside, top.joinpath(*inside.parent.parts[1:]), top)
        try:
            shutil.copytree(directory, copy, symlinks=True, ignore=partial(_left_out, top))
        except shutil.Error as failed:
            source, _, reason = failed.args[0][0]
            raise error(
                f"{source}: cannot be copied: {reason}: --in-place runs the script without a copy"
            ) from None
        _mend_links(directory, copy)
        yield copy


def _link_neighbours(directory: Path, kept: Path, top: Path) -> None:
    """A script finds `../data` and `../../data` where it does without a copy."""
    with contextlib.suppress(OSError):  # a parent that cannot be read
        neighbours = [path for path in directory.parent.iterdir() if path not in (directory, top)]
        for path in neighbours[:_MAX_NEIGHBOURS]:
            (kept / path.name).symlink_to(path)


def _mend_links(directory: Path, copy: Path) -> None:
    """A relative link to what is not in the copy leads to the original."""
    for root, names, files in os.walk(copy):
        for link in (Path(root, name) for name in (*names, *files)):
            original = directory / link.relative_to(copy)
            if link.is_symlink() and not link.exists() and original.exists():
                link.unlink()
                link.symlink_to(original.resolve())


def _is_left_out(path: Path) -> bool:
    # As with os.path, what cannot be entered has no such file: copying it says why it fails.
    is_environment = os.path.exists(path / "pyvenv.cfg")
    is_special = not (os.path.isdir(path) or os.path.isfile(path))
    return path.name == "__pycache__" or is_environment or is_special


def _left_out(kept: Path, directory: str, names: list[str]) -> set[str]:
    """Also what is no file, such as a socket, and where the copy itself is kept."""
    paths = [Path(directory, name) for name in names]
    return {
        path.name
        for path in paths
        if path == kept or (not path.is_symlink() and _is_left_out(path))
    }
