"""Does a step on emulated GPUs take what the simulator says, on graphs that nobody chose?

A commit draws networks and two machines: the hash of the one that last changed the simulator or
the planners. Networks are those of hplacer_optimizer/bench/generated.py, made into TensorFlow
graphs with gradients and updates. The first five that are worth distributing count: those where
`auto` finds a placement whose simulated step is at least 15% below that of TensorFlow's. None is
replaced. They are executed under the placements of benchmarks/agreement.py, and give the same
table.

    judged="cc/tf cc/engine hplacer_optimizer/planners"
    python -m benchmarks.drawn_agreement $(git log -1 --format=%H -- $judged)
    python -m benchmarks.drawn_agreement COMMIT --list

First all placements are made, which needs quiet cores. Then every graph is executed in a process of
its own, and what planners made of it in --processes - 1 more, as TensorFlow's order of launches
differs between starts. The median counts. --jobs 2 executes two graphs at a time, as steps are in
virtual time. What has run is kept in --output, drawn.json.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.agreement import (
    DEFAULT,
    STEPS,
    TABLE,
    add_process,
    gain_line_of,
    is_planned,
    line_of,
    placements,
    ratio,
    summary,
)
from benchmarks.emulation import (
    load_file,
    measure,
    print_row,
    rows_told,
    simple_placements,
    step_runner_of,
)
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.generated import FAMILIES, Network, draw_network
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.support import child_process

COUNT = 5
WORTH = 0.15  # of TensorFlow's step that the first plan of `auto` has to save
KINDS = ("k40", "p100", "v100", "t4", "a100", "h100", "l4")
_PLACEMENTS = "placements.npz"
_PASSED_OVER = "passed over"
_FAILED = {"placement": "any", "error": "its process failed"}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A drawn graph and its machine."""

    family: str
    seed: int
    width: int  # of a cell's output
    batch: int
    machine: str

    def __str__(self) -> str:
        """Names it in tables."""
        return f"{self.family} {self.seed}, {self.batch} x {self.width}, {self.machine}"


def candidates(commit: str) -> Iterator[Candidate]:
    """Without end; always the same ones for a commit. Machines take turns."""
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(commit.encode()).digest()[:8]))
    machines = [
        f"{number}x{kind}"
        for number, kind in zip(rng.integers(2, 9, 2), rng.choice(KINDS, 2, False), strict=True)
    ]
    for machine in itertools.cycle(machines):
        yield Candidate(
            family=str(rng.choice(sorted(FAMILIES))),
            seed=int(rng.integers(1 << 30)),
            width=int(2 ** rng.integers(8, 12)),
            batch=int(2 ** rng.integers(6, 12)),
            machine=machine,
        )


def candidate(commit: str, index: int) -> Candidate:
    """One of them."""
    return next(itertools.islice(candidates(commit), index, None))


# ---- graphs ----


def loss_of(network: Network, width: int, batch: int) -> Any:
    """A TensorFlow tensor: what cells hand to nobody is squared and added.

    A cell is a layer: a product with its weight and a curve, or a scaling where it is cheap.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    cheap_us = float(np.median([cell.cost_us for cell in network.cells])) / 3
    first = v1.random_normal([batch, width], name="input")
    outputs: list[Any] = []
    is_read = np.zeros(len(network.cells), bool)
    with v1.variable_scope("weights", reuse=v1.AUTO_REUSE):
        for number, cell in enumerate(network.cells):
            inputs = [outputs[i] for i in cell.inputs] or [first]
            is_read[cell.inputs] = True
            is_cheap = cell.cost_us < cheap_us
            shape = [width] if is_cheap else [width, width]
            kind = "scale" if is_cheap else "layer"
            weight = v1.get_variable(f"{kind}{cell.weight}", shape)
            with tf.name_scope(f"{cell.scope}/cell{number}"):
                x = tf.add_n(inputs) if len(inputs) > 1 else inputs[0]
                outputs.append(tf.tanh(x * weight if is_cheap else x @ weight))
    ends = [output for output, read in zip(outputs, is_read, strict=True) if not read]
    return tf.add_n([tf.reduce_mean(tf.square(end)) for end in ends])


def write(drawn: Candidate, path: Path) -> None:
    """Writes its training step as a MetaGraphDef."""
    import tensorflow as tf

    from hplacer_optimizer.workloads.training_graph import new_graph, training_graph

    with new_graph(seed=1):
        loss = loss_of(draw_network(drawn.family, drawn.seed), drawn.width, drawn.batch)
        training_graph(loss, tf.compat.v1.train.AdamOptimizer(1e-3))
        path.write_bytes(tf.compat.v1.train.export_meta_graph().SerializeToString())


# ---- processes ----


def planned(problem: Problem, planning_s: float) -> tuple[dict[str, NDArray[np.int32]], float]:
    """Its placements, and the share of TensorFlow's step that the first plan of `auto` saves.

    There are no placements if that is too little.
    """
    default = simulate(problem, simple_placements(problem)[DEFAULT])
    made: dict[str, NDArray[np.int32]] = {}
    saved = 0.0
    for label, placement in placements(problem, planning_s):
        if label == "auto 0":
            saved = 1 - simulate(problem, placement).makespan_ns / default.makespan_ns
            if saved < WORTH:
                return {}, saved
        made[label] = placement
    return made, saved


def run_candidate(commit: str, index: int, planning_s: float, directory: Path) -> None:
    """The first process makes all placements, or prints a row that the graph is passed over.

    The second one executes them, and prints a row for each; others execute those that planners or
    TensorFlow made.
    """
    drawn = candidate(commit, index)
    graph, kept, ran = (directory / name for name in ("graph.meta", _PLACEMENTS, "ran"))
    if not graph.exists():
        subprocess.run(
            [
                *(sys.executable, "-m", "benchmarks.drawn_agreement", commit),
                *("--candidate", str(index), "--write", str(graph)),
            ],
            check=True,
            env=child_process.environment(**child_process.without_gpus()),
        )
    loaded = load_file(str(graph), drawn.machine, compute=False)
    if not kept.exists():
        made, saved = planned(loaded.problem, planning_s)
        if not made:
            print_row({_PASSED_OVER: f"auto saves {saved:.1%}"})
            return
        np.savez_compressed(kept, **made)
        print(f"{drawn}: {len(made)} placements are made", file=sys.stderr, flush=True)
        return
    stored = np.load(kept)
    runner = step_runner_of(loaded)
    for label in stored:
        if is_planned(label) or not ran.exists():
            print_row(measure(runner, loaded.problem, label, stored[label], steps=STEPS))
    ran.touch()


def told_of(index: int, directory: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What a process of a candidate tells."""
    arguments = [options.commit, "--candidate", str(index), "--directory", str(directory)]
    arguments += ["--planning-s", str(options.planning_s)]
    return rows_told(["benchmarks.drawn_agreement", *arguments])


