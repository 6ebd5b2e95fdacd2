"""`hplacer calibrate`: measures this machine or a cluster, and the ops of a graph on it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hplacer_optimizer.cli.arguments import (
    OK,
    add_cluster_option,
    add_command,
    add_json,
    add_output,
    count,
    output_file,
    whole,
)
from hplacer_optimizer.cli.cluster import MAX_WORKERS
from hplacer_optimizer.cli.graph_arguments import add_step_options, step_options
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.machines import save_machine
from hplacer_optimizer.measuring.calibration.calibrate import calibrate_graph, calibrate_machine
from hplacer_optimizer.measuring.clusters import local_cluster

_EXAMPLES = """\
example: hplacer calibrate -o here.yaml

more:
  hplacer calibrate model.meta -o here.yaml --cost-table costs.json
  hplacer calibrate --cluster 127.0.0.1:40001,127.0.0.1:40002 -o cluster.yaml
  hplacer calibrate model.meta --local-cluster 2 -o cluster.yaml --cost-table costs.json

Then plan with what was measured:
  hplacer plan model.meta --machine cluster.yaml --cost-table costs.json --planner auto
"""


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "measure the rates and links of this machine or of a cluster, and op costs of a graph"
    parser = add_command(commands, "calibrate", _calibrate, text, _EXAMPLES)
    parser.add_argument(
        "graph",
        nargs="?",
        metavar="GRAPH",
        help="measure its ops: a MetaGraphDef (.meta), a GraphDef (.pb), a SavedModel directory",
    )
    where = parser.add_mutually_exclusive_group()
    add_cluster_option(where)
    where.add_argument(
        "--local-cluster",
        type=whole(1, MAX_WORKERS),
        metavar="N",
        help="start N workers on this machine, as `hplacer cluster start` does, and measure them",
    )
    add_output(parser, "the machine file (YAML) to write")
    parser.add_argument(
        "--cost-table",
        type=output_file,
        metavar="FILE",
        help="the cost table (JSON) of GRAPH to write",
    )
    parser.add_argument(
        "--steps", type=count, default=8, metavar="N", help="traced steps of GRAPH (default: 8)"
    )
    add_step_options(parser)
    add_json(parser)


def _calibrate(options: argparse.Namespace) -> int:
    if (options.graph is None) != (options.cost_table is None):
        raise OptionError("GRAPH and --cost-table FILE belong together: give both or none")
    os.environ["HPLACER_DISABLE"] = "1"  # what is measured is the machine, not a plan
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    with _addresses(options) as addresses, _progress_bar() as on_progress:
        found = calibrate_machine(addresses=addresses, on_progress=on_progress)
        save_machine(found.machine, options.output)
        written, notes = [options.output], found.notes
        if options.graph is not None:
            ops = calibrate_graph(
                options.graph,
                found.machine,
                addresses=addresses,
                steps=options.steps,
                on_progress=on_progress,
                **step_options(options),
            )
            ops.costs.save(options.cost_table)
            save_machine(ops.machine, options.output)
            written.append(options.cost_table)
            notes += ops.notes
    if options.json:
        print_json({"written": written, "notes": notes})
    else:
        for line in notes:
            print(line)
        print(f"written: {', '.join(written)}")
    return OK


@contextmanager
def _addresses(options: argparse.Namespace) -> Iterator[list[str] | None]:
    if options.cluster is not None:
        yield options.cluster
    elif options.local_cluster is not None:
        with local_cluster(workers=options.local_cluster) as cluster:
            yield list(cluster.addresses)
    else:
        yield None


@contextmanager
def _progress_bar() -> Iterator[Any]:
    """On stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def on_progress(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield on_progress
