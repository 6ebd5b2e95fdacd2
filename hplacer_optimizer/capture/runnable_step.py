"""What can be run of a captured step, on its way from the capturing process.

save_graph(captured, arguments, directory)   flat_graph.pb + flat_graph.json
load_step(directory, captured)               -> RunnableStep
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.capture.captured import CapturedGraph

if TYPE_CHECKING:
    from hplacer_optimizer._tf import OfflineCapture

__all__ = ["Argument", "RunnableStep", "Variable", "argument_from_dict", "load_step", "save_graph"]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """The variable behind a resource argument."""

    dtype: int  # tensorflow.DataType
    shape: list[int] | None  # -1: unknown; None: unknown rank


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a function."""

    device: str  # where the caller has it; "": not known
    variable: Variable | None = None
    is_free: bool = False  # a variable that does not exist yet, so may be anywhere


def argument_from_dict(fields: Mapping[str, Any]) -> Argument:
    """Of `dataclasses.asdict(argument)`."""
    variable = fields["variable"]
    return Argument(
        device=fields["device"],
        variable=variable and Variable(**variable),
        is_free=fields["is_free"],
    )


@dataclass(frozen=True, kw_only=True)
class RunnableStep:
    """A step's graph as the optimizer's pass sees it, whose nodes a placement of the step moves."""

    graph_def: bytes
    """Serialised: calls inlined, control flow lowered, arguments of a function are `_Arg` nodes."""
    targets: list[str]
    """Nodes whose ancestors are the step."""
    fed_shapes: Mapping[str, list[list[int]]]
    """Of the outputs of fed nodes, as they were costed."""
    arguments: Sequence[Argument]
    """Of the function; those of a session's graph are empty."""
    node_names: list[str]
    """[N], the nodes that a plan may move."""
    node_op: NDArray[np.int32]
    """[N], the op of the problem that stands for each."""


_GRAPH, _FACTS = "flat_graph.pb", "flat_graph.json"


def save_graph(
    captured: OfflineCapture, arguments: Sequence[Argument], directory: str | os.PathLike[str]
) -> None:
    """Writes what `captured` kept of its graph into a directory."""
    facts = {
        "targets": captured.targets,
        "fed_shapes": captured.fed_shapes,
        "arguments": [asdict(argument) for argument in arguments],
    }
    (Path(directory) / _GRAPH).write_bytes(captured.flat_graph)
    (Path(directory) / _FACTS).write_text(json.dumps(facts))


def load_step(directory: str | os.PathLike[str], captured: CapturedGraph) -> RunnableStep:
    """Reads what `save_graph` wrote beside this capture."""
    facts = json.loads((Path(directory) / _FACTS).read_text())
    return RunnableStep(
        graph_def=(Path(directory) / _GRAPH).read_bytes(),
        targets=facts["targets"],
        fed_shapes=facts["fed_shapes"],
        arguments=[argument_from_dict(argument) for argument in facts["arguments"]],
        node_names=captured.node_names,
        node_op=captured.node_op,
    )
