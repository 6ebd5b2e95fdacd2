"""Where this package keeps what outlasts a process, for this user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def default_directory() -> Path:
    """`$XDG_CACHE_HOME/hplacer`, else `~/.cache/hplacer`.

    A user without a home, as in containers, has `hplacer-UID` in the directory of temporary files.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative value is to be ignored
        base = os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        return Path(tempfile.gettempdir()) / f"hplacer-{os.getuid()}"
    return Path(base) / "hplacer"
