"""`hplacer try` and `hplacer measure`: a plan beside TensorFlow's placement, in real steps."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.cli.arguments import (
    OK,
    add_budget,
    add_cluster_option,
    add_command,
    add_emulate,
    add_host_offload,
    add_in_place,
    add_json,
    add_planner,
    add_seed,
    add_store_options,
    add_time,
    count,
    open_store,
)
from hplacer_optimizer.cli.emulating import emulating
from hplacer_optimizer.cli.graph_arguments import add_graph_options, graph_options
from hplacer_optimizer.cli.printing import print_json
from hplacer_optimizer.cli.stored_plans import add_plan_arguments, find_plan, is_file
from hplacer_optimizer.cli.terminal_tables import print_table
from hplacer_optimizer.cli.waiting import waiting
from hplacer_optimizer.errors import HPlacerError, OptionError
from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.verdict import FASTER
from hplacer_optimizer.pretraining.trial import (
    KEPT_REAL,
    UNCERTAIN,
    Comparison,
    Trial,
    compare_steps,
    try_script,
)
from hplacer_optimizer.pretraining.trial_texts import (
    columns,
    document,
    facts,
    rows,
    verdict_sentence,
)
from hplacer_optimizer.scripts.observed_run import script_name
from hplacer_optimizer.support.switched_off import is_switched_off

DOES_NOT_PAY, NOT_CERTAIN = 3, 4
_TERMINATED = 143

_TIME = "start no new turn after this long; it ends sooner if the difference is clear (default: 5m)"
_CODES = """\
Exit codes: 0 the plan pays; 3 it does not; 4 that is not certain yet; 1 the steps could not be
measured, for the reason on stderr; 2 wrong usage; 130 after Ctrl-C, which ends what was started.
"""
_TRY_EXAMPLES = f"""\
example: hplacer try train.py --epochs 3

more:
  hplacer try --time 10m -m package.train --config small.yaml
  hplacer try --planner local_search --budget 2m train.py      (a new plan, also if one is stored)
  hplacer try --emulate 8xa100 train.py    (on GPUs that are not here, in virtual time)
  hplacer try --in-place train.py          (runs in the working directory itself, not in a copy)

Options of `hplacer try` go before the script; all that follows the script is its own. The script
has an empty standard input. What it prints is shown only if it fails, and then the end of it.

{_CODES}"""
_MEASURE_EXAMPLES = f"""\
example: hplacer measure 3f9c2b1a --graph model.meta

more:
  hplacer measure model.hplan --graph model.meta --time 10m
  hplacer measure model.hplan --graph model.meta --emulate 8xa100
  hplacer measure 3f9c2b1a --graph model.meta --machine cluster.yaml --cluster HOST:PORT,HOST:PORT

