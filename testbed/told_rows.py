"""What a benchmark is told by processes of its own, and the rows that it keeps of that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer.bench.result_json import result_json
from testbed.environment import ROOT

_FOUND = "FOUND "  # what the line begins with


def tell(found: Mapping[str, Any]) -> None:
    """In the process: what it has found."""
    print("\n" + _FOUND + json.dumps(found), flush=True)


def told_by(
    name: str, arguments: Sequence[str], environment: Mapping[str, str], *, timeout_s: float
) -> dict[str, Any]:
    """What a module, the first of the arguments, tells in a process of its own.

    The package's lines on stderr are its "log". Raises RuntimeError with `name` and the end of
    stderr where it tells nothing.
    """
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(_FOUND)]
    if not lines:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(_FOUND))
    found["log"] = [line for line in done.stderr.splitlines() if line.startswith("hplacer: ")]
    return found


def kept(file: Path | None) -> list[dict[str, Any]]:
    """The rows of a file that may be there."""
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file and file.exists() else []
    return rows


def keep(file: Path | None, rows: Any, table: Sequence[str] = ()) -> None:
    """Writes rows as JSON, and the lines of their table, if any, beside it; None: nowhere."""
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(result_json(rows) + "\n")
    if table:
        file.with_suffix(".md").write_text("\n".join(table) + "\n")
