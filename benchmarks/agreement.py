"""Does a step of TensorFlow's executor on emulated GPUs take what the simulator says?

The kernels take exactly what the problem says, so what differs is the simulator's rules: the order
of launches, what copies wait for, what Grappler changes under a placement. Each task is executed
under about twenty placements: TensorFlow's, stripes, random moves, and what planners make of it.
The papers' tasks run on the machines as their data sheets have them, whose GPUs launch ahead.
"launches ignored" is `auto` on a machine whose GPUs do not launch ahead, where a copy waits for
what it copies alone: what the rules of launches are worth, executed. "one start" is `auto` without
the rollouts that count launches: what these are worth.

    python -m benchmarks.agreement --plan --output docs/results/emulation
    python -m benchmarks.agreement --output docs/results/emulation
    python -m benchmarks.agreement --tasks inception_v3 nmt_2 --planning-s 5
    python -m benchmarks.agreement --plan --only auto "one start" --output docs/results/emulation
    python -m benchmarks.agreement --simulate --output docs/results/emulation

--plan makes the placements and executes nothing: searches last as long as a clock says, so cores
have to be quiet. It forgets what ran under earlier ones. Without it, those are executed that are
kept, and made first if there are none. Steps are in virtual time, so cores may be busy. Every task
runs in a process of its own, and what planners made of it in --processes - 1 more, as threads race
for the order of launches. The median counts. --jobs 2 executes two tasks at a time. What has run is
kept if the rest is interrupted, and not run again. The placements lie beside the output, so another
machine can go on. --simulate is for after a change of the simulator or of what is captured: it
simulates once more what has run. All but --plan leave the problems in build/agreement/, where
benchmarks/launch_rules.py finds them.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.emulation import (
    SMALL,
    gpus_of,
    load_data_sheet_task,
    measure,
    print_row,
    random_moves,
    rows_told,
    simple_placements,
    simulated_row,
    step_runner_of,
    task_parser,
)
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.capture.loading import LoadedGraph
from hplacer_optimizer.errors import HPlacerError
from hplacer_optimizer.planners import Budget, Planner, auto, get_planner
from hplacer_optimizer.planners.launch_orders import without_launches
from hplacer_optimizer.problem.problem_file import save_problem
from hplacer_optimizer.problem.simulator import simulate

PLANNERS = ("human_expert", "scotch", "mincut", "metis", "etf", "heft", "hierarchical")
IGNORED, ONE_START = "launches ignored", "one start"
SEARCHES = ("rollout", IGNORED, ONE_START, "auto")  # each with two seeds
STEPS = 5
DEFAULT = "TensorFlow's"
PEAKS = ("peak_bytes", "simulated_peak_bytes")
BUILD = Path("build/agreement")  # <task>.json.gz: the problem
PLACEMENTS = "placements"  # in the output. <task>.npz: placements by their names
OPS = "ops"  # there: a hash of the names of the ops
TABLE = (
    "| task | placements | median error | worst | `auto` is longer by | ordered right |\n"
    "|---|---|---|---|---|---|"
)
_APART = 0.03  # of two executed steps that are not just as long
_LOCK = threading.Lock()  # of what is known of all tasks


# ---- in the process of a task ----


def placements(
    problem: Problem, planning_s: float, only: tuple[str, ...] = ("",)
) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Placements whose names begin so; those that a planner refuses to make are left out.

    The most telling ones come first, in case that nobody waits for the rest.
    """
    simple = simple_placements(problem)
    gpus = gpus_of(problem)
    for seed, (share, number) in enumerate(itertools.product((0.02, 0.1), sorted({2, len(gpus)}))):
        name = f"{share:.0%} random moves over {number}"
        simple[name] = random_moves(problem, share, gpus[:number], seed)
    made = [(name, seed) for name in reversed(SEARCHES) for seed in (0, 1)]
    made += [(name, 0) for name in PLANNERS]
    first = [(name, simple.pop(name)) for name in (DEFAULT,) if name in simple]
    yield from (pair for pair in first if pair[0].startswith(only))
    for name, seed in made:
        if not name.startswith(only):
            continue
        budget = Budget(seconds=planning_s)
        planned = without_launches(problem) if name == IGNORED else problem
        try:
            result = planner_of(name)(planned, budget=budget, seed=seed)
        except HPlacerError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        label = f"{name} {seed}" if name in SEARCHES else name
        yield label, np.asarray(result.placement, np.int32)
    yield from ((name, placement) for name, placement in simple.items() if name.startswith(only))


