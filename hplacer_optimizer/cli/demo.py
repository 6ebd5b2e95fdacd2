"""`hplacer demo`: a gain on two workers, and a model that trains the same with plans."""

from __future__ import annotations

from typing import Any

from hplacer_optimizer.bench import demo
from hplacer_optimizer.cli.arguments import add_command, add_json, count, output_file

_EXAMPLES = """\
example: hplacer demo --workload keras --steps 10

two_workers  measures the steps of a recommender on two workers, with TensorFlow's own placement
             and with a plan
keras        trains a classifier on two logical CPU devices: without the optimizer, with it
             planning, and with it loading the plan

Exit code 1: the losses differ, nothing ran on the second device, or the plan was not found again.
"""


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "measure a gain on two workers, and train a model with and without the optimizer"
    parser = add_command(commands, "demo", demo.run, text, _EXAMPLES)
    parser.add_argument(
        "--workload",
        choices=(*demo.NAMES, "all"),
        default="all",
        metavar="NAME",
        help=f"{', '.join(demo.NAMES)} or all (default: all)",
    )
    parser.add_argument(
        "--steps", type=count, default=5, metavar="N", help="steps of each training (default: 5)"
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="keep the plans here; plans that lie there already make the second run a hit "
        "(default: a temporary directory)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=output_file,
        default="hplacer-demo.html",
        metavar="FILE",
        help="write the report of the plan for two workers here (default: %(default)s)",
    )
    add_json(parser)
