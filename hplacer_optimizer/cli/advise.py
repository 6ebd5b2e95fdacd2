"""`hplacer advise`: which way of using these devices suits a model, before one rents them."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from hplacer_optimizer.cli.arguments import (
    FAILED,
    MORE,
    OK,
    add_all,
    add_budget,
    add_command,
    add_in_place,
    add_json,
    add_output,
    add_seed,
    count,
    machine,
)
from hplacer_optimizer.cli.graph_arguments import add_step_options, step_options
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.search_progress import SearchProgress
from hplacer_optimizer.cli.terminal_tables import print_line, print_table, without_empty_columns
from hplacer_optimizer.inspection.advice.advising import SECONDS, Advice, MachineAdvice, advise
from hplacer_optimizer.inspection.advice.ways import Way
from hplacer_optimizer.problem.cost_sources import in_words
from hplacer_optimizer.problem.memory import MemoryRange
from hplacer_optimizer.support.formats import format_bytes, format_ns

_EXAMPLE = """\
example: hplacer advise --workload nmt_4 --machine 8xa100

more:
  hplacer advise model.meta --machine 8xv100 --machine 8xa100 --batch-size 32,64,128
  hplacer advise train.py --machine 8xa100 --script-args='--epochs 1'

A script runs here until its first training step has ended, in a copy of the working directory.
Nothing runs on the machines: steps and memory are simulated. The exit code is 1 where nothing fits
on any of the machines.
"""
_COLUMNS = ("way", "step", "samples/s", "needs", "free", "bound by", "step is")


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "compare one device, a plan over several and data parallelism for a model"
    parser = add_command(commands, "advise", _advise, text, _EXAMPLE)
    parser.add_argument(
        "source",
        nargs="?",
        metavar="GRAPH|SCRIPT",
        help="a graph as for `hplacer plan`, or a training script (*.py)",
    )
    parser.add_argument(
        "--workload",
        metavar="NAME",
        help="in place of a graph: a shipped workload, as nmt_4, resnet_50, bert_base or "
        "nmt:layers=4,hidden=512",
    )
    parser.add_argument(
        "--machine",
        action="append",
        type=machine,
        dest="machines",
        metavar="MACHINE",
        help="a machine's name, see `hplacer machine list`, or a YAML file; repeatable (default: "
        "this machine)",
    )
    parser.add_argument(
        "--batch-size",
        type=_batch_sizes,
        metavar="N,...",
        help="samples of a step, all devices together, or several to compare (default: the "
        "graph's own)",
    )
    parser.add_argument(
        "--script-args", type=shlex.split, metavar="ARGS", help="arguments of the script, in quotes"
    )
    add_in_place(parser, "a copy of it")
    parser.add_argument(
        "--cost-table", metavar="FILE", help="a file of measured op costs, from `hplacer calibrate`"
    )
    add_budget(parser, f"time of each search for a plan (default: {SECONDS:g}s)")
    add_seed(parser)
    add_step_options(parser, batch_size=False)
    add_output(parser, "write a picture: .svg, .png or .pdf", required=False)
    add_all(parser)
    add_json(parser)


def _batch_sizes(text: str) -> list[int]:
    return [count(size.strip()) for size in text.split(",")]


def _advise(options: argparse.Namespace) -> int:
    with SearchProgress() as shown:
        found = advise(
            options.source,
            workload=options.workload,
            machine=options.machines,
            cost_table=options.cost_table,
            budget_s=options.budget or SECONDS,
            seed=options.seed,
            script_args=options.script_args or (),
            in_place=bool(options.in_place),
            on_start=shown.show,
            **step_options(options) | {"batch_size": options.batch_size},
        )
    if options.output:
        found.picture(options.output)
    if options.json:
        print_json(document(found) | ({"output": options.output} if options.output else {}))
    else:
        for one in found.machines:
            _print(one, everything=options.all)
        if not options.all:
            print(MORE)
    return OK if any(one.best for one in found.machines) else FAILED


def document(found: Advice) -> dict[str, Any]:
    """For JSON: bytes, nanoseconds, and samples per second."""
    return {"name": found.name, "machines": [_machine(one) for one in found.machines]}


def _machine(found: MachineAdvice) -> dict[str, Any]:
    best = found.best
    document = asdict(replace(found, placement=None)) | {
        "best": best.kind if best else None,
        "ways": [_way(way) for way in found.ways],
    }
    del document["placement"]  # `hplacer plan` writes plans
    return document


def _way(way: Way) -> dict[str, Any]:
    memory = way.memory
    more = {"free_bytes": memory.free_bytes, "is_tight": memory.is_tight} if memory else {}
    return asdict(way) | {
        "feasible": way.feasible,
        "samples_per_s": way.samples_per_s,
        "memory": asdict(memory) | more if memory else None,
    }


# ---- for people ----


def _print(found: MachineAdvice, *, everything: bool) -> None:
    print_line(f"{found.title}:")
    columns, rows = without_empty_columns(_COLUMNS, [_row(way, found) for way in found.ways])
    print_table(columns, rows)
    print_line(
        f"{in_words(found.cost_source)} costs: a step is right within a factor of "
        f"{1 + found.error:.2f}, by the error of earlier predictions"
    )
    print_line(found.verdict)
    print_line(found.change)
    if everything:
        for assumption in found.assumptions:
            print_line(f"assumed: {assumption}")
    print()


def _row(way: Way, found: MachineAdvice) -> Sequence[str]:
    best = " *" if way is found.best else ""
    if way.step_time_ns is None:
        return (way.name, "cannot run", "", "", "", way.infeasible_because, "")
    rate = way.samples_per_s
    step = f"{format_ns(way.step_time_ns)}{best}" if way.feasible else "does not fit"
    return (
        way.name,
        step,
        f"{rate:,.4g}" if rate is not None else "",
        _needs(way.memory),
        _free(way.memory),
        way.bound_by,
        way.origin,
    )


def _needs(memory: MemoryRange | None) -> str:
    if memory is None:
        return ""
    return f"{format_bytes(memory.least_bytes)} to {format_bytes(memory.most_bytes)}"


def _free(memory: MemoryRange | None) -> str:
    if memory is None:
        return ""
    if not memory.fits:
        return f"lacks {format_bytes(-memory.free_bytes)} on {memory.device}"
    tight = ", tight" if memory.is_tight else ""
    return f"{format_bytes(memory.free_bytes)} on {memory.device}{tight}"
