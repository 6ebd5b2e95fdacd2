"""What `hplacer demo` runs: a measured gain, and a model that trains the same with plans.

First a recommender trains on two workers, which have cores of their own. Its steps are measured
under TensorFlow's placement and under a plan, as `hplacer try` does.

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
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hplacer_optimizer.bench.train_workload import Result, run_in_fresh_process
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.options import EVERY_PLAN
from hplacer_optimizer.pretraining import trial_texts
from hplacer_optimizer.pretraining.trial import Comparison, Trial, try_script
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
_SCRIPT = "hplacer_optimizer.bench.two_workers"
_PLANNING_S, _MEASURING_S = 5.0, 40.0
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
    with tempfile.TemporaryDirectory(prefix="hplacer-demo-") as directory:
        trial = Trial(
            command=["-m", _SCRIPT],
            cache=cache,
            search={"planner": "auto", "budget_s": _PLANNING_S},
            limit_s=_MEASURING_S,
            directory=Path(directory),
        )

        def on_start(what: str) -> None:
            print(f"{title}: {what}", file=sys.stderr, flush=True)

        found = try_script(trial, on_start)
    found.plans[0].report(options.output)
    if not options.json:
        _print_comparison(title, found)
        print(f"report of the plan: {options.output}")
    return {"workload": TWO_WORKERS, "output": options.output, **trial_texts.document(found)}


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
