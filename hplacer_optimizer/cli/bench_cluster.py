"""`hplacer bench predict` and `hplacer bench cluster`: real steps on two workers, started here."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hplacer_optimizer.bench import cluster, prediction
from hplacer_optimizer.bench.cluster_tasks import DEFAULT_TASKS, TASKS
from hplacer_optimizer.bench.measured import calibrated_cluster
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.cli.arguments import (
    INTERRUPTED,
    OK,
    add_budget,
    add_command,
    add_json,
    add_output_directory,
    add_time,
    chosen_tasks,
    count,
    duration,
)
from hplacer_optimizer.cli.terminal_tables import print_table
from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.support.formats import format_ns


def add_commands(sets: Any) -> None:
    """Adds the commands of this module to the parser of `hplacer bench`."""
    predict = add_command(
        sets,
        "predict",
        _predict,
        "predicted against measured step times of many placements, on two workers that are started "
        "here and calibrated first",
        "hplacer bench predict --workload two_tower -o prediction",
    )
    compare = add_command(
        sets,
        "cluster",
        _cluster,
        "measured step times on two workers that are started here: TensorFlow's placement, by "
        "hand, planned, and refined by measured steps",
        "hplacer bench cluster --refine 2m -o cluster",
    )
    for name, parser in (("predict", predict), ("cluster", compare)):
        parser.add_argument(
            "--workload",
            action="append",
            metavar="TASK",
            help=f"may be repeated: {', '.join(task.name for task in TASKS)} "
            f"(default: the {len(DEFAULT_TASKS)} that the model was not made with)",
        )
        add_output_directory(parser, f"hplacer-bench-{name}", "where results go")
        add_json(parser)
    predict.add_argument(
        "--rounds",
        type=count,
        default=2,
        metavar="N",
        help="how often each placement has its turn of 5 steps (default: %(default)s)",
    )
    add_budget(compare, "for the planner that simulates (default: 20s)", "20s")
    compare.add_argument(
        "--refine",
        type=duration,
        default="60s",
        metavar="TIME",
        help="time for the search by measured steps (default: 60s)",
    )
    text = "longest time to measure a graph; less if speedups are clear (default: 60s)"
    add_time(compare, text, "60s")
    compare.add_argument(
        "--learn",
        type=duration,
        metavar="TIME",
        help="also search by measured steps with hierarchical, for this long",
    )


def _predict(options: argparse.Namespace) -> int:
    with _bench(options) as (bench, tasks):
        results = prediction.predict(bench, tasks, options.rounds)
        file = options.output / "prediction.json"
        found, document, code = _kept(results, prediction.document, bench.notes, file)
        if not found:
            return code
        prediction.draw(found, options.output / "prediction.png")
    if options.json:
        print(result_json(document))
        return code
    print_table(
        ("task", "placement", "predicted", "measured", "spread", "transfers", "error"),
        [
            (
                p.task,
                p.placement,
                format_ns(p.predicted_ns),
                format_ns(p.step_time_ns),
                format_ns(p.spread_ns),
                str(p.transfers),
                f"{p.error:+.0%}",
            )
            for p in found
        ],
    )
    for name, told in {"all": document["all"], **document["tasks"]}.items():
        print(
            f"{name}: {told['placements']} placements, rank correlation "
            f"{told['rank_correlation']:.2f}, median error {told['median_error']:.0%}"
            + "".join(
                f", {error:.0%} without {part}"
                for part, error in told["median_error_without"].items()
            )
            + f"; calibrated again: {told['again']['rank_correlation']:.2f}, "
            f"{told['again']['median_error']:.0%}, {told['again']['apart']:.0%} apart"
        )
    return code


def _cluster(options: argparse.Namespace) -> int:
    with _bench(options) as (bench, tasks):
        results = cluster.compare(
            bench,
            tasks,
            limit_s=options.time,
            planning_s=options.budget,
            refining_s=options.refine,
            learning_s=options.learn,
        )
        file = options.output / "cluster.json"
        found, document, code = _kept(results, cluster.document, bench.notes, file)
        if not found:
            return code
    if options.json:
        print(result_json(document))
        return code
    print_table(
        ("task", "placement", "measured", "spread", "predicted", "times as fast", "95%"),
        [
            (
                row.task,
                row.placement,
                format_ns(row.step_time_ns),
                format_ns(row.spread_ns),
                format_ns(row.predicted_ns),
                f"{row.speedup:.2f}",
                f"{row.low:.2f} to {row.high:.2f}",
            )
            for row in found
        ],
    )
    return code


def _kept(
    results: Iterator[list[Any]],
    document_of: Callable[[list[Any], list[str]], dict[str, Any]],
    notes: list[str],
    file: Path,
) -> tuple[list[Any], dict[str, Any], int]:
    """The rows of all tasks, or after Ctrl-C of those that were done; as JSON; the exit code.

    They are in the file after each task: neither an error nor a signal later on loses them.
    """
    found: list[Any] = []
    document: dict[str, Any] = {}
    try:
        for rows in results:
            found += rows
            document = document_of(found, notes)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(result_json(document) + "\n")
            print(f"hplacer: {rows[0].task} is in {file}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        return found, document, INTERRUPTED
    return found, document, OK


@contextmanager
def _bench(options: argparse.Namespace) -> Iterator[Any]:
    """A calibrated cluster and the chosen tasks, with a line on stderr of what goes on."""
    os.environ["HPLACER_DISABLE"] = "1"  # what is measured are placements, not plans for them
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    LOGGER.setLevel("WARNING")  # what is assumed of a graph stands in the results
    from rich.console import Console

    tasks = chosen_tasks(TASKS, options.workload) if options.workload else DEFAULT_TASKS
    console = Console(file=sys.stderr)
    with (
        console.status("starting two workers") as status,
        calibrated_cluster(status.update) as bench,
    ):
        yield bench, tasks
