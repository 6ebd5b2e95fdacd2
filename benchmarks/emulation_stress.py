"""Whether emulated GPUs ever hang: random graphs beside everything that may disturb their clock.

    python benchmarks/emulation_stress.py --steps 2000 --output docs/results/emulation

Runs the scenarios of emulation_scenarios.py in turns, each in a process of its own with a seed of
its own, until so many steps are done. The clock has to move or the process to end with TensorFlow's
error. What became of each process:

    ok         all results are those of the CPU, and errors came where they were drawn
    stopped    the clock stopped with its line, and steps ended with TensorFlow's error
    unexpected an error that was not drawn, or an end without a report
    wrong      a result is not the CPU's, or no virtual time passed
    crash      a signal ended the process
    hang       it was still there after the time that the watchdog gives it

Only a thread that never rests may stop the clock. Exits with 1 if anything else ended otherwise
than ok. Every process can be run alone: `--only SCENARIO --first-seed N --processes 1`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emulation_scenarios import SCENARIOS

from hplacer_optimizer.bench.result_json import result_json

OUTCOMES = ("ok", "stopped", "unexpected", "wrong", "crash", "hang")
_MAY_STOP = "spinning_for_ever"
_ERRORS_WANTED = {"raising", "memory", "interrupted", _MAY_STOP}
_CHILD = Path(__file__).with_name("emulation_scenarios.py")
_TAIL = 25  # lines of stderr that are kept of what did not end well


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How one process ended."""

    scenario: str
    seed: int
    outcome: str
    steps: int = 0
    errors: int = 0
    real_s: float
    virtual_ms: float = 0.0
    why: str = ""

    @property
    def is_fine(self) -> bool:
        return self.outcome == ("stopped" if self.scenario == _MAY_STOP else "ok")


def ran(scenario: str, seed: int, steps: int, limit_s: float, watchdog_s: float) -> Ended:
    """Runs a scenario; one that hangs first tells where its threads are."""
    command = [sys.executable, str(_CHILD), scenario, "--seed", str(seed), "--steps", str(steps)]
    package = str(Path(__file__).resolve().parents[1])
    environment = os.environ | {
        "PYTHONPATH": package,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "HPLACER_DISABLE": "1",  # the plugin has its own tests
        # One that spins for ever need not do so for long.
        "HPLACER_EMULATION_LIMIT_S": "1" if scenario == _MAY_STOP else str(limit_s),
    }
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    threads = ""
    try:
        out, err = process.communicate(timeout=watchdog_s)
    except subprocess.TimeoutExpired:
        threads = _threads(process.pid)
        process.send_signal(signal.SIGUSR1)
        time.sleep(2)
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    real_s = round(time.monotonic() - start, 1)
    reports = [line for line in out.splitlines() if line.startswith("REPORT ")]
    report = json.loads(reports[-1].removeprefix("REPORT ")) if reports else {}
    outcome, why = _judged(scenario, steps, report, process.returncode, bool(threads))
    if outcome == "hang" or not report:
        why = "\n".join(filter(None, [why, threads, *err.splitlines()[-_TAIL:]]))
    return Ended(
        scenario=scenario,
        seed=seed,
        outcome=outcome,
        steps=report.get("steps", 0),
        errors=report.get("errors", 0),
        real_s=real_s,
        virtual_ms=round(report.get("virtual_ns", 0) / 1e6, 3),
        why=why,
    )


def _judged(
    scenario: str, steps: int, report: dict[str, Any], returncode: int, is_late: bool
) -> tuple[str, str]:
    """An outcome, and why it is not ok."""
    if is_late:
        return "hang", "REPORT was written" if report else ""
    if returncode < 0:
        return "crash", signal.Signals(-returncode).name
    if not report or returncode:
        return "unexpected", f"exit code {returncode}"
    if report["wrong"]:
        return "wrong", "; ".join(report["wrong"][:3])
    if report["stopped"]:
        has_error = bool(report["errors"] or report["failed"])
        return (
            ("stopped", report["stopped"]) if has_error else ("wrong", "stopped without an error")
        )
    if report["failed"]:
        return "unexpected", report["failed"][:2000]
    if report["virtual_ns"] <= 0:
        return "wrong", "no virtual time passed"
    if scenario in _ERRORS_WANTED and steps > 4 and not report["errors"]:
        return "wrong", "no error where one was drawn"
    return "ok", ""


def _threads(pid: int) -> str:
    """What each thread is blocked in."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        try:
            name = (task / "comm").read_text().strip()
            lines.append(f"{task.name} {name}: {(task / 'syscall').read_text().strip()}")
        except OSError:
            continue
    return "\n".join(lines)


def table(all_ended: Sequence[Ended]) -> str:
    """A row for each scenario."""
    heads = ("scenario", "processes", "steps", "errors drawn", *OUTCOMES, "real s")
    rows = [heads]
    for scenario in dict.fromkeys(ended.scenario for ended in all_ended):
        of_it = [ended for ended in all_ended if ended.scenario == scenario]
        counts = Counter(ended.outcome for ended in of_it)
        sums = (sum(ended.steps for ended in of_it), sum(ended.errors for ended in of_it))
        figures = (len(of_it), *sums, *(counts[outcome] for outcome in OUTCOMES))
        real_s = sum(ended.real_s for ended in of_it)
        rows.append((scenario, *(str(figure) for figure in figures), f"{real_s:.0f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    return "\n".join(
        "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in pairs)
        for row in rows
        for pairs in [list(enumerate(zip(row, widths, strict=True)))]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if anything ended otherwise than it should."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2000, help="in all")
    parser.add_argument("--steps-each", type=int, default=20, help="of one process")
    parser.add_argument("--processes", type=int, help="end after so many")
    parser.add_argument("--first-seed", "--seed", type=int, default=0, metavar="N")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, metavar="SCENARIO")
    parser.add_argument("--limit-s", type=float, default=20.0, help="HPLACER_EMULATION_LIMIT_S")
    parser.add_argument("--watchdog-s", type=float, default=300.0)
    parser.add_argument("--output", type=Path, metavar="DIR", help="for stress.json")
    options = parser.parse_args(arguments)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)  # now, if it cannot be
    scenarios = options.only or [*SCENARIOS]
    all_ended: list[Ended] = []
    while sum(ended.steps for ended in all_ended) < options.steps:
        number = len(all_ended)
        if number == options.processes:
            break
        ended = ran(
            scenarios[number % len(scenarios)],
            options.first_seed + number,
            options.steps_each,
            options.limit_s,
            options.watchdog_s,
        )
        all_ended.append(ended)
        mark = "" if ended.is_fine else f"\n{ended.why}"
        print(
            f"{ended.scenario} seed {ended.seed}: {ended.outcome}, {ended.steps} steps, "
            f"{ended.real_s} s{mark}",
            flush=True,
        )
    print(table(all_ended))
    if options.output:
        document = {
            "command": "python benchmarks/emulation_stress.py "
            f"--steps {options.steps} --steps-each {options.steps_each} "
            f"--first-seed {options.first_seed} --limit-s {options.limit_s:g}",
            "steps": sum(ended.steps for ended in all_ended),
            "outcomes": Counter(ended.outcome for ended in all_ended),
            "as they should": all(ended.is_fine for ended in all_ended),
            "processes": [asdict(ended) for ended in all_ended],
        }
        (options.output / "stress.json").write_text(result_json(document) + "\n")
    return 0 if all(ended.is_fine for ended in all_ended) else 1


if __name__ == "__main__":
    sys.exit(main())
