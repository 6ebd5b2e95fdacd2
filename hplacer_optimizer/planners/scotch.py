"""The `scotch` and `mincut` planners: Scotch maps the unit graph onto the machine.

Pellegrini and Roman, "Scotch: A Software Package for Static Mapping by Dual Recursive
Bipartitioning of Process and Architecture Graphs", HPCN Europe 1996; used as in Mirhoseini et al.,
"A Hierarchical Model for Device Placement", ICLR 2018: the graph has compute and bytes, the
architecture the devices' speeds and links. `mincut` leaves the CPU out.

Scotch sees neither precedence nor memory. A unit that it maps where the unit may not run goes to
its first candidate. Its programs run as processes of their own: what they do wrong (they abort on
some inputs) hurts nobody, and they can be stopped at any time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.errors import PlannerUnavailableError
from hplacer_optimizer.planners.budget import Budget, ProgressCallback
from hplacer_optimizer.planners.devices import accelerators, candidate_mask, units_on
from hplacer_optimizer.planners.result import PlannerResult
from hplacer_optimizer.planners.unit_graph import UnitGraph, build_unit_graph, place_parts

# Scotch may count in 32 bits, and multiplies bytes with distances.
_VERTEX_WEIGHT_SUM = 1 << 28
_EDGE_WEIGHT_SUM = 1 << 24
_LARGEST_SPEED = 1000
_LARGEST_DISTANCE = 32
_VERSION_TIMEOUT_S = 10.0


def scotch(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """Maps onto all devices, as any `Planner`.

    Scotch draws from a seed of its own: `seed` changes nothing, and no progress is reported. If the
    budget's seconds run out, all goes to the first device, and a note says so. Raises
    PlannerUnavailableError if Scotch is missing or fails.
    """
    return _plan("scotch", problem, list(range(problem.num_devices)), budget)


def mincut(
    problem: Problem,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
) -> PlannerResult:
    """The same without the CPUs; what may run on no other device goes to its first candidate."""
    return _plan("mincut", problem, accelerators(problem), budget)


def _plan(
    planner: str, problem: Problem, devices: Sequence[int], budget: Budget | None
) -> PlannerResult:
    programs = [_find_program(planner, name) for name in ("amk_grf", "gmap")]
    mask = candidate_mask(problem)
    graph = build_unit_graph(
        problem,
        devices,
        units_on(mask, devices),
        vertex_weight_sum=_VERTEX_WEIGHT_SUM,
        edge_weight_sum=_EDGE_WEIGHT_SUM,
    )
    part = np.zeros(len(graph.units), np.int64)
    notes = []
    if len(devices) > 1 and len(graph.units) > 1:
        seconds = budget.seconds if budget else None
        try:
            part = _map(planner, programs, graph, _distances(problem, devices), seconds)
        except subprocess.TimeoutExpired:
            notes.append(
                f"{planner}: the time limit of {seconds:g} s was hit, nothing was mapped: all ops "
                f"are on '{problem.device_names[devices[0]]}' where they may run there"
            )
    placement = place_parts(problem, mask, devices, graph, part)
    return PlannerResult(placement=placement, notes=notes)


def _find_program(planner: str, name: str) -> str:
    """Debian prepends the package's name, lest `gmap` be mistaken for the genome mapper."""
    for candidate in (f"scotch_{name}", name):
        path = shutil.which(candidate)
        if path and "Bordeaux" in _run([path, "-V"], _VERSION_TIMEOUT_S).stderr:
            return path
    raise PlannerUnavailableError(
        f"{planner}: Scotch's program `{name}` was not found on the PATH; "
        "on Debian and Ubuntu: apt-get install scotch"
    )


