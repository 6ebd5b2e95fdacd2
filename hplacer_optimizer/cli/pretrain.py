"""`hplacer pretrain`: long searches whose plans the training scripts will find."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from hplacer_optimizer.cli.arguments import (
    FAILED,
    OK,
    add_budget,
    add_command,
    add_host_offload,
    add_in_place,
    add_json,
    add_planner,
    add_seed,
    add_store_options,
    addresses,
    count,
    duration,
    open_store,
    output_directory,
)
from hplacer_optimizer.cli.graph_arguments import add_graph_options
from hplacer_optimizer.cli.interruption import Interruption
from hplacer_optimizer.cli.parser import advanced
from hplacer_optimizer.cli.plan_texts import comparison, speedup, training_note
from hplacer_optimizer.cli.printing import print_json, step_time
from hplacer_optimizer.cli.search_progress import SearchProgress
from hplacer_optimizer.cli.terminal_tables import print_table
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.pretraining import jobs as serial
from hplacer_optimizer.pretraining.job_fields import DEFAULT_PLANNER, JobFields
from hplacer_optimizer.pretraining.job_list import read_jobs
from hplacer_optimizer.pretraining.jobs import Job, Outcome, slug
from hplacer_optimizer.pretraining.on_ray import run_on_ray

_EXAMPLES = """\
examples:
  hplacer pretrain model.meta --machine 1cpu-2xk40 --budget 10m
  hplacer pretrain saved_model/ --signature train --machine here.yaml --steps 500 --seed 1
  hplacer pretrain --machine here.yaml --budget 1h --capture train.py --epochs 3
  hplacer pretrain model.meta --planner hierarchical --checkpoint learned/ --resume
  hplacer pretrain --list jobs.yaml --ray local
  hplacer pretrain model.meta --machine here.yaml --planner local_search --reward measure
  hplacer pretrain model.meta --machine cluster.yaml --reward measure \\
      --measure-on 10.0.0.1:2222,10.0.0.2:2222 --measure-on 10.0.1.1:2222,10.0.1.2:2222

