"""Do trials find out what pays, and what do they cost? Small graphs as functions on two workers.

Each graph of bench/small_graphs.py that can be a function is trained in processes of its own, which
are worker 0. Worker 1 is a server with another core.

    alone     without the optimizer
    plan      with the plan that a search at the first start finds, whatever is predicted
    trial     on_miss="trial", from an empty store, for --train-s
    no drop   the same, but a plan whose first steps take twice as long is not dropped early
    fixed     the same, with 100 timed steps of each side
    search    the same with the search alone: no plan is tried. What it costs is how many steps less
              there are than without the optimizer in as long a run

"alone" and "plan" take turns. A plan pays if it is at least 5% faster there, and harms if it is
in effect in the end and its 95% interval there lies below 1/1.01. The guard is what
`decide` says of the plan without a trial. What the file of --output has is not run again: what is
missing of a graph is added.

    python -m benchmarks.trial --graphs "two towers" "many tiny ops" --train-s 60
    python -m benchmarks.trial --all --train-s 180 --output docs/results/trials
    python -m benchmarks.trial --all --costs measured --train-s 40 --kinds trial search \
        --output docs/results/trials
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hplacer_optimizer.bench.measured import calibrated_cluster
from hplacer_optimizer.bench.small_graphs import GRAPHS, write
from hplacer_optimizer.measuring.calibration.calibrate import calibrate_graph
from hplacer_optimizer.measuring.turns import interval
from hplacer_optimizer.plans.guard import APPLY, Here, decide
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.support import child_process
from testbed.told_rows import keep, kept, tell, told_by

ALONE, PLAN = "alone", "plan"
TRIALS: dict[str, dict[str, Any]] = {
    "trial": {},
    "no drop": {"drops_early": False},
    "fixed": {"fixed_steps": 100},
}
SEARCH = "search"  # alone
KINDS = [*TRIALS, SEARCH]
ESTIMATED, MEASURED = "estimated", "measured"  # costs
PAYS, HARMS = 1.05, 1 / 1.01
# Without the three that build a session's graph of their own.
FUNCTIONS = [name for name, build in GRAPHS.items() if callable(build)]
DEFAULT_GRAPHS = ["two towers", "few huge products", "many tiny ops"]
_LAST_SHARE = 0.2  # of a training, whose steps tell what is in effect in the end
_WARMUP = 3


# ---- processes ----


def serve(addresses: Sequence[str]) -> None:
    """Worker 1, until it is killed."""
    import tensorflow as tf

    os.sched_setaffinity(0, {_cores()[-1]})
    tf.distribute.Server({"worker": list(addresses)}, job_name="worker", task_index=1).join()


def train(name: str, addresses: Sequence[str], train_s: float) -> None:
    """Worker 0, which trains the graph for some time and prints what it saw as JSON."""
    import tensorflow as tf

    import hplacer_optimizer as hp
    from hplacer_optimizer.plugin import service

    os.sched_setaffinity(0, {_cores()[0]})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(4)
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec({"worker": list(addresses)}), job_name="worker", task_index=0
    )
    step = _function(name)
    begin_s = time.perf_counter()
    ends_s = [begin_s]
    while ends_s[-1] - begin_s < train_s or len(ends_s) < 2 * _WARMUP + 3:
        step()
        ends_s.append(time.perf_counter())
    lasts_s = [after - before for before, after in itertools.pairwise(ends_s)]
    last = max(3, int(_LAST_SHARE * len(lasts_s)))
    trials = service._service.trials if service._service else None
    found = {
        "first_s": lasts_s[0],
        "steps": len(lasts_s),
        "step_s": statistics.median(lasts_s[_WARMUP:]),
        "last_step_s": statistics.median(lasts_s[-last:]),
        "charged_s": trials._budget.spent_s if trials else 0.0,
        "history": [[one.outcome, one.reason] for one in hp.history()] if trials else [],
    }
    tell(found)


def _function(name: str) -> Callable[[], Any]:
    """The training step of a graph, as a function whose variables are on worker 0."""
    import tensorflow as tf

    build = GRAPHS[name]
    assert callable(build)
    v1 = tf.compat.v1

    def step() -> Any:
        loss = build()
        train_op = v1.train.GradientDescentOptimizer(1e-3).minimize(loss)
        with tf.control_dependencies([train_op]):
            return tf.identity(loss)

    wrapped: Callable[[], Any] = v1.wrap_function(step, [])
    return wrapped


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@contextmanager
def worker() -> Iterator[list[str]]:
    """Worker 1; the addresses of both."""
    ports = []
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    for one in sockets:
        ports.append(one.getsockname()[1])
        one.close()
    addresses = [f"127.0.0.1:{port}" for port in ports]
    command = [sys.executable, "-m", "benchmarks.trial", "--serve", *addresses]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "HPLACER_DISABLE": "1"}
    process = subprocess.Popen(
        command, env=child_process.environment(**quiet), stderr=subprocess.DEVNULL
    )
    try:
        yield addresses
    finally:
        process.kill()
        process.wait()


def run(name: str, train_s: float, **variables: str) -> dict[str, Any]:
    """One training; RuntimeError with what it said where it fails."""
    environment = child_process.environment(
        **{"TF_CPP_MIN_LOG_LEVEL": "3", "HPLACER_LOG": "info", **variables}
    )
    with worker() as addresses:
        arguments = ["benchmarks.trial", "--train", name, *addresses, "--train-s", str(train_s)]
        return told_by(name, arguments, environment, timeout_s=train_s + 300)


def largest_plan(store: PlanStore) -> Any:
    """Of the graph with the most ops."""
    plans = [plan for one in store.fingerprints() if (plan := store.get(one))]
    return max(plans, key=lambda plan: plan.num_ops)


def outcome_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """How the trial of a training ended, what it cost, and the steps at the end."""
    told = [line for line in found["log"] if "the plan" in line]
    return {
        "in_effect": any("it stays" in line for line in told),
        "charged_s": found["charged_s"],
        "last_step_s": found["last_step_s"],
        "told": (told or found["log"] or [""])[-1].removeprefix("hplacer: "),
    }


# ---- a graph ----


def measured_costs(name: str, directory: Path) -> Path:
    """A table of the costs of a graph's ops, measured on two workers with a core each."""
    with calibrated_cluster(lambda what: None) as bench:
        graph, table = directory / "graph.meta", directory / "costs.json"
        write(name, graph)
        calibrate_graph(graph, bench.machine, addresses=bench.cluster.addresses).costs.save(table)
    return table


