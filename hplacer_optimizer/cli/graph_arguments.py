"""Graphs on the command line: the arguments that name one, and `hplacer export`."""

from __future__ import annotations

import argparse
from typing import Any

from hplacer_optimizer._engine import Problem
from hplacer_optimizer.capture.loading import load_problem
from hplacer_optimizer.cli.arguments import OK, add_command, add_json, add_output, count, machine
from hplacer_optimizer.cli.parser import advanced
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.problem.problem_file import save_problem


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    example = "hplacer export model.meta --machine 1cpu-2xk40 -o model.hplacer.json.gz"
    text = "write a graph and a machine as a problem file, which needs no TensorFlow any more"
    export = add_command(commands, "export", _export, text, example)
    add_graph_arguments(export)
    add_output(export, "the problem file, compressed if it ends with .gz")
    add_json(export)


_GRAPH = "a MetaGraphDef (.meta), a GraphDef (.pb), either as text (.pbtxt), a SavedModel directory"


def add_graph_arguments(parser: argparse.ArgumentParser) -> None:
    """What `load` reads."""
    parser.add_argument(
        "graph", metavar="GRAPH", help=f"{_GRAPH}, a problem file (*.hplacer.json), or 'example'"
    )
    add_graph_options(parser)


def add_optional_graph(parser: argparse.ArgumentParser, purpose: str) -> None:
    """`--graph` and what belongs to it."""
    parser.add_argument("--graph", metavar="GRAPH", help=f"{purpose}: {_GRAPH}")
    add_graph_options(parser)


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """How the graph that is named elsewhere is loaded."""
    parser.add_argument(
        "--machine",
        type=machine,
        metavar="MACHINE",
        help="a machine's name, see `hplacer machine list`, or a YAML file (default: this machine)",
    )
    parser.add_argument(
        "--cost-table", metavar="FILE", help="a file of measured op costs, from `hplacer calibrate`"
    )
    add_step_options(parser)


def add_step_options(parser: argparse.ArgumentParser, *, batch_size: bool = True) -> None:
    """What of the graph runs, and with which shapes; the batch size may be the command's own."""
    group = advanced(parser)
    group.add_argument(
        "--target",
        action="append",
        dest="targets",
        metavar="OP",
        help="an op of the training step; repeatable (default: found automatically)",
    )
    group.add_argument(
        "--signature", metavar="NAME", help="the signature (or function) of a SavedModel"
    )
    if batch_size:
        group.add_argument(
            "--batch-size",
            type=count,
            metavar="N",
            help="size of unknown batch dimensions (default: the largest known one, else 32)",
        )
    group.add_argument(
        "--loop-trip-count",
        type=count,
        metavar="N",
        help="trips of while loops without a constant bound (default: 10)",
    )
    group.add_argument(
        "--shape",
        action="append",
        default=[],
        type=_shape,
        dest="shapes",
        metavar="NAME=2,3",
        help="the shape of an input; repeatable",
    )
    group.add_argument(
        "--soft-placement",
        action="store_true",
        default=None,
        help="replace devices that the graph asks for and the machine lacks",
    )


def _shape(text: str) -> tuple[str, list[int]]:
    name, equals, sizes = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE,SIZE")
    try:
        shape = [int(size) for size in sizes.split(",") if size]
    except ValueError:
        shape = [-1]
    if any(size < 0 for size in shape):
        raise argparse.ArgumentTypeError(f"{text!r}: sizes are whole numbers of at least 0")
    return name, shape


def load(options: argparse.Namespace) -> Problem:
    """The problem that the arguments describe."""
    with waiting(f"loading {options.graph}"):
        return load_problem(options.graph, **graph_options(options))


def graph_options(options: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `load_graph`."""
    return {
        "machine": options.machine,
        "cost_table": options.cost_table,
        **step_options(options),
    }


def step_options(options: argparse.Namespace) -> dict[str, Any]:
    """Those that `add_step_options` adds."""
    return {
        "targets": options.targets,
        "signature": options.signature,
        "batch_size": options.batch_size,
        "loop_trip_count": options.loop_trip_count,
        "shapes": dict(options.shapes) or None,
        "allow_soft_placement": options.soft_placement,
    }


def _export(options: argparse.Namespace) -> int:
    problem = load(options)
    save_problem(problem, options.output)
    if options.json:
        print_json(
            {
                "output": options.output,
                "num_ops": problem.num_ops,
                "num_units": problem.num_units,
                "num_devices": problem.num_devices,
            }
        )
        return OK
    print(
        f"{options.output}: {problem.num_ops} ops, {problem.num_units} units, "
        f"{problem.num_devices} devices"
    )
    return OK
