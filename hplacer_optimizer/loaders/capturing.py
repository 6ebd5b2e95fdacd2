"""Runs the capturing process, and turns whatever becomes of it into a result or a typed error.

TensorFlow aborts on some malformed graphs; it is slow to import; and to plan for a machine that is
not here, the kernel registry has to be changed for good. So each graph is captured in a process of
its own, which exchanges files with this one in a temporary directory.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hplacer_optimizer import child_process, errors
from hplacer_optimizer.captured import CapturedGraph, load_captured
from hplacer_optimizer.errors import GraphError, HPlacerError
from hplacer_optimizer.loaders.sources import GraphSource

_MODULE = "hplacer_optimizer.loaders.child"
_BASE_LIMIT_S = 300.0
_LIMIT_S_PER_BYTE = 10e-6  # ten seconds per megabyte: text takes about two
_MAX_REASON = 500
_ENVIRONMENT = {
    "HPLACER_DISABLE": "1",  # this package's own pass stays out
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_GRAPH_CACHING": "",
}


def capture(
    source: GraphSource,
    *,
    devices: list[dict[str, Any]],
    kinds: list[dict[str, Any]],
    signature: str | None,
    allow_soft_placement: bool | None,
    batch_size: int | None,
    loop_trip_count: int,
    shapes: dict[str, list[int]],
) -> tuple[CapturedGraph, list[dict[str, Any]]]:
    """Captures the source on these devices, and returns them, too; without any, on local ones.

    Raises GraphError, which names the source, or what else the other process found wrong.
    """
    request = {
        "path": source.path,
        "function": source.function,
        "arguments": [asdict(argument) for argument in source.arguments],
        "targets": source.targets,
        "signature": signature,
        "devices": devices,
        "kinds": kinds,
        "allow_soft_placement": allow_soft_placement,
        "batch_size": batch_size or 0,
        "loop_trip_count": loop_trip_count,
        "shapes": shapes,
    }
    with tempfile.TemporaryDirectory(prefix="hplacer-") as directory:
        where = Path(directory)
        (where / "request.json").write_text(json.dumps(request))
        if source.graph_def:
            (where / "graph.pb").write_bytes(source.graph_def)
        limit_s = _BASE_LIMIT_S + _LIMIT_S_PER_BYTE * source.num_bytes
        returncode, log = _run(where, limit_s, source, hides_gpus=bool(devices))
        if not (where / "result.json").exists():
            raise GraphError(f"{source.name}: {_cause_of_death(returncode, log)}")
        return _read_result(where, source)


def _run(where: Path, limit_s: float, source: GraphSource, hides_gpus: bool) -> tuple[int, str]:
    """Exit code and standard error of the capturing process; never leaves it behind."""
    # With given devices nothing here has to be started.
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if hides_gpus else {}
    log = where / "log"
    with (
        open(log, "wb") as stream,
        subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(where)],
            env=child_process.environment(**_ENVIRONMENT, **hidden),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        ) as process,
    ):
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise GraphError(
                f"{source.name}: TensorFlow did not take this graph in within {limit_s:.0f} s"
            ) from None
        finally:
            process.kill()  # without effect on a process that has ended
            process.wait()
    return process.returncode, log.read_text(errors="replace")


def _cause_of_death(returncode: int, log: str) -> str:
    if returncode < 0:
        known = {member.value: member.name for member in signal.Signals}
        how = f"TensorFlow ended with {known.get(-returncode, f'signal {-returncode}')}"
    else:
        how = f"the capturing process ended with exit code {returncode}"
    return f"{how}: {_last_words(log)}"


def _last_words(log: str) -> str:
    """The line that tells most: TensorFlow's fatal one, else the last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("F")]
    last = (fatal or lines or ["it left no message"])[-1]
    return last[:_MAX_REASON]


def _read_result(where: Path, source: GraphSource) -> tuple[CapturedGraph, list[dict[str, Any]]]:
    result = json.loads((where / "result.json").read_text())
    if "error" in result:
        name, message = result["error"]
        kind: type[HPlacerError] = getattr(errors, name, HPlacerError)
        raise kind(f"{source.name}: {message}" if kind is GraphError else message)
    return load_captured(where), result["devices"]