def measure(
    name: str,
    directory: Path,
    row: Mapping[str, Any],
    *,
    costs: str,
    train_s: float,
    turn_s: float,
    turns: int,
    kinds: Sequence[str],
) -> dict[str, Any]:
    """What `row` has of a graph, and all runs that it lacks."""
    shared = "devices=/job:worker,min_ops=5"
    if costs == MEASURED:
        shared += f",cost_table={measured_costs(name, directory)}"
    row = dict(row) or _plan_beside_alone(name, shared, directory, turn_s, turns)
    for kind in (kind for kind in kinds if kind not in row):
        if kind == SEARCH:
            row[SEARCH] = _search_alone(name, shared, directory, train_s)
            continue
        found = run(
            name,
            train_s,
            HPLACER_OPTIONS=f"{shared},on_miss=trial,cache={directory / kind.replace(' ', '')}",
            HPLACER_TRIAL_RULES=json.dumps(TRIALS[kind]),
        )
        row[kind] = outcome_of(found) | {"train_s": train_s}
    return row


def _plan_beside_alone(
    name: str, shared: str, directory: Path, turn_s: float, turns: int
) -> dict[str, Any]:
    """Steps with a plan and without, in turns, and what is predicted."""
    forced = f"{shared},on_miss=plan,min_gain=-1,cache={directory / 'forced'}"
    variables: Mapping[str, Mapping[str, str]] = {
        ALONE: {"HPLACER_DISABLE": "1"},
        PLAN: {"HPLACER_OPTIONS": forced},
    }
    run(name, 1.0, **variables[PLAN])  # makes the plan
    steps_s: dict[str, list[float]] = {ALONE: [], PLAN: []}
    for turn in range(turns):
        for which in (ALONE, PLAN) if turn % 2 else (PLAN, ALONE):
            steps_s[which].append(run(name, turn_s, **variables[which])["step_s"])
    ratios = [math.log(one / other) for one, other in zip(*steps_s.values(), strict=True)]
    low, high = map(math.exp, interval(ratios))
    largest = largest_plan(PlanStore(directory / "forced"))
    return {
        "graph": name,
        "alone_s": statistics.median(steps_s[ALONE]),
        "plan_s": statistics.median(steps_s[PLAN]),
        "speedup": math.exp(statistics.fmean(ratios)),
        "low": low,
        "high": high,
        "predicted": largest.speedup,
        "guard": decide(largest, Here.now()).action == APPLY,
    }