{_CODES}"""


def add_commands(commands: Any) -> None:
    """Adds the commands of this module to the parser."""
    text = "measure what a plan does for a training script, beside TensorFlow's own placement"
    trying = add_command(commands, "try", _try, text, _TRY_EXAMPLES)
    trying.add_argument(
        "--steps",
        type=count,
        metavar="N",
        help="time N steps of each start, with the plan and without it in turn (default: calls of "
        "one function take turns within one start; else as many steps of each start as take two "
        "seconds, at least 30, or ten seconds if that is less)",
    )
    add_time(trying, _TIME, "5m")
    add_emulate(trying, "give the script the GPUs of this machine")
    add_in_place(trying, "a copy of it for each start")
    add_planner(trying, "plan anew, with this planner")
    add_budget(trying, "plan anew, for at most this long: 90s, 10m or 1h30m")
    trying.add_argument("--cost-table", metavar="FILE", help="plan anew, with measured op costs")
    add_seed(trying, default=None)
    add_host_offload(trying)
    add_store_options(trying)
    add_json(trying)
    trying.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE ...",
        help="run a module as `python -m` does; all that follows is for the module",
    )
    trying.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT ...",
        help="the script and its arguments",
    )

    text = "measure a plan of a graph beside TensorFlow's own placement, without a script"
    measure = add_command(commands, "measure", _measure, text, _MEASURE_EXAMPLES)
    add_plan_arguments(measure, "plan")
    measure.add_argument(
        "--graph",
        required=True,
        metavar="GRAPH",
        help="the graph of the plan: a MetaGraphDef (.meta), GraphDef (.pb), SavedModel directory",
    )
    add_graph_options(measure)
    add_cluster_option(measure)
    add_emulate(measure, "measure on the GPUs of this machine")
    add_time(measure, _TIME, "5m")
    add_json(measure)


def _try(options: argparse.Namespace) -> int:
    command = ["-m", *options.module] if options.module else options.script
    if not command or command == ["-m"]:
        raise OptionError("name a script, or a module with -m")
    if is_switched_off():
        raise HPlacerError("HPLACER_DISABLE switches the optimizer off: unset it")
    search = {
        name: value
        for name in ("planner", "seed", "host_offload")
        if (value := getattr(options, name)) is not None
    }
    if options.cost_table is not None:
        search["cost_table"] = os.path.abspath(options.cost_table)
    if options.budget is not None:  # the process may wait for as long as it plans
        search |= {"budget_s": options.budget, "timeout_s": None}
    trial = Trial(
        command=command,
        cache=options.cache,
        search=search,
        options={"trust_shared": True} if options.trust_shared else {},
        steps=options.steps,
        limit_s=options.time,
        in_place=bool(options.in_place),
    )
    with emulating(options.emulate), _told(script_name(command)) as on_start:
        return _tell(try_script(trial, on_start), options)


def _measure(options: argparse.Namespace) -> int:
    if options.emulate is not None:
        if options.machine is not None:
            raise OptionError("--emulate names the machine: leave out --machine")
        if options.cluster is not None:
            raise OptionError("the devices of --cluster are not emulated: leave out --emulate")
        options.machine = options.emulate
    os.environ["HPLACER_DISABLE"] = "1"  # what is measured is the placement, not a plan for it
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    plan = find_plan(options, options.plan)
    with waiting(f"loading {options.graph}"):
        loaded = load_graph(options.graph, keep_graph=True, **graph_options(options))
    # Only-allocate is enough where nobody looks at values.
    with emulating(options.emulate, compute=False), _told(options.graph) as on_start:
        found = compare_steps(
            plan,
            loaded,
            name=options.graph,
            devices=options.cluster,
            limit_s=options.time,
            on_start=on_start,
        )
        _keep_verdict(found, plan, options)
    return _tell(found, options)


def _keep_verdict(found: Comparison, plan: Plan, options: argparse.Namespace) -> None:
    """In the plan's file or the store; `plan`: as it was before."""
    if found.verdict is None:
        return
    (judged,) = found.plans
    if not found.verdict.replaces(plan.verdict):
        found.notes.append(KEPT_REAL)
    elif is_file(options.plan):
        judged.save(options.plan)
        found.stored.append(options.plan)
    elif (store := open_store(options)).put(judged):
        found.stored.append(store.path(judged.fingerprint))


@contextmanager
def _told(what: str) -> Iterator[Any]:
    """Lines on stderr of what begins; SIGTERM ends what was started, as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)

    LOGGER.setLevel("WARNING")
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield lambda begins: print(f"hplacer: {what}: {begins}", file=sys.stderr, flush=True)
    except (KeyboardInterrupt, SystemExit):
        print("hplacer: interrupted: what was started has ended, nothing is kept", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- what is printed ----


def _tell(found: Comparison, options: argparse.Namespace) -> int:
    if options.json:
        print_json(document(found))
    else:
        _print(found)
    if found.outcome == FASTER:
        return OK
    return NOT_CERTAIN if found.outcome == UNCERTAIN else DOES_NOT_PAY


def _print(found: Comparison) -> None:
    print_table(columns(found), rows(found))
    for line in facts(found):
        print(line)
    print(verdict_sentence(found))
