"""When do a search and a trial begin on busy cores, and what do they cost?

A function trains on two CPU devices that share all cores, which it keeps busy, in processes of its
own and in turn:

    alone    without the optimizer
    search   with a search beside it that nothing follows (min_gain=1e6)
    trial    with a trial of the plan that is found, whatever it promises

    python -m benchmarks.busy_cores --train-s 120 --turns 3
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.support import child_process
from testbed.environment import two_cpus
from testbed.told_rows import tell, told_by

ALONE, SEARCH, TRIAL = "alone", "search", "trial"
OPTIONS = {SEARCH: "min_gain=1e6", TRIAL: "min_gain=-0.9"}


def train(train_s: float) -> None:
    """Trains for so long, and prints what it saw as JSON."""
    import tensorflow as tf

    from hplacer_optimizer.plugin import service
    from hplacer_optimizer.plugin.trials import function_calls

    two_cpus()
    weights = [tf.Variable(tf.random.stateless_normal([512, 512], (i, 0)) * 0.02) for i in range(6)]
    rows = tf.random.stateless_normal([512, 512], (9, 0))

    @tf.function
    def train_step() -> Any:
        with tf.GradientTape() as tape:
            left = right = rows
            for one, other in zip(weights[:3], weights[3:], strict=True):
                left, right = tf.nn.relu(left @ one), tf.nn.tanh(right @ other)
            loss = tf.reduce_mean((left - right) ** 2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    seen: dict[str, float] = {}
    began_s = time.monotonic()

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "beside training" in record.getMessage() and "searches" in record.getMessage():
                seen.setdefault("search_s", time.monotonic() - began_s)

    original = function_calls._run_under

    def run_under(*arguments: Any) -> Any:
        seen.setdefault("trial_s", time.monotonic() - began_s)
        return original(*arguments)

    LOGGER.addHandler(Notes())
    function_calls._run_under = run_under
    steps = 0
    while time.monotonic() - began_s < train_s:
        train_step()
        steps += 1
    running = service._service
    charged_s = running.trials._budget.spent_s if running else 0.0
    tell(seen | {"steps": steps, "charged_s": charged_s})


def run(kind: str, train_s: float, directory: Path) -> dict[str, Any]:
    """One training; RuntimeError with what it said where it fails."""
    options = f"{OPTIONS.get(kind)},min_ops=5,cache={directory}"
    switch = {"HPLACER_DISABLE": "1"} if kind == ALONE else {"HPLACER_OPTIONS": options}
    environment = child_process.environment(TF_CPP_MIN_LOG_LEVEL="3", **switch)
    arguments = ["benchmarks.busy_cores", "--train", str(train_s)]
    return told_by(kind, arguments, environment, timeout_s=train_s + 300)


def table(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """In Markdown."""
    lines = ["| | search begins, s | trial begins, s | charged, s | steps | of alone |"]
    lines.append("|---" * 6 + "|")
    alone = statistics.fmean(row["steps"] for row in rows[ALONE])
    for kind, found in rows.items():
        cells = []
        for what in ("search_s", "trial_s", "charged_s"):
            known = [row[what] for row in found if what in row and kind != ALONE]
            cells.append(f"{min(known):.1f} to {max(known):.1f}" if known else "")
        steps = statistics.fmean(row["steps"] for row in found)
        lines.append(f"| {kind} | {' | '.join(cells)} | {steps:.0f} | {steps / alone:.1%} |")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Runs and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train-s", type=float, default=120.0, help="default: 120")
    parser.add_argument("--turns", type=int, default=3, help="default: 3")
    parser.add_argument("--train", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.train:
        train(options.train)
        return 0
    kinds = (ALONE, SEARCH, TRIAL)
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for turn in range(options.turns):
        for kind in kinds if turn % 2 else kinds[::-1]:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
                rows[kind].append(run(kind, options.train_s, Path(directory)))
            print(kind, rows[kind][-1], file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
