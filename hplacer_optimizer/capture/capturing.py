"""Runs the capturing process, and turns whatever becomes of it into a result or a typed error.

TensorFlow aborts on some malformed graphs; it is slow to import; and to plan for a machine that is
not here, the kernel registry has to be changed for good. So each graph is captured in a process of
its own, which exchanges files with this one in a temporary directory.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hplacer_optimizer import errors
from hplacer_optimizer.capture.captured import CapturedGraph, load_captured
from hplacer_optimizer.capture.runnable_step import RunnableStep, load_step
from hplacer_optimizer.capture.sources import GraphSource
from hplacer_optimizer.errors import GraphError, HPlacerError
from hplacer_optimizer.support import tf_process

_MODULE = "hplacer_optimizer.capture.graph_process"
_BASE_LIMIT_S = 300.0
_LIMIT_S_PER_BYTE = 10e-6  # ten seconds per megabyte: text takes about two


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
    keep_graph: bool,
) -> tuple[CapturedGraph, list[dict[str, Any]], RunnableStep | None]:
    """Captures the source on these devices, and returns them, too; without any, on local ones.

    The third is what can be run of it, if it is to `keep_graph`.

    Raises GraphError, which names the source, or what else the other process found wrong.
    """
    request = {
        "path": source.path,
        "function": source.function,
        "arguments": [asdict(argument) for argument in source.arguments],
        "targets": source.targets,
        "signature": signature,
        "devices": devices,
        "threads": source.threads,
        "tf32": source.tf32,
        "kinds": kinds,
        "allow_soft_placement": allow_soft_placement,
        "batch_size": batch_size or 0,
        "loop_trip_count": loop_trip_count,
        "shapes": shapes,
        "keep_graph": keep_graph,
    }
    with tempfile.TemporaryDirectory(prefix="hplacer-") as directory:
        where = Path(directory)
        (where / "request.json").write_text(json.dumps(request))
        if source.graph_def:
            (where / "graph.pb").write_bytes(source.graph_def)
        limit_s = _BASE_LIMIT_S + _LIMIT_S_PER_BYTE * source.num_bytes
        child = tf_process.run(
            _MODULE, where, limit_s=limit_s, name=source.name, hides_gpus=bool(devices)
        )
        if not (where / "result.json").exists():
            raise GraphError(f"{source.name}: {child.cause_of_death}")
        captured, known = _read_result(where, source)
        return captured, known, load_step(where, captured) if keep_graph else None


def _read_result(where: Path, source: GraphSource) -> tuple[CapturedGraph, list[dict[str, Any]]]:
    result = json.loads((where / "result.json").read_text())
    if "error" in result:
        name, message = result["error"]
        kind: type[HPlacerError] = getattr(errors, name, HPlacerError)
        raise kind(f"{source.name}: {message}" if kind is GraphError else message)
    return load_captured(where), result["devices"]