def planner_of(name: str) -> Planner:
    """Of PLANNERS and SEARCHES."""
    if name == ONE_START:
        return functools.partial(auto.plan, without=auto.PARTS)
    return get_planner("auto" if name == IGNORED else name).plan


def row_without_launches(problem: Problem, placement: NDArray[np.int32]) -> dict[str, Any]:
    """The step as it would be simulated without the rules of launches."""
    return {"ignored_ns": simulate(without_launches(problem), placement).makespan_ns}


def plan_task(
    name: str, sizes: dict[str, Any], output: Path, planning_s: float, only: tuple[str, ...]
) -> None:
    """Keeps the placements whose names begin so; says which."""
    problem = load_data_sheet_task(name, sizes).problem
    made = kept_of(name, problem, output) if any(only) and kept_labels(name, output) else {}
    for label, placement in placements(problem, planning_s, only):
        made[label] = placement
        keep(name, problem, output, made)
        print(f"{name}, {label}: made", file=sys.stderr, flush=True)


def keep(name: str, problem: Problem, output: Path, made: dict[str, NDArray[np.int32]]) -> None:
    """Writes placements, with ops in the order of their names: their numbers may change."""
    order = np.argsort(problem.op_names)
    kept = {label: placement[order].astype(np.int8) for label, placement in made.items()}
    file = _placements_file(name, output)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **kept, **{OPS: _ops_hash(problem)})


def kept_of(name: str, problem: Problem, output: Path) -> dict[str, NDArray[np.int32]]:
    """The placements of a task that are kept, by the numbers that ops have now."""
    file = _placements_file(name, output)
    if not file.exists():
        raise HPlacerError(f"{file}: no such file, run benchmarks.agreement with --plan first")
    rank = np.argsort(np.argsort(problem.op_names))
    with np.load(file) as kept:
        if not np.array_equal(kept[OPS], _ops_hash(problem)):
            raise HPlacerError(f"{file}: the graph has other ops now, run it with --plan first")
        return {label: kept[label][rank].astype(np.int32) for label in kept if label != OPS}


def kept_labels(name: str, output: Path) -> list[str]:
    """The names of a task's placements that are kept."""
    file = _placements_file(name, output)
    if not file.exists():
        return []
    with np.load(file) as kept:
        return [label for label in kept if label != OPS]


def _placements_file(name: str, output: Path) -> Path:
    return output / PLACEMENTS / f"{name}.npz"


def _ops_hash(problem: Problem) -> NDArray[np.uint8]:
    digest = hashlib.sha256("\n".join(sorted(problem.op_names)).encode()).digest()
    return np.frombuffer(digest, np.uint8)


def load_problem_and_kept(
    name: str, sizes: dict[str, Any], output: Path
) -> tuple[LoadedGraph, dict[str, NDArray[np.int32]]]:
    """A task and its placements. Leaves the problem where it can be read without TensorFlow."""
    loaded = load_data_sheet_task(name, sizes)
    BUILD.mkdir(parents=True, exist_ok=True)
    save_problem(loaded.problem, BUILD / f"{name}.json.gz")
    return loaded, kept_of(name, loaded.problem, output)


def execute_task(name: str, sizes: dict[str, Any], output: Path, labels: Sequence[str]) -> None:
    """Prints a line of JSON for each of these placements, which are kept."""
    loaded, made = load_problem_and_kept(name, sizes, output)
    runner = step_runner_of(loaded)
    for label in labels:
        row = measure(runner, loaded.problem, label, made[label], steps=STEPS)
        print_row(row | row_without_launches(loaded.problem, made[label]))


def simulate_again(name: str, sizes: dict[str, Any], output: Path) -> None:
    """Prints a line of JSON for each placement that is kept."""
    loaded, made = load_problem_and_kept(name, sizes, output)
    for label, placement in made.items():
        row = {"placement": label} | simulated_row(loaded.problem, placement)
        print_row(row | row_without_launches(loaded.problem, placement))


# ---- in the process of the benchmark ----


def rows_of(name: str, options: argparse.Namespace, *more: str) -> Iterator[dict[str, Any]]:
    """What a process of the task tells."""
    arguments = ["--task", name, "--planning-s", str(options.planning_s), "--only", *options.only]
    arguments += ["--output", str(options.output)]
    return rows_told(["benchmarks.agreement", *arguments, *["--small"] * options.small, *more])