def _map(
    planner: str,
    programs: Sequence[str],
    graph: UnitGraph,
    distance: NDArray[np.int64],
    seconds: float | None,
) -> NDArray[np.int64]:
    """Returns int64[V]: the index of the device of each vertex."""
    deadline = None if seconds is None else time.monotonic() + seconds
    make_architecture, make_mapping = programs
    with tempfile.TemporaryDirectory(prefix="hplacer-scotch-") as directory:
        source, machine, target, mapping = (
            str(Path(directory, name)) for name in ("source", "machine", "target", "mapping")
        )
        _write_graph(source, graph.vertex_weight, graph.ptr, graph.neighbour, graph.edge_weight)
        _write_machine(machine, graph.speed, distance)
        for command in (
            [make_architecture, machine, target],
            [make_mapping, source, target, mapping],
        ):
            left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            done = _run(command, left)
            if done.returncode:
                raise PlannerUnavailableError(
                    f"{planner}: `{command[0]}` failed with status {done.returncode}: "
                    f"{done.stderr.strip() or 'it gives no reason'}"
                )
        vertex, part = np.loadtxt(mapping, np.int64, skiprows=1, ndmin=2).T
    result = np.empty(len(graph.units), np.int64)
    result[vertex] = part
    return result


def _run(command: Sequence[str], seconds: float | None) -> subprocess.CompletedProcess[str]:
    # With more threads than one the mapping depends on their timing.
    environment = os.environ | {"SCOTCH_PTHREAD_NUMBER": "1"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def _distances(problem: Problem, devices: Sequence[int]) -> NDArray[np.int64]:
    """Returns int64[D, D]: time per byte between devices, the fastest link being 1.

    The time is that of the channel and that of the work at both ends.
    The slower direction counts; devices without a link are as far apart as any.
    """
    seconds_per_byte = np.full((problem.num_devices, problem.num_devices), np.inf)
    seconds_per_byte[problem.link_src, problem.link_dst] = (
        1 / problem.link_bytes_per_s
        + _seconds_per_byte_of_work(problem.link_send_bytes_per_s)
        + _seconds_per_byte_of_work(problem.link_receive_bytes_per_s)
    )
    between = np.maximum(seconds_per_byte, seconds_per_byte.T)[np.ix_(devices, devices)]
    off_diagonal = ~np.eye(len(devices), dtype=np.bool_)
    fastest = between[off_diagonal].min()
    relative = between / fastest if np.isfinite(fastest) else np.ones_like(between)
    distance: NDArray[np.int64] = np.clip(np.round(relative), 1, _LARGEST_DISTANCE).astype(np.int64)
    return distance


def _seconds_per_byte_of_work(bytes_per_s: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of rates [L] where 0 says that bytes are no work."""
    works = bytes_per_s > 0
    seconds: NDArray[np.float64] = np.where(works, 1 / np.where(works, bytes_per_s, 1), 0.0)
    return seconds


def _write_machine(path: str, speed: NDArray[np.float64], distance: NDArray[np.int64]) -> None:
    """The architecture as a complete graph: loads are speeds, edge loads distances."""
    size = len(speed)
    weight = np.maximum(np.round(speed / speed.max() * _LARGEST_SPEED), 1).astype(np.int64)
    neighbour = np.array([[e for e in range(size) if e != d] for d in range(size)], np.int64)
    edge_weight = np.take_along_axis(distance, neighbour, axis=1)
    ptr = np.arange(size + 1) * (size - 1)
    _write_graph(path, weight, ptr, neighbour.ravel(), edge_weight.ravel())


def _write_graph(
    path: str,
    vertex_weight: NDArray[np.int64],
    ptr: NDArray[np.int64],
    neighbour: NDArray[np.int64],
    edge_weight: NDArray[np.int64],
) -> None:
    """Scotch's graph format: `load degree (edge load, neighbour)...` for each vertex."""
    edges = [f"{weight} {v}" for weight, v in zip(edge_weight, neighbour, strict=True)]
    lines = ["0", f"{len(vertex_weight)} {len(edges)}", "0 011"]
    for vertex, weight in enumerate(vertex_weight):
        begin, end = ptr[vertex], ptr[vertex + 1]
        lines.append(" ".join([str(weight), str(end - begin), *edges[begin:end]]))
    Path(path).write_text("\n".join(lines) + "\n", encoding="ascii")
