"""Files that appear complete or not at all."""

from __future__ import annotations

import gzip
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["new_file"]


@contextmanager
def new_file(
    path: str | os.PathLike[str], *, may_compress: bool = False
) -> Iterator[io.BufferedIOBase]:
    """A binary stream whose bytes take the place of `path` when the block ends without an error.

    With `may_compress` they are compressed if the name ends with `.gz`; equal contents give equal
    bytes. A reader sees the old file or the new one, never a part. Raises OSError if the file
    cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            if may_compress and path.suffix == ".gz":
                # No name and no time in the header, hence the same bytes every time.
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                    yield packed
            else:
                yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
