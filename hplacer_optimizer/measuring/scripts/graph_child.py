"""A script's process: `python -m hplacer_optimizer.measuring.scripts.graph_child script.py ARGS`.

Runs the script as `python script.py ARGS` does, until its first training step has ended. Then the
step's graph is written down, and the process group killed: no handler, `finally` or exit hook of
the script can save half a training.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import wrapt

from hplacer_optimizer.capture.sources import GraphSource, describe
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.measuring.scripts import child
from hplacer_optimizer.measuring.training_steps.recording import Steps
from hplacer_optimizer.measuring.training_steps.watch import Call, Watch
from hplacer_optimizer.run import main
from hplacer_optimizer.support.child_process import end_with_parent, kill_group

VARIABLE = "HPLACER_ADVICE"  # names the directory
GRAPH, FACTS, ERROR = "graph.pb", "facts.json", "error.txt"


class _Catcher(Watch):
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
            (self._where / ERROR).write_text(str(error))
            kill_group()

    def on_step(self, steps: Steps, call: Call, is_enough: bool) -> None:
        """Ends the process with the first step that was caught."""
        if self._caught is not None:
            write(self._caught, batch_size_of(call), self._where)
            kill_group()


def batch_size_of(call: Call) -> int | None:
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


def write(source: GraphSource, batch_size: int | None, where: Path) -> None:
    """Leaves the graph; FACTS is there once all of it is."""
    (where / GRAPH).write_bytes(source.graph_def)
    facts = asdict(replace(source, graph_def=b""))
    facts["graph_def"] = None
    child.write(where / FACTS, {"source": facts, "batch_size": batch_size})


if __name__ == "__main__":
    end_with_parent()
    catcher = _Catcher(Path(os.environ[VARIABLE]))
    wrapt.register_post_import_hook(lambda _: catcher.install(), "tensorflow")
    main(sys.argv[1:])