def is_planned(label: str) -> bool:
    """Whether planners or TensorFlow made it, and not chance."""
    return "stripes" not in label and "random" not in label


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """What of a measured row is kept: medians, and the peaks of the GPUs, the last devices."""
    kept = {key: row[key] for key in ("placement", "simulated_ns", "ignored_ns") if key in row}
    if "error" in row:
        return kept | {"error": row["error"]}
    peak_bytes, simulated_bytes = (row[key] for key in PEAKS)
    step_ns = round(float(np.median(row["steps_ns"])))
    return kept | {
        "step_ns": step_ns,
        "by_process_ns": [step_ns],
        "spread": round(max(row["steps_ns"]) / min(row["steps_ns"]) - 1, 5),
        "peak_bytes": peak_bytes,
        "simulated_peak_bytes": simulated_bytes[-len(peak_bytes) :],
        "real_s": round(row["real_s"], 2),
        "process_gib": round(row["process_peak_bytes"] / 2**30, 1),
    }


def add_process(row: dict[str, Any], told: dict[str, Any]) -> None:
    """What another process measured of the same placement: the median of processes counts."""
    if "error" in told:
        print(f"{row['placement']}: {told['error']}", file=sys.stderr, flush=True)
        return
    row["by_process_ns"].append(round(float(np.median(told["steps_ns"]))))
    row["step_ns"] = round(float(np.median(row["by_process_ns"])))


def ratio(row: dict[str, Any]) -> float:
    """The executed step over the simulated one."""
    return float(row["step_ns"] / row["simulated_ns"])


