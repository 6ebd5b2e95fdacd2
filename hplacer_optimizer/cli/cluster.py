"""`hplacer cluster`: TensorFlow servers on this machine."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import Any

from hplacer_optimizer.cli.arguments import OK, add_command, add_json, add_output, whole
from hplacer_optimizer.cli.interruption import Interruption
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.terminal_tables import print_table
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.machines import save_machine
from hplacer_optimizer.machines.describe import describe_cluster
from hplacer_optimizer.measuring.clusters import local_cluster

_LOOK_EVERY_S = 0.5
_DESCRIBE_TIMEOUT_S = 120.0
MAX_WORKERS = 256


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "start TensorFlow servers on this machine"
    example = "hplacer cluster start --workers 2 -o cluster.yaml"
    cluster = commands.add_parser("cluster", help=text, epilog=f"example: {example}")
    actions = cluster.add_subparsers(metavar="ACTION", required=True)
    text = "start workers on cores of their own and keep them running until Ctrl-C"
    start = add_command(actions, "start", _start, text, example)
    start.add_argument(
        "--workers",
        type=whole(1, MAX_WORKERS),
        default=2,
        metavar="N",
        help="number of workers, each a task of its own (default: 2)",
    )
    add_output(start, "write a machine file (YAML) of the cluster", required=False)
    add_json(start)


def _start(options: argparse.Namespace) -> int:
    interruption = Interruption()
    with interruption.watched(), ExitStack() as running:
        with waiting("starting the workers"):
            cluster = running.enter_context(local_cluster(workers=options.workers))
            if options.output:
                _describe(cluster.addresses, options.output)
        facts = {"target": cluster.target, "addresses": cluster.addresses, "pids": cluster.pids}
        if options.json:
            print_json({**facts, "cores": cluster.cores, "device_names": cluster.device_names})
        else:
            rows = zip(cluster.addresses, cluster.cores, cluster.pids, strict=True)
            print_table(
                ("worker", "address", "cores", "pid"),
                [
                    (str(task), address, ", ".join(map(str, cores)), str(pid))
                    for task, (address, cores, pid) in enumerate(rows)
                ],
            )
            print(f"session target: {cluster.target}")
            print(f"addresses: {','.join(cluster.addresses)}")
            print("Ctrl-C stops the workers")
        sys.stdout.flush()
        while not interruption.stop.wait(_LOOK_EVERY_S):
            cluster.check()
    return OK


def _describe(addresses: tuple[str, ...], output: str) -> None:
    save_machine(describe_cluster(addresses, timeout_s=_DESCRIBE_TIMEOUT_S), output)
