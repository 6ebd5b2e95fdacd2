"""Trials that end at random moments: `python -m tests.stress_trials --count 50`.

A program trains with a plan that is searched for beside it, and then tried. It gets SIGKILL, SIGINT
or SIGTERM after a random time, up to a little more than a trial takes. Three programs in a row
share a plan store; so some find a plan, some an unfinished trial, some a verdict. After each of
them

    the program has ended within some seconds, and so has what it started
    every plan and every unfinished trial of the store can be read
    the next start trains, with the losses of one without the optimizer

Exits with 1 if one of these is not so.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plans.unfinished_trial import UnfinishedTrial
from tests.processes import run, wait_for

_LONGEST_S = 12.0  # of a program before its signal
_ENDS_S = 15.0  # after it, on busy cores
_IN_A_ROW = 3
_RULES = {"share": 10.0, "most_s": 1e3}  # else training would wait for the trial
_SIGNALS = {"SIGKILL": -9, "SIGINT": -2, "SIGTERM": -15}

_PROGRAM = """
import signal
sent = time.monotonic() + {moment}

def end():
    time.sleep({moment})
    os.kill(os.getpid(), signal.{name})

on(on_miss="trial", planner="local_search", budget_s=0.5, min_gain=-0.99)
threading.Thread(target=end, daemon=True).start()
step = trainer(width=64)
while True:
    step()
"""
_NEXT = """
off()
expected = losses(trainer(width=64), 30)
on(on_miss="trial", planner="local_search", budget_s=0.5, min_gain=-0.99)
report(found=losses(trainer(width=64), 30), expected=expected)
"""


def end_one(directory: Path, name: str, moment: float) -> list[str]:
    """Ends a program, and starts the next one; returns what is wrong."""
    variables = {"HPLACER_TRIAL_RULES": json.dumps(_RULES)}
    code = _PROGRAM.replace("{moment}", repr(moment)).replace("{name}", name)
    began_s = time.monotonic()
    run(code, directory, returncode=_SIGNALS[name], log="info", timeout_s=180, **variables)
    failures = []
    over_s = time.monotonic() - began_s - moment
    if over_s > _ENDS_S:
        failures.append(f"it ended {over_s:.1f} s after its signal")
    store = PlanStore(directory / "cache")
    try:
        wait_for(lambda: not _searches(directory), 60)
    except AssertionError:
        failures.append("a search went on for a minute")
    for entry in store.entries(verify=True):
        if entry.plan is None:
            failures.append(f"{entry.path}: {entry.error}")
    for path in (directory / "cache").glob("*.trial"):
        if UnfinishedTrial.from_bytes(path.read_bytes()) is None:
            failures.append(f"{path} cannot be read")
    report: dict[str, Any] = run(_NEXT, directory, timeout_s=180, **variables).report
    if not np.allclose(report["found"], report["expected"], rtol=1e-5):
        failures.append("the next start has other losses")
    return [f"{name} after {moment:.2f} s: {what}" for what in failures]


def _searches(directory: Path) -> list[str]:
    """Processes of searches for this store."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if str(directory).encode() in text and b"hplacer_optimizer.pretraining" in text:
            found.append(path.parent.name)
    return found


def state_of(directory: Path) -> str:
    """How far the trials of this store have come."""
    store = PlanStore(directory / "cache")
    plans = [store.get(fingerprint) for fingerprint in store.fingerprints()]
    if any(plan is not None and plan.verdict is not None for plan in plans):
        return "a verdict"
    if list((directory / "cache").glob("*.trial")):
        return "an unfinished trial"
    return "a plan" if plans else "nothing"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=50, help="of programs that are ended")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    failures: list[str] = []
    left: collections.Counter[str] = collections.Counter()
    done = 0
    while done < options.count:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            for _ in range(min(_IN_A_ROW, options.count - done)):
                signal_name = chance.choice(["SIGKILL", "SIGKILL", "SIGINT", "SIGTERM"])
                found = end_one(Path(name), signal_name, chance.uniform(0.0, _LONGEST_S))
                left[state_of(Path(name))] += 1
                done += 1
                failures += found
                print(done, signal_name, found or "right", file=sys.stderr, flush=True)
    told = ", ".join(f"{what} {count} times" for what, count in left.most_common())
    print(f"{done} ends, after which the store had {told}; {len(failures)} failures")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