def _search_alone(name: str, shared: str, directory: Path, train_s: float) -> dict[str, Any]:
    """Steps of a run without the optimizer, and of one with a search that nothing follows."""
    alone = run(name, train_s, HPLACER_DISABLE="1")
    options = f"{shared},on_miss=trial,min_gain=1e6,cache={directory / SEARCH}"
    beside = run(name, train_s, HPLACER_OPTIONS=options)
    return {
        "alone_steps": alone["steps"],
        "steps": beside["steps"],
        "lost": 1 - beside["steps"] / alone["steps"],
        "charged_s": beside["charged_s"],
        "is_found": bool(PlanStore(directory / SEARCH).fingerprints()),
    }


def table(rows: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> list[str]:
    """In Markdown, with what it comes to."""
    kinds = [kind for kind in kinds if all(kind in row for row in rows)]
    head = "| graph | alone, ms | plan, ms | times as fast | 95% | predicted | guard | "
    lines = [head + " | ".join(kinds) + " |", "|---" * (7 + len(kinds)) + "|"]
    for row in rows:
        cells = [_cell(row[kind]) for kind in kinds]
        lines.append(
            f"| {row['graph']} | {row['alone_s'] * 1e3:.2f} | {row['plan_s'] * 1e3:.2f} | "
            f"{row['speedup']:.2f} | {row['low']:.2f} to {row['high']:.2f} | "
            f"{row['predicted'] or math.nan:.2f} | {'yes' if row['guard'] else 'no'} | "
            + " | ".join(cells)
            + " |"
        )
    lines.append("")
    paying = [row for row in rows if row["speedup"] >= PAYS]
    for kind in ("guard", *(kind for kind in kinds if kind != SEARCH)):
        used = [row for row in rows if (row[kind] if kind == "guard" else row[kind]["in_effect"])]
        harmed = [row for row in used if row["high"] < HARMS]
        said = f"{kind}: in effect {sum(row in used for row in paying)} of {len(paying)} that pay "
        said += f"by 5%, {len(used)} in all; {len(harmed)} of them harm"
        if kind != "guard" and rows:
            lost = max(row[kind]["charged_s"] / row[kind]["train_s"] for row in rows)
            said += f"; at most {lost:.1%} of a run was charged"
        lines.append(said)
    return lines


def _cell(found: Mapping[str, Any]) -> str:
    if "lost" in found:
        return f"{found['lost']:+.1%} of the steps" + ("" if found["is_found"] else ", not found")
    return f"{'stays' if found['in_effect'] else 'no'}, {found['charged_s']:.2f} s"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs, prints the table and writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--graphs", nargs="+", choices=FUNCTIONS, default=DEFAULT_GRAPHS, metavar="G"
    )
    parser.add_argument("--all", action="store_true", help="all graphs")
    parser.add_argument("--train-s", type=float, default=60.0, help="of a trial, default: 60")
    parser.add_argument("--turn-s", type=float, default=3.0, help="of a turn, default: 3")
    parser.add_argument("--turns", type=int, default=4, help="at least 2, default: 4")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--costs", choices=(ESTIMATED, MEASURED), default=ESTIMATED)
    parser.add_argument("--output", type=Path, metavar="DIR", help="for COSTS.json and COSTS.md")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve:
        serve(options.serve)
        return 0
    if options.train:
        train(options.train[0], options.train[1:], options.train_s)
        return 0
    file = options.output / f"{options.costs}.json" if options.output else None
    rows = kept(file)
    for name in FUNCTIONS if options.all else options.graphs:
        row = next((row for row in rows if row["graph"] == name), {})
        if row and all(kind in row for kind in options.kinds):
            continue
        print(f"  {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as directory:
            found = measure(
                name,
                Path(directory),
                row,
                costs=options.costs,
                train_s=options.train_s,
                turn_s=options.turn_s,
                turns=options.turns,
                kinds=options.kinds,
            )
        rows = [of for of in rows if of["graph"] != name] + [found]
        print(json.dumps(found), file=sys.stderr, flush=True)
        keep(file, rows, table(rows, options.kinds))
    print("\n".join(table(rows, options.kinds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
