"""What `hplacer demo` runs: a measured gain, and a model that trains the same with plans.

First the training step of a recommender runs on two workers, which have cores of their own. It is
measured under TensorFlow's placement and under a plan, as `hplacer measure` does.

Then a classifier of digits trains on two CPU devices of one process:

    without   TensorFlow alone
    miss      with the optimizer and an empty plan store: it plans
    hit       the same again: it loads the plan

Every run is a process of its own. The devices shown are those of the partition graphs that
TensorFlow executed. Devices of one process share its cores, so no plan is faster than TensorFlow's
placement here: a random one takes effect, to show that training stays what it is.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hplacer_optimizer.bench.train_workload import Result, run_in_fresh_process
from hplacer_optimizer.capture.loading import load_graph
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.machines.describe import describe_cluster
from hplacer_optimizer.measuring.clusters import local_cluster
from hplacer_optimizer.options import EVERY_PLAN
from hplacer_optimizer.planners import Budget
from hplacer_optimizer.plans.making import Search, plan_loaded
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.pretraining import trial_texts
from hplacer_optimizer.pretraining.trial import Comparison, compare_steps
from hplacer_optimizer.workloads.graphs import write_graph
from hplacer_optimizer.workloads.setup import Setup

if TYPE_CHECKING:
    from rich.table import Table

OK, FAILED = 0, 1
TWO_WORKERS = "two_workers"
RUNS = ("without", "miss", "hit")
KERAS = "keras"
NAMES = (TWO_WORKERS, KERAS)
_NEEDS = {TWO_WORKERS: ("tensorflow",), KERAS: ("tensorflow", "sklearn")}
_TITLE = "Keras classifier of digits, model.fit"
_SIZES = {"batch_size": 256, "features": 1, "rows": 2_000, "width": 64, "hidden": 1024, "layers": 4}
_PLANNING_S, _MEASURING_S = 4.0, 15.0
_CLUSTER_S = 60.0  # that the workers may take to tell their devices
_MOST_LOG = 2000  # characters
_TOLERANCE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process; `history` is the optimizer's report on every graph it handled."""

    losses: list[float]
    ops_per_device: dict[str, int]
    history: list[dict[str, Any]]
    wall_s: float


def run(options: argparse.Namespace) -> int:
    """Runs the demo; 0: as promised, 1: not.

    `options` has workload, steps, cache, output and json, as the command line has them.
    """
    names = NAMES if options.workload == "all" else (options.workload,)
    for name in names:
        _check_packages(name)
    os.environ["HPLACER_DISABLE"] = "1"  # in this process, where steps are built and measured
    documents: list[dict[str, Any]] = []
    problems: list[str] = []
    with _cache(options.cache) as cache:
        for name in names:
            if name == TWO_WORKERS:
                documents.append(_measure(cache, options))
                continue
            runs = _train(options.steps, cache)
            problems = _problems(runs)
            documents.append({"workload": name, "problems": problems, "runs": _document(runs)})
            if not options.json:
                _print_report(runs)
                if not problems:
                    print("Same losses, both devices in use, and the second start loaded the plan.")
    if options.json:
        print(json.dumps({"ok": not problems, "workloads": documents}, indent=2))
    for problem in problems:
        print(f"hplacer: error: {KERAS}: {problem}", file=sys.stderr)
    return FAILED if problems else OK


def _check_packages(name: str) -> None:
    missing = [package for package in _NEEDS[name] if importlib.util.find_spec(package) is None]
    if missing:
        raise HPlacerError(
            f"the demo {name} needs {', '.join(missing)}: pip install 'hplacer-optimizer[cpu,demo]'"
        )


def _cache(directory: str | None) -> contextlib.AbstractContextManager[str]:
    if directory is not None:
        return contextlib.nullcontext(directory)
    return tempfile.TemporaryDirectory(prefix="hplacer-demo-")


# ---- running ----


def _train(steps: int, cache: str) -> dict[str, Run]:
    runs = {}
    for number, label in enumerate(RUNS, 1):
        options = None
        if label != "without":
            options = {"cache": cache, "planner": "random", "min_gain": EVERY_PLAN}
        with _progress(f"{_TITLE}: run {number} of {len(RUNS)}, {label}"):
            start_s = time.perf_counter()
            result = run_in_fresh_process("keras_digits", Setup(steps=steps, options=options))
            runs[label] = _run(result, time.perf_counter() - start_s)
    return runs


def _measure(cache: str, options: argparse.Namespace) -> dict[str, Any]:
    """Steps on two workers, with TensorFlow's placement and with a plan; tells what they are."""
    title = "Two-tower recommender on two workers"
    with _told(title) as on_start:
        found, planned_now = _compare(cache, on_start)
    found.plans[0].report(options.output)
    if not options.json:
        _print_comparison(title, found)
        print(f"report of the plan: {options.output}")
    told = trial_texts.document(replace(found, planned_now=planned_now))
    return {"workload": TWO_WORKERS, "output": options.output, **told}


