"""The training step of a user's script as a graph, for any machine and batch size.

`capture.scripts` takes a step from the pass, for the script's own devices and batch size alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hplacer_optimizer.capture.runnable_step import argument_from_dict
from hplacer_optimizer.capture.sources import GraphSource
from hplacer_optimizer.errors import GraphError
from hplacer_optimizer.measuring.scripts import graph_child
from hplacer_optimizer.support import child_process

__all__ = ["graph_of_script"]


def graph_of_script(
    command: Sequence[str], *, timeout_s: float = 300.0
) -> tuple[GraphSource, int | None]:
    """Runs `script.py ARGS` until its first training step has ended.

    The second is the batch size that the step got, where it was passed as a tensor. What the script
    prints goes to standard error.

    Raises GraphError if the script ended, or the time was up, before; says why.
    """
    name = command[0]
    if not Path(name).exists():
        raise GraphError(f"{name}: there is no such script")
    with tempfile.TemporaryDirectory(prefix="hplacer-") as directory:
        where = Path(directory)
        returncode = _run(command, where, timeout_s)
        if (where / graph_child.FACTS).exists():
            return _read(where, name)
        if (where / graph_child.ERROR).exists():
            raise GraphError(f"{name}: {(where / graph_child.ERROR).read_text()}")
    if returncode is None:
        why = f"no training step within {timeout_s:g} s: pass arguments that make it start sooner"
    elif returncode:
        why = f"ended with exit code {returncode} before a training step (its message is above)"
    else:
        why = "ended without a training step that updates variables: pass the script that trains"
    raise GraphError(f"{name}: {why}")


def _run(command: Sequence[str], where: Path, timeout_s: float) -> int | None:
    sys.stderr.flush()
    variables = {graph_child.VARIABLE: str(where), "HPLACER_DISABLE": "1"}
    return child_process.run_until(
        [sys.executable, "-m", graph_child.__name__, *command],
        limit_s=timeout_s,
        is_done=(where / graph_child.FACTS).exists,
        env=child_process.environment(**variables),
        stdout=sys.stderr.fileno(),
    )


def _read(where: Path, name: str) -> tuple[GraphSource, int | None]:
    """Variables may be on any device: on a machine that is not there, none exists yet."""
    document = json.loads((where / graph_child.FACTS).read_text())
    facts = document["source"]
    arguments = tuple(map(argument_from_dict, facts.pop("arguments")))
    source = GraphSource(
        **facts
        | {
            "name": os.path.basename(name),
            "graph_def": (where / graph_child.GRAPH).read_bytes(),
            "targets": tuple(facts["targets"]),
            "devices": tuple(facts["devices"]),
            "threads": tuple(facts["threads"]),
            "arguments": tuple(
                replace(found, is_free=found.variable is not None, device="") for found in arguments
            ),
        }
    )
    return source, document["batch_size"]
