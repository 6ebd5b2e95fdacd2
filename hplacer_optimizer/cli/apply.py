"""`hplacer apply`: a plan's devices in a graph file."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from hplacer_optimizer.cli.arguments import OK, add_command, add_json, add_output
from hplacer_optimizer.cli.graph_arguments import add_graph_options, graph_options
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.stored_plans import add_plan_arguments, find_plan
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.plans.graph_file import apply_plan

_MAX_NAMED = 3


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "write a graph file with the plan's devices, for programs without the optimizer"
    apply = add_command(
        commands,
        "apply",
        _apply,
        text,
        "hplacer apply 3f9c2b1a --graph model.meta -o placed.meta",
    )
    add_plan_arguments(apply, "plan")
    apply.add_argument(
        "--graph",
        required=True,
        metavar="GRAPH",
        help="the graph that the plan is for: a MetaGraphDef or GraphDef, binary or text",
    )
    add_output(apply, "the new graph file")
    add_graph_options(apply)
    add_json(apply)


def _apply(options: argparse.Namespace) -> int:
    plan = find_plan(options, options.plan)
    with waiting(f"loading {options.graph}"):
        applied = apply_plan(plan, options.graph, options.output, **graph_options(options))
    if options.json:
        print_json({"output": options.output, **asdict(applied)})
        return OK
    print(f"{options.output}: {applied.num_set} of {applied.num_nodes} nodes have their device")
    if applied.left:
        named = ", ".join(applied.left[:_MAX_NAMED])
        print(
            f"hplacer: {len(applied.left)} nodes keep TensorFlow's placement, since no node of "
            f"the file stands for each of them alone: {named} ...",
            file=sys.stderr,
        )
    return OK
