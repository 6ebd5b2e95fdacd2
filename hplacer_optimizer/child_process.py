"""Python processes that this package starts: their environment, and their end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PACKAGE_ROOT = Path(__file__).resolve().parents[1]
_PR_SET_PDEATHSIG = 1


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with changes, in which a child finds this package."""
    result = {**os.environ, **changes}
    paths = [str(_PACKAGE_ROOT), result.get("PYTHONPATH", "")]
    result["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return result


def end_with_parent() -> None:
    """In a child: a parent that is killed cannot stop this process any more."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit(1)
