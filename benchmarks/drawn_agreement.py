"""Does a step on emulated GPUs take what the simulator says, on graphs that nobody chose?

A commit draws networks and two machines: the hash of the one that last changed the simulator's
rules. Networks are those of hplacer_optimizer/bench/generated.py, made into TensorFlow graphs with
gradients and updates. The first five that are worth distributing count: those where `auto` finds a
placement whose simulated step is at least 15% below that of TensorFlow's. None is replaced. They
are executed under the placements of benchmarks/agreement.py, and give the same table.

    python -m benchmarks.drawn_agreement $(git log -1 --format=%H -- cc/tf cc/engine/simulator)
    python -m benchmarks.drawn_agreement COMMIT --list

Every candidate runs in a process of its own. What has run is kept in --output, drawn.json.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agreement import (
    DEFAULT,
    STEPS,
    TABLE,
    gain_line_of,
    line_of,
    placements,
    ratio,
    summary,
)
from benchmarks.emulation import load_file, measure, print_row, rows_told, simple_placements
from hplacer_optimizer.bench.generated import FAMILIES, Network, draw_network
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.support import child_process

COUNT = 5
WORTH = 0.15  # of TensorFlow's step that the first plan of `auto` has to save
KINDS = ("k40", "p100", "v100", "t4", "a100", "h100", "l4")
_PASSED_OVER = "passed over"


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


def run_candidate(commit: str, index: int, planning_s: float) -> None:
    """Prints a line of JSON for each placement, or one that it is passed over.

    All placements are made before any is executed, while cores are quiet.
    """
    drawn = candidate(commit, index)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "graph.meta")
        subprocess.run(
            [
                *(sys.executable, "-m", "benchmarks.drawn_agreement", commit),
                *("--candidate", str(index), "--write", str(path)),
            ],
            check=True,
            env=child_process.environment(**child_process.without_gpus()),
        )
        loaded = load_file(str(path), drawn.machine, compute=False)
    problem = loaded.problem
    default = simulate(problem, simple_placements(problem)[DEFAULT])
    made = {}
    for label, placement in placements(problem, planning_s):
        if label == "auto 0":
            saved = 1 - simulate(problem, placement).makespan_ns / default.makespan_ns
            if saved < WORTH:
                print_row({_PASSED_OVER: f"auto saves {saved:.1%}"})
                return
        made[label] = placement
    print(f"{drawn}: {len(made)} placements are made", file=sys.stderr, flush=True)
    for label, placement in made.items():
        print_row(measure(loaded, label, placement, steps=STEPS))


def main(argv: Sequence[str] | None = None) -> int:
    """Executes what the output lacks, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="its hash draws the graphs and the machines")
    parser.add_argument("--planning-s", type=float, default=10.0, help="of a search, default: 10")
    parser.add_argument("--output", type=Path, default=Path("build/agreement"), metavar="DIR")
    parser.add_argument("--list", action="store_true", help="the first ten candidates")
    parser.add_argument("--candidate", type=int, help=argparse.SUPPRESS)  # one, as JSON
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)  # its graph
    options = parser.parse_args(argv)
    if options.write:
        write(candidate(options.commit, options.candidate), options.write)
        return 0
    if options.candidate is not None:
        run_candidate(options.commit, options.candidate, options.planning_s)
        return 0
    if options.list:
        print("\n".join(map(str, itertools.islice(candidates(options.commit), 10))))
        return 0
    file = options.output / "drawn.json"
    known: dict[str, list[dict[str, Any]]] = json.loads(file.read_text()) if file.exists() else {}
    options.output.mkdir(parents=True, exist_ok=True)
    for index, drawn in enumerate(candidates(options.commit)):
        name = str(drawn)
        if sum(_PASSED_OVER not in rows[0] for rows in known.values()) >= COUNT:
            break
        if name in known:
            continue
        command = ["benchmarks.drawn_agreement", options.commit, "--candidate", str(index)]
        rows = []
        for told in rows_told([*command, "--planning-s", str(options.planning_s)]):
            row = told if _PASSED_OVER in told else summary(told)
            what = row.get(_PASSED_OVER) or row.get("error") or f"{ratio(row):.3f} of simulated"
            print(f"{name}, {row.get('placement', _PASSED_OVER)}: {what}", file=sys.stderr)
            rows = [row] if _PASSED_OVER in row else [*rows, row]
        known[name] = rows or [{"placement": "any", "error": "its process failed"}]
        file.write_text(result_json(known) + "\n")
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
