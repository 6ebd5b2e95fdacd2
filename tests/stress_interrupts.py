"""Ctrl-C at random moments of a planned start: `python -m tests.stress_interrupts --help`.

A program traces, plans and trains, and gets SIGINT after a random time, up to a little more than
the start takes. Measured is the time from the signal to KeyboardInterrupt, also without the
optimizer, where the same moments hit tracing and steps. Afterwards the plan store must be readable.

TensorFlow itself loses an interrupt that arrives while its C API lists the consumers of a tensor:
tracing then ends with SystemError, also without the optimizer. Such ends are counted; one that went
through a frame of ours fails the run.

Exits with 1 if with the optimizer an interrupt took over 0.5 s longer than the slowest without it.

    python -m tests.stress_interrupts --count 50
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hplacer_optimizer.plans.store import PlanStore
from tests.processes import run

_LIMIT_S = 0.5
_START_S = 8.0  # of tracing, searching and some steps

_PROGRAM = """
import signal
import traceback
on(planner="auto", on_miss="learn", budget_s=5.0)
sent = []

def interrupt():
    time.sleep({moment})
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

weights = [tf.Variable(normal([32, 32], seed)) for seed in range(60)]

@tf.function
def step():
    with tf.GradientTape() as tape:
        tracks = [normal([8, 32], seed) for seed in range(4)]
        for number, weight in enumerate(weights):
            track = number % len(tracks)
            tracks[track] = tf.nn.tanh(tracks[track] @ weight)
        loss = tf.add_n([tf.reduce_mean(track ** 2) for track in tracks])
    for weight, change in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.01 * change)
    return loss

threading.Thread(target=interrupt).start()
try:
    while True:
        step()
except (KeyboardInterrupt, SystemError) as error:
    seconds = time.monotonic() - sent[0]
    lost = isinstance(error, SystemError)
    if lost and "hplacer_optimizer" in "".join(traceback.format_tb(error.__traceback__)):
        raise
    report(seconds=seconds, outcomes=outcomes(), lost=lost)
"""


class Interrupted(NamedTuple):
    """How one program ended."""

    seconds: float  # from the signal to the exception
    planning: bool
    lost: bool  # TensorFlow raised SystemError instead of KeyboardInterrupt


def interrupted_after(moment: float, **environment: str) -> Interrupted:
    """Runs the program with SIGINT after so many seconds, and reads every plan it left."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        directory = Path(name)
        code = _PROGRAM.replace("{moment}", repr(moment))
        outcome = run(code, directory, log="off", timeout_s=120, **environment)
        store = PlanStore(str(directory / "cache"))
        for entry in store.entries():
            store.get(entry.fingerprint)
    report = outcome.report
    return Interrupted(report["seconds"], report["outcomes"] == ["failed"], report["lost"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if an interrupt came too late."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=50, help="interrupts with the optimizer")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    moments = [chance.uniform(0, _START_S) for _ in range(options.count)]
    without = [interrupted_after(m, HPLACER_DISABLE="1") for m in moments[: options.count // 2]]
    found = [interrupted_after(moment) for moment in moments]
    for name, ends in (("without", without), ("with", found)):
        seconds = [end.seconds for end in ends]
        print(
            f"{name:8} {len(ends)} interrupts, seconds until the exception: "
            f"median {statistics.median(seconds):.3f}, slowest {max(seconds):.3f}, "
            f"lost by TensorFlow {sum(end.lost for end in ends)}"
        )
    print(f"{sum(end.planning for end in found)} of them came while a plan was made")
    slowest = max(end.seconds for end in without)
    return 0 if max(end.seconds for end in found) <= slowest + _LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