def _compare(cache: str, on_start: Callable[[str], None]) -> tuple[Comparison, bool]:
    """What was measured, and whether the plan was made for it."""
    on_start("two workers start, with a core each")
    with (
        tempfile.TemporaryDirectory(prefix="hplacer-demo-") as directory,
        local_cluster(workers=2) as cluster,
    ):
        on_start("its training step is built and captured")
        graph = Path(directory, "two_tower.meta")
        write_graph("two_tower", graph, pin_tables=False, **_SIZES)
        machine = describe_cluster(cluster.addresses, timeout_s=_CLUSTER_S)
        loaded = load_graph(graph, machine=machine, targets=["train_op"], keep_graph=True)
        store = PlanStore(cache)
        plan = store.get(loaded.captured.fingerprint)
        planned_now = plan is None
        if plan is None:
            on_start(f"it is planned, for {_PLANNING_S:g} s")
            search = Search(planner="auto", budget=Budget(seconds=_PLANNING_S))
            plan, _ = plan_loaded(loaded, search)
        found = compare_steps(
            plan,
            loaded,
            name="two_tower",
            devices=cluster.addresses,
            limit_s=_MEASURING_S,
            on_start=lambda what: on_start(f"its steps are measured {what}"),
        )
    store.put(found.plans[0])
    return found, planned_now


@contextlib.contextmanager
def _told(title: str) -> Iterator[Callable[[str], None]]:
    """A function that tells on stderr what begins; what TensorFlow logs is shown after an error."""
    with tempfile.TemporaryFile() as log, os.fdopen(os.dup(2), "w") as people:
        os.dup2(log.fileno(), 2)
        try:
            yield lambda what: print(f"{title}: {what}", file=people, flush=True)
        except Exception:
            log.seek(0)
            people.write(log.read()[-_MOST_LOG:].decode(errors="replace"))
            raise
        finally:
            os.dup2(people.fileno(), 2)


@contextlib.contextmanager
def _progress(text: str) -> Iterator[None]:
    """A spinner on a terminal, else one line; on stderr, where JSON does not go."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        print(text, file=sys.stderr, flush=True)
        yield


def _run(result: Result, wall_s: float) -> Run:
    devices = Counter(_short(node.device) for node in result.graphs[0])
    return Run(
        losses=result.losses,
        ops_per_device=dict(sorted(devices.items())),
        history=result.history,
        wall_s=wall_s,
    )


def _short(device: str) -> str:
    """`/job:localhost/replica:0/task:0/device:CPU:1` -> `CPU:1`"""
    return device.rpartition("device:")[2]


def _problems(runs: dict[str, Run]) -> list[str]:
    """What the demo promises and these runs did not keep."""
    found = []
    for label in ("miss", "hit"):
        run = runs[label]
        for step, (alone, planned) in enumerate(
            zip(runs["without"].losses, run.losses, strict=True), 1
        ):
            if not math.isclose(alone, planned, rel_tol=_TOLERANCE):
                found.append(
                    f"the loss of step {step} is {planned!r} in the {label} run, "
                    f"{alone!r} without the optimizer"
                )
                break
        if not run.ops_per_device.get("CPU:1"):
            found.append(f"the {label} run placed no op on the second device")
    if all(entry["outcome"] != "loaded" for entry in runs["hit"].history):
        found.append("the hit run loaded no plan")
    for entry in runs["hit"].history:
        if entry["outcome"] not in ("loaded", "skipped"):  # skipped: nothing in it can move
            reason = f": {entry['reason']}" if entry["reason"] else ""
            found.append(f"the hit run did not load the plan of {entry['graph']}{reason}")
    return found


# ---- printing ----


def _document(runs: dict[str, Run]) -> dict[str, Any]:
    return {label: vars(run) for label, run in runs.items()}


def _print_report(runs: dict[str, Run]) -> None:
    from rich.console import Console

    console = Console()
    console.print(_runs_table(runs))
    console.print(_losses_table(runs))


def _print_comparison(title: str, found: Comparison) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, title=title, title_justify="left")
    for column in trial_texts.columns(found):
        table.add_column(column)
    for row in trial_texts.rows(found):
        table.add_row(*map(Text, row))
    if table.row_count:
        Console().print(table)
    for line in trial_texts.facts(found):
        print(line)
    print(trial_texts.verdict_sentence(found))


def _runs_table(runs: dict[str, Run]) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, title=_TITLE, title_justify="left")
    for column in ("run", "plan", "ops per device", "planning", "fingerprint"):
        table.add_column(column)
    for label, run in runs.items():
        planning, fingerprint = "", ""
        if run.history:
            step = max(run.history, key=lambda entry: entry["ops"])
            planning = f"{step['planning_s']:.2f} s" if step["outcome"] == "planned" else "none"
            fingerprint = step["fingerprint"][:12]
        ops = ", ".join(f"{device} {count}" for device, count in run.ops_per_device.items())
        counts = Counter(entry["outcome"] for entry in run.history)
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        table.add_row(*map(Text, (label, outcomes, ops, planning, fingerprint)))
    return table


def _losses_table(runs: dict[str, Run]) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE)
    table.add_column("step", justify="right")
    for label in runs:
        table.add_column(f"loss, {label}", justify="right")
    losses = zip(*(run.losses for run in runs.values()), strict=True)
    for step, row in enumerate(losses, 1):
        table.add_row(str(step), *(f"{loss:.7f}" for loss in row))
    return table