def executed(
    drawn: Candidate, index: int, directory: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """What the processes of a candidate measure."""
    rows: dict[str, dict[str, Any]] = {}
    for _ in range(options.processes):
        for told in told_of(index, directory, options):
            label = told["placement"]
            if label not in rows:
                rows[label] = summary(told)
            elif "error" not in rows[label]:
                add_process(rows[label], told)
    for label, row in rows.items():
        what = row.get("error") or f"{ratio(row):.3f} of simulated"
        print(f"{drawn}, {label}: {what}", file=sys.stderr)
    return list(rows.values()) or [_FAILED]


def run(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Plans what the output lacks, and then executes it.

    By candidate: its rows, or one that it is passed over.
    """
    file = options.output / "drawn.json"
    options.output.mkdir(parents=True, exist_ok=True)
    known: dict[str, list[dict[str, Any]]] = json.loads(file.read_text()) if file.exists() else {}
    lock = threading.Lock()

    def keep(drawn: Candidate, rows: list[dict[str, Any]]) -> None:
        with lock:
            known[str(drawn)] = rows
            file.write_text(result_json(known) + "\n")

    def execute(planned: tuple[Candidate, int, Path]) -> None:
        keep(planned[0], executed(*planned, options))

    waiting: list[tuple[Candidate, int, Path]] = []
    with tempfile.TemporaryDirectory() as parent:
        for index, drawn in enumerate(candidates(options.commit)):
            worth = [rows for rows in known.values() if _PASSED_OVER not in rows[0]]
            if len(worth) + len(waiting) >= COUNT:
                break
            if str(drawn) in known:
                continue
            directory = Path(parent, str(index))
            directory.mkdir()
            if told := list(told_of(index, directory, options)):
                print(f"{drawn}, {_PASSED_OVER}: {told[0][_PASSED_OVER]}", file=sys.stderr)
                keep(drawn, told)
            elif (directory / _PLACEMENTS).exists():
                waiting.append((drawn, index, directory))
            else:
                keep(drawn, [_FAILED])
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(execute, waiting))
    return known


def main(argv: Sequence[str] | None = None) -> int:
    """Executes what the output lacks, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="its hash draws the graphs and the machines")
    parser.add_argument("--planning-s", type=float, default=10.0, help="of a search, default: 10")
    parser.add_argument("--output", type=Path, default=Path("build/agreement"), metavar="DIR")
    parser.add_argument("--processes", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="graphs at a time")
    parser.add_argument("--list", action="store_true", help="the first ten candidates")
    parser.add_argument("--candidate", type=int, help=argparse.SUPPRESS)  # one, as JSON
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)  # its graph
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)  # of one candidate
    options = parser.parse_args(argv)
    if options.write:
        write(candidate(options.commit, options.candidate), options.write)
        return 0
    if options.candidate is not None:
        run_candidate(options.commit, options.candidate, options.planning_s, options.directory)
        return 0
    if options.list:
        print("\n".join(map(str, itertools.islice(candidates(options.commit), 10))))
        return 0
    known = run(options)
    drawn_rows = {name: rows for name, rows in known.items() if _PASSED_OVER not in rows[0]}
    ran = {name: rows for name, rows in drawn_rows.items() if any("error" not in r for r in rows)}
    failed = [name for name in drawn_rows if name not in ran]
    print(f"passed over: {len(known) - len(drawn_rows)}, failed: {', '.join(failed) or 'none'}")
    print(f"\n{TABLE}")
    print("\n".join(line_of(name, rows) for name, rows in ran.items()))
    print("\n".join(gain_line_of(name, rows) for name, rows in ran.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
