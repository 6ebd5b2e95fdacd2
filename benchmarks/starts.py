"""How long does training wait for its first step? Starts without the optimizer and with it in turn.

    without   without the optimizer
    first     with its defaults, and an empty plan store
    second    with a stored plan that takes effect

A start is a fresh process that ends with its first training step. Measured is the time from the
start of the process to the end of that step.

    python -m benchmarks.starts --starts 20
    python -m benchmarks.starts --starts 2 --scripts custom_loop.py
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture.training_ops import applies_updates
from testbed.environment import clean_environment, two_cpus
from testbed.told_rows import keep, tell, told_by
from testbed.training_scripts import SCRIPTS

DEFAULT_SCRIPTS = ("custom_loop.py", "keras_attention.py", "transformer_encoder.py")
WITHOUT, FIRST, SECOND = "without", "first", "second"
_STARTED = "STARTED_S"


def run_until_first_step(script: str) -> None:
    """In its process: prints the seconds and ends with the first call that trains."""
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function import concrete_function

    from hplacer_optimizer import run

    two_cpus()
    function_class = concrete_function.ConcreteFunction
    original = function_class._call_flat

    @functools.wraps(original)
    def call_flat(function: Any, *arguments: Any, **keywords: Any) -> Any:
        result = original(function, *arguments, **keywords)
        definition = function.graph.as_graph_def()
        nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
        if tf.executing_eagerly() and applies_updates({node.op for node in nodes}):
            lasted_s = time.clock_gettime(time.CLOCK_MONOTONIC) - float(os.environ[_STARTED])
            tell({"first_s": lasted_s})
            os._exit(0)
        return result

    function_class._call_flat = call_flat
    run.main([str(SCRIPTS / script)])


def start(script: str, directory: Path, **variables: str) -> float:
    """Seconds to the first step; RuntimeError where there is none."""
    started = {_STARTED: str(time.clock_gettime(time.CLOCK_MONOTONIC)), "HPLACER_LOG": "off"}
    environment = clean_environment(directory) | started | variables
    found = told_by(script, ["benchmarks.starts", "--run", script], environment, timeout_s=300)
    return float(found["first_s"])


def measure(script: str, starts: int) -> dict[str, list[float]]:
    """Seconds by kind of start, in turns."""
    found: dict[str, list[float]] = {WITHOUT: [], FIRST: [], SECOND: []}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        directory = Path(name)
        stored = f"min_ops=5,min_gain=-1,planner=random,cache={directory / 'stored'}"
        start(script, directory, HPLACER_OPTIONS=f"{stored},on_miss=plan")
        for number in range(starts):
            variables: dict[str, Mapping[str, str]] = {
                WITHOUT: {"HPLACER_DISABLE": "1"},
                FIRST: {"HPLACER_OPTIONS": f"min_ops=5,cache={directory / str(number)}"},
                SECOND: {"HPLACER_OPTIONS": stored},
            }
            kinds = list(variables)
            for kind in kinds[number % 3 :] + kinds[: number % 3]:
                found[kind].append(start(script, directory, **variables[kind]))
    return found


def table(rows: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """In Markdown: medians, and by how much they are later than without the optimizer."""
    lines = [
        "| script | starts | without, s | first start, s | second start, s |",
        "|---" * 5 + "|",
    ]
    for script, found in rows.items():
        medians = {kind: statistics.median(seconds) for kind, seconds in found.items()}
        own = medians[WITHOUT]
        later = [f"{medians[kind]:.2f} ({medians[kind] - own:+.2f})" for kind in (FIRST, SECOND)]
        lines.append(
            f"| {script} | {len(found[WITHOUT])} | {own:.2f} | " + " | ".join(later) + " |"
        )
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Runs, prints the table and writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scripts", nargs="+", default=DEFAULT_SCRIPTS, metavar="SCRIPT")
    parser.add_argument("--starts", type=int, default=20, help="of each kind, default: 20")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for starts.json and starts.md")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.run:
        run_until_first_step(options.run)
        return 1
    rows = {}
    for script in options.scripts:
        rows[script] = measure(script, options.starts)
        keep(options.output and options.output / "starts.json", rows, table(rows))
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