Ctrl-C or SIGTERM ends the search, and the best plan is stored (exit code 130 or 143); a second one
ends the process. Exit code 1: no plan, or a job of the list failed.
"""


def add_commands(commands: Any) -> None:
    """Adds the command of this module to the parser."""
    text = "search for minutes or hours, and store the plan where a training script looks for it"
    parser = add_command(commands, "pretrain", _pretrain, text, _EXAMPLES)
    parser.add_argument(
        "graph",
        nargs="?",
        metavar="GRAPH",
        help="a MetaGraphDef (.meta), a GraphDef (.pb), either as text (.pbtxt) or a SavedModel "
        "directory",
    )
    add_graph_options(parser)
    _add_search_options(parser)
    parser.add_argument(
        "--list", metavar="FILE", help="many jobs from a YAML file (docs/how-to/pretraining.md)"
    )
    advanced(parser).add_argument(
        "--ray",
        metavar="ADDRESS|local",
        help="spread the jobs over a Ray cluster, or over this machine",
    )
    add_store_options(parser)
    add_json(parser)
    parser.add_argument(
        "--capture-timeout",
        type=duration,
        metavar="TIME",
        help="longest run of the script (default: 10m)",
    )
    add_in_place(parser, "a copy of it")
    parser.add_argument(
        "--capture",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT ...",
        help="instead of GRAPH: run this script (or -m module) until its training step is captured "
        "and stop it; all that follows is the script's",
    )


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    add_planner(parser, f"searches for the plan (default: {DEFAULT_PLANNER})")
    add_seed(parser, default=None)
    add_budget(parser, "longest search, as 90s, 10m or 1h30m (default: 10m)")
    add_host_offload(parser)
    group = advanced(parser)
    group.add_argument(
        "--steps",
        type=count,
        metavar="N",
        help="end after N steps, with the same plan every time",
    )
    group.add_argument(
        "--patience",
        type=count,
        metavar="N",
        help="end after N steps without a better plan",
    )
    group.add_argument(
        "--preset",
        metavar="NAME",
        help="hyperparameters of a planner that learns: default, paper or paper_tables",
    )
    group.add_argument(
        "--checkpoint", type=_directory, metavar="DIR", help="keep what was learned here"
    )
    group.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    group.add_argument(
        "--logdir", type=_directory, metavar="DIR", help="write TensorBoard event files here"
    )
    _add_measuring_options(group)


def _add_measuring_options(group: Any) -> None:
    group.add_argument(
        "--reward",
        choices=("simulate", "measure"),
        help="what scores a placement: the simulator, or the time of steps that are run, from "
        "which auto and local_search learn costs (default: simulate)",
    )
    group.add_argument(
        "--measure-on",
        action="append",
        type=addresses,
        metavar="HOST:PORT,...",
        help="measure on the TensorFlow servers of a cluster; several clusters measure at the same "
        "time (default: this machine)",
    )
    group.add_argument(
        "--measure-steps", type=count, metavar="N", help="timed steps of a placement (default: 10)"
    )
    group.add_argument(
        "--measure-limit",
        type=duration,
        metavar="TIME",
        help="a placement that takes longer has failed (default: 5m)",
    )


def _directory(text: str) -> str:
    """The type of a directory to write in, as text."""
    return str(output_directory(text))


def _pretrain(options: argparse.Namespace) -> int:
    jobs = _jobs(options)
    interruption = Interruption()
    outcomes: list[Outcome] = []
    with SearchProgress() as shown:
        try:
            for outcome in _run(options, jobs, interruption, shown):
                outcomes.append(outcome)
                for line in _lines(outcome, len(jobs) > 1):
                    shown.say(line)
        except KeyboardInterrupt:  # while a graph was loaded: nothing to keep
            if not outcomes:
                raise
            interruption.signal = 2
    outcomes.sort(key=lambda outcome: jobs.index(outcome.job))
    if options.json:
        documents = [_document(outcome) for outcome in outcomes]
        print_json(documents if options.list else documents[0])
    elif options.list:
        _print_table(outcomes)
    if interruption.signal is not None:
        skipped = len(jobs) - len(outcomes)
        left = f", {skipped} jobs were not begun" if skipped else ""
        print(f"hplacer: interrupted: the best plan was kept{left}", file=sys.stderr)
        return interruption.exit_code
    return FAILED if any(outcome.error for outcome in outcomes) else OK


def _run(
    options: argparse.Namespace,
    jobs: list[Job],
    interruption: Interruption,
    shown: SearchProgress,
) -> Iterator[Outcome]:
    store = open_store(options) if options.cache is not None else None
    numbers = iter(range(1, len(jobs) + 1))

    def begin(job: Job) -> None:
        number = f"{next(numbers)}/{len(jobs)} " if len(jobs) > 1 else ""
        shown.begin(number + job.title, job.search.budget)

    @contextmanager
    def watched() -> Iterator[None]:
        shown.begin_search()
        with interruption.watched():
            yield

    if options.ray is not None:
        yield from run_on_ray(
            jobs,
            store,
            options.ray,
            stop=interruption.stop,
            watched=watched,
            on_start=begin,
            on_progress=lambda done, running: shown.update_all(
                done, len(jobs), {jobs[number].title: at for number, at in running.items()}
            ),
        )
        return
    yield from serial.run_serially(
        jobs,
        store,
        stop=interruption.stop,
        watched=watched,
        on_start=begin,
        on_progress=shown.update,
    )


# ---- jobs ----


def _jobs(options: argparse.Namespace) -> list[Job]:
    given = _given(options)
    if options.list is None:
        if ("graphs" in given) == ("capture" in given):
            raise OptionError("give either GRAPH, or --capture script.py, or --list FILE")
        (job,) = JobFields(**given).jobs()
        learning = {
            name: value
            for name in ("preset", "checkpoint", "resume", "logdir")
            if (value := getattr(options, name))
        }
        return [replace(job, search=replace(job.search, **learning))]
    if given:
        raise OptionError(f"--list: the file says {', '.join(given)}; leave it out here")
    jobs = read_jobs(Path(options.list))
    if options.checkpoint or options.logdir or options.resume:
        jobs = _with_directories(jobs, options)
    return jobs


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a job that are on the command line, as a list names them."""
    given = {}
    for field in fields(JobFields):
        several = field.metadata["several"]
        value = getattr(options, field.name.removesuffix("s") if several else field.name)
        if value is not None and value != []:
            given[field.name] = [value] if several else value
    return given