def line_of(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """How near the simulator comes to the executor, over a task's placements."""
    ran = [row for row in rows if "error" not in row]
    errors = np.array([abs(1 / ratio(row) - 1) for row in ran])
    autos = [ratio(row) - 1 for row in ran if row["placement"].startswith("auto")]
    pairs = right = 0
    for one, other in itertools.combinations(ran, 2):
        executed = [row["step_ns"] for row in (one, other)]
        if abs(executed[0] / executed[1] - 1) <= _APART:
            continue
        pairs += 1
        said = one["simulated_ns"] - other["simulated_ns"]
        right += (executed[0] - executed[1]) * said > 0
    worst = ran[int(errors.argmax())]
    return (
        f"| {name} | {len(ran)} | {np.median(errors):.1%} | {errors.max():.1%} "
        f"({worst['placement']}) | {max(autos, default=float('nan')):+.1%} | {right} of {pairs} |"
    )


def run_line_of(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """What the runs were like: ranges over a task's placements."""
    ran = [row for row in rows if "error" not in row]
    spread = [row["spread"] for row in ran]
    held = np.concatenate([held_over_simulated(row) for row in ran])
    real_s = [row["real_s"] for row in ran]
    size = max(row["process_gib"] for row in ran)
    return (
        f"| {name} | {np.median(spread):.2%}, at most {max(spread):.2%} | {held.min():.2f} to "
        f"{held.max():.2f} | {min(real_s):.2f} to {max(real_s):.2f} | {size:.1f} |"
    )


def gain_line_of(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """How many times as fast as TensorFlow's placement each planner's plans run."""
    executed_ns = {row["placement"]: row["step_ns"] for row in rows if "error" not in row}
    predicted_ns = {row["placement"]: row["simulated_ns"] for row in rows}
    default_ns = executed_ns.get(DEFAULT)
    cells = []
    for planner in (*PLANNERS, *SEARCHES):
        labels = [planner] if planner in PLANNERS else [f"{planner} 0", f"{planner} 1"]
        steps_ns = [executed_ns[label] for label in labels if label in executed_ns]
        cells.append(", ".join(f"{default_ns / ns:.2f}" for ns in steps_ns) if default_ns else "")
    said = [predicted_ns[f"auto {seed}"] for seed in (0, 1) if f"auto {seed}" in predicted_ns]
    default_said_ns = predicted_ns.get(DEFAULT)
    cells.append(", ".join(f"{default_said_ns / ns:.2f}" for ns in said) if default_said_ns else "")
    step = f"{default_ns / 1e6:.1f}" if default_ns else "does not fit"
    return f"| {name} | {step} | " + " | ".join(cells) + " |"


def held_over_simulated(row: dict[str, Any]) -> NDArray[np.float64]:
    """Peak memory, of the GPUs that hold at least half of what the fullest one holds."""
    peak, simulated = (np.array(row[key], float) for key in PEAKS)
    is_full = peak * 2 >= peak.max()
    return np.asarray(peak[is_full] / np.maximum(simulated[is_full], 1))


def plan(name: str, known: dict[str, Any], file: Path, options: argparse.Namespace) -> None:
    """Makes placements, in a process of the task. What ran under earlier ones is forgotten."""
    list(rows_of(name, options, "--plan"))
    rows = known.get(name, [])
    known[name] = [row for row in rows if not row["placement"].startswith(tuple(options.only))]
    _write(file, known)


def execute(
    name: str, known: dict[str, Any], file: Path, number: int, options: argparse.Namespace
) -> None:
    """In one more process, the placements that `number` processes have executed."""
    with _LOCK:
        rows = {row["placement"]: row for row in known.setdefault(name, [])}
    lacking = [
        label
        for label in kept_labels(name, options.output)
        if label.startswith(tuple(options.only))
        and (not number or is_planned(label))
        and len(rows.get(label, {}).get("by_process_ns", ())) == number
        and "error" not in rows.get(label, {})
    ]
    if not lacking:
        return
    for told in rows_of(name, options, "--execute", *lacking):
        label = told["placement"]
        with _LOCK:
            if label in rows:
                add_process(rows[label], told)
            else:
                known[name].append(summary(told))
                what = told.get("error") or f"{ratio(known[name][-1]):.3f} of simulated"
                print(f"{name}, {label}: {what}", file=sys.stderr, flush=True)
            _write(file, known)


def update(name: str, known: dict[str, Any], file: Path, options: argparse.Namespace) -> None:
    """What the simulator says now of the placements that have run."""
    rows = {row["placement"]: row for row in known[name]}
    for told in rows_of(name, options, "--simulate"):
        row = rows.get(told["placement"], {})
        if "simulated_peak_bytes" in row:
            told["simulated_peak_bytes"] = told["simulated_peak_bytes"][-len(row["peak_bytes"]) :]
            row.update(told)
        _write(file, known)


def _write(file: Path, known: dict[str, Any]) -> None:
    """What is known of all tasks."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(result_json(known) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Executes what the output lacks, and prints the table."""
    parser = task_parser(__doc__)
    parser.add_argument("--planning-s", type=float, default=10.0, help="of a search, default: 10")
    parser.add_argument("--output", type=Path, default=BUILD, metavar="DIR")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="NAME", help="placements whose names begin so"
    )
    parser.add_argument("--processes", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="tasks at a time, default: 1"
    )
    parser.add_argument("--plan", action="store_true", help="make placements; executes nothing")
    parser.add_argument("--simulate", action="store_true", help="what has run; executes nothing")
    parser.add_argument("--execute", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.task:
        sizes = SMALL.get(options.task, {}) if options.small else {}
        if options.simulate:
            simulate_again(options.task, sizes, options.output)
        elif options.execute:
            execute_task(options.task, sizes, options.output, options.execute)
        else:
            plan_task(options.task, sizes, options.output, options.planning_s, tuple(options.only))
        return 0
    file = options.output / "agreement.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    for name in options.tasks:
        if options.simulate:
            if name in known and kept_labels(name, options.output):
                update(name, known, file, options)
            continue
        if options.plan or not (name in known or kept_labels(name, options.output)):
            plan(name, known, file, options)

    def execute_all(name: str) -> None:
        for number in range(options.processes):
            execute(name, known, file, number, options)

    if not (options.plan or options.simulate):
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(execute_all, options.tasks))
    print(TABLE)
    measured = [
        name for name in options.tasks if any("error" not in r for r in known.get(name, ()))
    ]
    print("\n".join(line_of(name, known[name]) for name in measured))
    print("\n| task | steps differ by | memory over simulated | real s a step | process, GiB |")
    print("|---|---|---|---|---|")
    print("\n".join(run_line_of(name, known[name]) for name in measured))
    print(f"\n| task | {DEFAULT}, ms | {' | '.join((*PLANNERS, *SEARCHES))} | `auto` predicted |")
    print("|---|" + "---|" * (len(PLANNERS) + len(SEARCHES) + 2))
    print("\n".join(gain_line_of(name, known[name]) for name in measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
