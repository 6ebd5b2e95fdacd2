"""Problems from TensorFlow graphs: files, SavedModels, live graphs and functions.

    load_problem(source)  --sources-->  GraphSource  --capturing-->  [child: graph_files, _tf]
                                                         |
    Problem  <--captured.build_problem--  CapturedGraph <-

A child process captures the graph, so this process neither imports TensorFlow for it nor ends with
it. The result is what the optimizer's pass would plan if the graph ran on that machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

from hplacer_optimizer import machines
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture import capturing
from hplacer_optimizer.capture.captured import CapturedGraph, build_problem
from hplacer_optimizer.capture.runnable_step import RunnableStep
from hplacer_optimizer.capture.sources import GraphSource, describe, is_problem_file
from hplacer_optimizer.costs.table import CostTable
from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.machines import Machine, full_device_name
from hplacer_optimizer.options import Options
from hplacer_optimizer.problem.cost_sources import ANALYTIC
from hplacer_optimizer.problem.problem_file import EXAMPLE_FILE, load_problem_file
from hplacer_optimizer.support.keywords import checks_keywords

__all__ = ["LoadedGraph", "load_graph", "load_problem"]


@dataclass(frozen=True, kw_only=True)
class LoadedGraph:
    """A graph on a machine, with what the optimizer needs to store a plan for it."""

    problem: Problem
    captured: CapturedGraph
    machine: Machine
    assumptions: tuple[str, ...]  # what had to be assumed, one sentence each
    step: RunnableStep | None = None  # if `load_graph` was to keep it
    cost_source: str = ANALYTIC  # or "measured", or both


def load(source: object, **options: Any) -> LoadedGraph | Problem:
    """The problem of a problem file or of the example, else what `load_graph` makes of the source.

    What is loaded already is returned as it is. Raises what `load_problem` raises.
    """
    if isinstance(source, str) and source == "example":
        source = EXAMPLE_FILE
    is_loaded = isinstance(source, (LoadedGraph, Problem))
    if not is_loaded and not is_problem_file(source):
        return load_graph(source, **options)
    given = [name for name, value in options.items() if value is not None]
    if given:
        name, what = ("", "what is loaded") if is_loaded else (f"{source}: ", "a problem file")
        raise GraphError(
            f"{name}{what} has its own devices and costs; leave out " + ", ".join(given)
        )
    return source if is_loaded else load_problem_file(source)  # type: ignore[arg-type,return-value]


@checks_keywords
def load_problem(
    source: object,
    *,
    machine: Machine | str | os.PathLike[str] | None = None,
    targets: Sequence[object] | None = None,
    signature: str | None = None,
    batch_size: int | None = None,
    loop_trip_count: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    cost_table: CostTable | str | os.PathLike[str] | None = None,
    allow_soft_placement: bool | None = None,
) -> Problem:
    """Loads a problem from a problem file, or from a TensorFlow graph and a machine.

    Logs what had to be assumed. The keywords are for graphs only: a problem file has its own
    devices and costs.

    Args:
        source: a problem file, what `load_graph` takes, or "example": nine ops on a CPU and two
            GPUs, to try things with (write "./example" for a file so named).
        machine: a Machine, a shipped one's name or a YAML file; None: this machine.
        targets: op names (or ops) of the training step in a session's graph; None: the outputs of
            the signature, else found automatically.
        signature: of a SavedModel or a MetaGraphDef, or a SavedModel's function; None: a
            SavedModel's default or only signature.
        batch_size: for unknown batch dimensions; None: the largest static one, else 32.
        loop_trip_count: for while loops without a constant bound; None: 10.
        shapes: of fed tensors, by the name of their placeholder or argument.
        cost_table: measured costs, which replace the estimates of the ops that it has.
        allow_soft_placement: whether TensorFlow may replace devices that the graph asks for and
            the machine lacks; None: as by default, yes in a function and no in a session.

    Raises:
        GraphError: the graph cannot be read or captured.
        ProblemError: a problem file is malformed, or the step is no valid problem.
        MachineError: the machine's description is wrong.
        CostTableError: the cost table is malformed.
        OptionError: there is no such keyword.
        OSError: a file cannot be opened.

    Example:
        >>> import hplacer_optimizer as hp
        >>> problem = hp.load_problem("example")  # or a file, a tf.Graph, a ConcreteFunction
        >>> problem.num_ops, problem.device_names
        (9, ['/device:CPU:0', '/device:GPU:0', '/device:GPU:1'])
    """
    loaded = load(
        source,
        machine=machine,
        targets=targets,
        signature=signature,
        batch_size=batch_size,
        loop_trip_count=loop_trip_count,
        shapes=shapes,
        cost_table=cost_table,
        allow_soft_placement=allow_soft_placement,
    )
    return loaded if isinstance(loaded, Problem) else loaded.problem


def load_graph(
    source: object,
    *,
    machine: Machine | str | os.PathLike[str] | None = None,
    targets: Sequence[object] | None = None,
    signature: str | None = None,
    batch_size: int | None = None,
    loop_trip_count: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    cost_table: CostTable | str | os.PathLike[str] | None = None,
    allow_soft_placement: bool | None = None,
    keep_graph: bool = False,
    logs: bool = True,
) -> LoadedGraph:
    """Captures a TensorFlow graph as it would run on a machine, in a process of its own.

    Args:
        source: a path (MetaGraphDef, GraphDef, either as text, or a SavedModel's directory), a
            `tf.Graph`, a `ConcreteFunction`, or what `sources.describe` made of one of them.
        machine: a Machine, a shipped one's name or a YAML file; None: this machine.
        targets: op names (or ops) of the training step in a session's graph; None: the outputs of
            the signature, else found automatically.
        signature: of a SavedModel or a MetaGraphDef, or a SavedModel's function; None: a
            SavedModel's default or only signature.
        batch_size: for unknown batch dimensions; None: the largest static one, else 32.
        loop_trip_count: for while loops without a constant bound; None: 10.
        shapes: of fed tensors, by the name of their placeholder or argument.
        cost_table: measured costs, which replace the estimates of the ops that it has.
        allow_soft_placement: whether TensorFlow may replace devices that the graph asks for and
            the machine lacks; None: as by default, yes in a function and no in a session.
        keep_graph: also returns what can be run, to measure the step.
        logs: what had to be assumed.

    Raises:
        GraphError: the graph cannot be read or captured.
        MachineError: the machine's description is wrong.
        CostTableError: the cost table is malformed.
    """
    graph = describe(source, targets or (), is_elsewhere=machine is not None)
    if graph.function and signature is not None:
        raise GraphError(f"{graph.name}: signature: a ConcreteFunction is one already")
    _check_positive("batch_size", batch_size)
    _check_positive("loop_trip_count", loop_trip_count)
    known = _resolve_machine(machine, graph)
    captured, devices, step = capturing.capture(
        graph,
        devices=_device_requests(known) if known else [],
        kinds=[asdict(kind) for kind in known.kinds] if known else [],
        signature=signature,
        allow_soft_placement=allow_soft_placement,
        batch_size=batch_size,
        loop_trip_count=loop_trip_count or Options.loop_trip_count,
        shapes=_check_shapes(shapes or {}),
        keep_graph=keep_graph,
    )
    used = known or _detect(devices, graph)
    problem, measured = build_problem(
        captured, used, name=os.path.basename(graph.path), cost_table=cost_table
    )
    about_costs = [measured.sentence] if measured else []
    assumptions = (*captured.assumptions, *used.assumptions, *about_costs)
    for assumption in assumptions if logs else ():
        LOGGER.info("assumed for %s: %s", graph.name, assumption)
    return LoadedGraph(
        problem=problem,
        captured=captured,
        machine=used,
        assumptions=assumptions,
        step=step,
        cost_source=measured.cost_source if measured else LoadedGraph.cost_source,
    )


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise GraphError(f"{name}: must be a positive integer, got {value!r}")


def _check_shapes(shapes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    for name, shape in shapes.items():
        for size in shape:
            if type(size) is not int or not -1 <= size < 2**63:
                raise GraphError(f"shapes[{name!r}]: {size!r} is no size of a dimension (-1: open)")
    return {name: list(shape) for name, shape in shapes.items()}


def _resolve_machine(machine: Any, graph: GraphSource) -> Machine | None:
    """None: the capturing process has to find out."""
    if machine is None:
        if not graph.devices:
            return None
        return _detect(graph.devices, graph)
    if isinstance(machine, Machine):
        return machine
    return machines.load_machine(machine)


def _detect(devices: Sequence[Mapping[str, Any]], graph: GraphSource) -> Machine:
    """As the pass does in a training process: with its threads, and the links of its GPUs."""
    inter_op, intra_op = graph.threads
    return machines.detect(
        [SimpleNamespace(**device) for device in devices],
        inter_op_threads=inter_op,
        intra_op_threads=intra_op,
        ask_driver=True,
    )


def _device_requests(machine: Machine) -> list[dict[str, Any]]:
    """The machine's devices as TensorFlow would list them."""
    rows = zip(machine.device_names, machine.device_kind, machine.memory_bytes, strict=True)
    return [
        {
            "name": full_device_name(name),
            "type": machine.kinds[kind].type,
            "memory_bytes": memory_bytes,
        }
        for name, kind, memory_bytes in rows
    ]
