"""The training step of a user's script as a graph, for any machine and batch size.

    graph_of_script ---> [GraphCatcher, in the script's process]
                    <--- the graph, once its first step has ended

Then the process is ended: no handler, `finally` or exit hook of the script can save half a
training. step_capture.py takes a step from the pass, for the script's own devices and batch size
alone.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture.sources import GraphSource, describe
from hplacer_optimizer.errors import GraphError, HPlacerError
from hplacer_optimizer.measuring.training_steps.recording import Steps
from hplacer_optimizer.measuring.training_steps.step_observer import Call, StepObserver
from hplacer_optimizer.scripts import exchange
from hplacer_optimizer.scripts.observed_run import BEFORE_TRAINING, observed_run, script_name
from hplacer_optimizer.support.child_process import kill_group
from hplacer_optimizer.support.new_file import new_file

__all__ = ["GraphCatcher", "graph_of_script"]

_FOUND = "graph.pickle"


def graph_of_script(
    command: Sequence[str], *, timeout_s: float = 300.0, in_place: bool = False
) -> tuple[GraphSource, int | None]:
    """Runs `script.py ARGS` until its first training step has ended.

    The second is the batch size that the step got, where it was passed as a tensor. What the script
    prints goes to standard error.

    Args:
        command: the script and its own arguments.
        timeout_s: longest run of the script.
        in_place: whether it runs in the working directory, and not in a private copy.

    Raises GraphError if the script ended, or the time was up, before; says why.
    """
    name = script_name(command)
    with observed_run(
        command,
        exchange.GRAPH,
        error=GraphError,
        limit_s=timeout_s,
        in_place=in_place,
        until=_FOUND,
        variables={"HPLACER_DISABLE": "1"},
    ) as run:
        if (run.where / _FOUND).exists():
            source, batch_size = pickle.loads((run.where / _FOUND).read_bytes())
            # Variables may be on any device: on a machine that is not there, none exists yet.
            arguments = tuple(
                replace(argument, is_free=argument.variable is not None, device="")
                for argument in source.arguments
            )
            return replace(source, name=os.path.basename(name), arguments=arguments), batch_size
        failure = run.failure(BEFORE_TRAINING, "pass arguments that make it start sooner")
        ended = f"ended without a training step{run.reads}: pass the script that trains"
        raise GraphError(f"{name}: {failure or ended}")


# ---- in the script's process ----


class GraphCatcher(StepObserver):
    """Writes down the graph of the first step that trains."""

    def __init__(self, where: Path) -> None:
        super().__init__()
        self._where = where
        self._caught: GraphSource | None = None

    def _look_at_function(self, function: Any) -> Steps | None:
        steps = super()._look_at_function(function)
        if steps is not None:
            self._catch(function, ())
        return steps

    def _look_at_fetches(self, graph: Any, key: tuple[str, ...]) -> Steps | None:
        steps = super()._look_at_fetches(graph, key)
        if steps is not None:
            self._catch(graph, [name.partition(":")[0] for name in key])
        return steps

    def _catch(self, live: Any, targets: Any) -> None:
        try:
            self._caught = describe(live, targets, is_elsewhere=True)
        except HPlacerError as error:
            exchange.give_up(self._where, str(error))

    def on_step(self, steps: Steps, call: Call, is_enough: bool) -> None:
        """Ends the process with the first step that was caught."""
        if self._caught is not None:
            found = pickle.dumps((self._caught, _batch_size_of(call)))
            with new_file(self._where / _FOUND) as file:
                file.write(found)
            kill_group()


def _batch_size_of(call: Call) -> int | None:
    """The first dimension of the first tensor that was passed, if it has one."""
    for value in _flat(call.arguments):
        shape = getattr(value, "shape", None)
        is_value = hasattr(value, "numpy") or type(value).__module__ == "numpy"
        if is_value and shape and getattr(value, "dtype", None) is not None:
            with_size = getattr(shape, "rank", len(shape))
            if with_size and not str(value.dtype).endswith("resource'>"):
                return int(shape[0])
    return None


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [inner for item in value for inner in _flat(item)]
    if isinstance(value, dict):
        return [inner for item in value.values() for inner in _flat(item)]
    return [value]
