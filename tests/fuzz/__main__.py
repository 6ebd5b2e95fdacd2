"""Loads mutated problem files and uses those that load: `python -m tests.fuzz --help`.

Exits with 1 if a case crashed, hung, or raised anything but a typed error. Its file and what was
printed are then in build/fuzz/, named after the seed and the case; it is run again by
`--seed SEED --begin CASE --count 1`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.fuzz.cases import case_file
from tests.processes import ROOT

CASES_PER_PROCESS = 2000


class Run:
    """What the threads share: the queue of ranges, the outcomes and the failures."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.bar = progress.add_task("fuzzing", total=options.count)
        cases = range(options.begin, options.begin + options.count)
        begins = range(0, len(cases), CASES_PER_PROCESS)
        self.ranges = iter([cases[i : i + CASES_PER_PROCESS] for i in begins])
        self.lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self.failures: list[Path] = []

    def work(self) -> None:
        # In memory where possible: most of the time would go into the disk.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            while True:
                with self.lock:
                    cases = next(self.ranges, range(0))
                if not cases:
                    return
                while cases:
                    cases = cases[self._run_process(cases, folder) :]

    def _run_process(self, cases: range, folder: str) -> int:
        """Runs cases until all are done or one takes the process down; returns how many it ran."""
        command = [sys.executable, "-m", "tests.fuzz.worker", str(self.options.seed)]
        command += [str(cases.start), str(cases.stop)]
        command += [folder, str(self.options.limit_s)]
        command += [self.options.engine] if self.options.engine else []
        log = Path(folder, "stderr")
        running, done = None, 0
        with (
            open(log, "w") as errors,
            subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                word, index, *outcome = line.rstrip("\n").split(" ", 2)
                running = int(index) if word == "begin" else None
                if word == "end":
                    self._finish(int(index), outcome[0], log)
                    done += 1
        if process.returncode == 0:
            return done
        if running is None:
            raise RuntimeError(f"the worker does not run: {log.read_text()}")
        self._finish(running, "failed", log)
        return done + 1

    def _finish(self, index: int, outcome: str, log: Path) -> None:
        with self.lock:
            self.outcomes[outcome] += 1
            self.progress.advance(self.bar)
            if outcome != "failed":
                return
            self.options.failures.mkdir(parents=True, exist_ok=True)
            name = f"seed{self.options.seed}-case{index}.hplacer.json"
            path = self.options.failures / name
            path.write_bytes(case_file(self.options.seed, index))
            self.failures.append(path)
            shutil.copy(log, path.with_name(path.name + ".log"))
            self.progress.console.print(f"[red]failed[/red]: {path}", soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--begin", type=int, default=0, help="first case")
    parser.add_argument("--count", type=int, default=100_000, help="number of cases")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    parser.add_argument("--engine", help="file of the native engine, such as a sanitized one")
    parser.add_argument("--limit-s", type=float, default=20.0, help="longest time of a case")
    parser.add_argument(
        "--failures", type=Path, default=ROOT / "build" / "fuzz", help="where failing files go"
    )
    options = parser.parse_args()
    started = time.monotonic()
    with Progress(console=Console(stderr=True)) as progress:
        run = Run(options, progress)
        with ThreadPoolExecutor(options.jobs) as pool:
            for job in [pool.submit(run.work) for _ in range(options.jobs)]:
                job.result()
    refused = {k: v for k, v in run.outcomes.items() if k not in ("loaded", "failed")}
    print(
        f"{run.outcomes.total()} files in {time.monotonic() - started:.0f} s: "
        f"{run.outcomes['loaded']} loaded, {sum(refused.values())} refused for "
        f"{len(refused)} reasons, {len(run.failures)} failed"
    )
    for reason, count in itertools.islice(Counter(refused).most_common(), 20):
        print(f"  {count:6d}  {reason.strip()}")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
