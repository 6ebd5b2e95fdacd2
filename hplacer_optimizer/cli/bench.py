"""`hplacer bench`: planners against workloads."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hplacer_optimizer.bench import charts, tables
from hplacer_optimizer.bench import experiment as runner
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.bench.tasks import PAPER, PUBLISHED_PLANNER, modern_tasks
from hplacer_optimizer.cli import bench_cluster
from hplacer_optimizer.cli.arguments import (
    INTERRUPTED,
    OK,
    AppendPlanner,
    add_budget,
    add_command,
    add_json,
    add_output_directory,
    chosen_tasks,
    count,
    machine,
    planner,
)
from hplacer_optimizer.cli.terminal_tables import print_table
from hplacer_optimizer.planners import PLANNERS, get_planner


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    text = "measure planners, by the simulator or by real steps"
    bench = commands.add_parser("bench", help=text, epilog="example: hplacer bench paper")
    sets = bench.add_subparsers(metavar="SET", required=True)
    paper = add_command(
        sets,
        "paper",
        _paper,
        "the six tasks of the papers, on the papers' machine, beside the papers' figures",
        "hplacer bench paper --workload nmt_2 --planner etf --planner human_expert",
    )
    modern = add_command(
        sets,
        "modern",
        _modern,
        "workloads and machines of later years",
        "hplacer bench modern --workload bert_base --machine 8xa100",
    )
    for name, parser in (("paper", paper), ("modern", modern)):
        _add_options(parser, name)
    bench_cluster.add_commands(sets)


def _add_options(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--workload", action="append", metavar="TASK", help="only this task; may be repeated"
    )
    parser.add_argument(
        "--planner",
        action=AppendPlanner,
        type=planner,
        metavar="NAME",
        help="only this planner; may be repeated; `--planner help` lists them all",
    )
    parser.add_argument(
        "--machine",
        action="append",
        type=machine,
        metavar="MACHINE",
        help="another machine: a name, see `hplacer machine list`, or a file",
    )
    parser.add_argument(
        "--seeds", type=count, default=1, metavar="N", help="run seeds 0 to N-1 (default: 1)"
    )
    add_budget(parser, "of each search, as 90s, 10m or 1h30m (default: the planner's own)")
    parser.add_argument(
        "--placements",
        type=count,
        metavar="N",
        help="scored placements of each planner that learns, instead of its budget",
    )
    add_output_directory(
        parser, f"hplacer-bench-{name}", "journal, tables.md, results.json and charts"
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in the directory")
    add_json(parser)


def _paper(options: argparse.Namespace) -> int:
    tasks = PAPER
    if options.machine:  # the published figures are those of the papers' machine
        tasks = tuple(
            replace(
                task,
                name=f"{task.name}-{Path(machine).stem}",
                machine=machine,
                published_s={},
            )
            for machine in options.machine
            for task in PAPER
        )
    return _run(options, tasks, (*PLANNERS, PUBLISHED_PLANNER))


def _modern(options: argparse.Namespace) -> int:
    tasks = modern_tasks(tuple(options.machine)) if options.machine else modern_tasks()
    return _run(options, tasks, tuple(PLANNERS))


def _run(options: argparse.Namespace, tasks: Any, all_planners: Sequence[str]) -> int:
    planners = tuple(options.planner or all_planners)
    for name in planners:
        get_planner(name)  # an unknown name is an error now, not after the first graph
    experiment = runner.Experiment(
        tasks=chosen_tasks(tasks, options.workload),
        planners=planners,
        seeds=range(options.seeds),
        budget_s=options.budget,
        placements=options.placements,
    )
    interrupted = False
    with _progress(experiment.num_cells) as (on_start, on_cell):
        results = runner.Results()
        try:
            runner.run(
                experiment,
                options.output,
                results,
                resume=options.resume,
                on_start=on_start,
                on_cell=on_cell,
            )
        except KeyboardInterrupt:
            interrupted = True
    _report(experiment, results, options)
    return INTERRUPTED if interrupted else OK


@contextmanager
def _progress(num_cells: int) -> Iterator[Any]:
    """Two callbacks that move a bar on stderr: what begins, and a finished cell."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=num_cells)
        yield (
            lambda what: progress.update(bar, description=what),
            lambda cell: progress.advance(bar),
        )


def _report(experiment: Any, results: Any, options: argparse.Namespace) -> None:
    """Prints and writes what was found, also of a run that was interrupted."""
    from rich.console import Console

    document = tables.document(experiment, results)
    found = tables.tables(experiment, results)
    if options.json:
        print(result_json(document))
    else:
        for table in found:
            print(table.title)
            print_table(table.columns, table.rows)
    directory = options.output
    (directory / "results.json").write_text(result_json(document) + "\n")
    (directory / "tables.md").write_text(tables.markdown(experiment, results))
    for task in experiment.tasks:
        if task.name in results.facts:
            charts.draw(experiment, results, task, directory / f"{task.name}.png")
    Console(stderr=True).print(f"tables and charts are in {directory}", highlight=False)