def _with_directories(jobs: list[Job], options: argparse.Namespace) -> list[Job]:
    """Of a list: a directory for each job whose planner learns."""
    learning = [job for job in jobs if get_planner(job.search.planner).learns]
    names = [slug(job) for job in learning]
    if len(set(names)) < len(names):  # graphs of one name, in several directories
        names = [slug(job, whole_path=True) for job in learning]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"--checkpoint: two jobs of the list would share the directory {twice}")
    names_left = iter(names)

    def changed(job: Job) -> Job:
        if not get_planner(job.search.planner).learns:
            return job
        name = next(names_left)
        checkpoint, logdir = (
            str(Path(given, name)) if given else None
            for given in (options.checkpoint, options.logdir)
        )
        search = replace(job.search, checkpoint=checkpoint, resume=options.resume, logdir=logdir)
        return replace(job, search=search)

    return [changed(job) for job in jobs]


# ---- what is printed ----


def _lines(outcome: Outcome, is_one_of_many: bool) -> Iterator[str]:
    """What stays on the screen of a job that has ended; the last line has the plan and its gain."""
    plan, title = outcome.plan, outcome.job.title
    if plan is None:
        yield f"hplacer: error: {f'{title}: ' if is_one_of_many else ''}{outcome.error}"
        return
    for note in filter(None, [_effort(plan), *plan.planner_notes, training_note(plan)]):
        yield f"{title}: {note}"
    place = (
        outcome.path if outcome.stored else f"not stored: there is a plan as good, {outcome.path}"
    )
    yield f"{title}: plan {plan.summary_line()}: {place}"


def _effort(plan: Plan) -> str:
    """What the search did, and how to get its plan again; "": it does not come out the same."""
    steps = plan.budget["steps_done"]
    if plan.measured_ns is not None or not steps:
        return ""
    placements = plan.budget["placements_scored"]
    return (
        f"{steps:,} steps, {placements:,} placements in {plan.planning_s:.1f} s; "
        f"the same again: --steps {steps} --seed {plan.seed}"
    )


def _document(outcome: Outcome) -> dict[str, Any]:
    plan, job = outcome.plan, outcome.job
    return {
        "graph": job.graph.name,
        "machine": job.graph.machine,
        "planner": job.search.planner,
        "seed": job.search.seed,
        "error": outcome.error,
        "fingerprint": plan and plan.fingerprint,
        "label": plan and plan.label,
        "step_time_ns": plan and plan.step_time_ns,
        "measured_ns": plan and plan.measured_ns,
        **comparison(plan),
        "budget": plan and plan.budget,
        "planning_s": plan and plan.planning_s,
        "planner_notes": plan and plan.planner_notes,
        "stored": outcome.stored,
        "path": outcome.path,
    }


def _print_table(outcomes: list[Outcome]) -> None:
    print_table(
        ("graph", "machine", "planner", "seed", "step", "times as fast", "plan", ""),
        [
            (
                outcome.job.graph.name,
                outcome.job.graph.machine or "this machine",
                outcome.job.search.planner,
                str(outcome.job.search.seed),
                step_time(plan.step_ns, plan.feasible) if plan else "",
                speedup(plan) if plan else "",
                plan.short_fingerprint if plan else "",
                outcome.error or ("stored" if outcome.stored else "as good a plan was there"),
            )
            for outcome in outcomes
            for plan in [outcome.plan]
        ],
    )
