"""Leaves the search for a plan to a process of its own, while training goes on.

    training script: start(), beside() -> trains
                          |
    __main__.py:      searches for budget_s, stores the better plan, removes its directory

What `beside` starts is for this training: it ends as soon as the training does, and keeps its best
plan. What `start` starts goes on.

Under the plan store's directory, `pretraining/FINGERPRINT/` holds the captured step until its
search has ended, and `pretraining/FINGERPRINT.log` what the process says. The process holds a lock
on the log: one search per fingerprint. A directory whose search was killed is taken up by the next
start (`resume`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from hplacer_optimizer.capture.captured import Captured, save_captured
from hplacer_optimizer.errors import StoreError
from hplacer_optimizer.machines import Machine, save_machine
from hplacer_optimizer.machines.host import THREADS
from hplacer_optimizer.options import Options
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.support import child_process
from hplacer_optimizer.support.own_directory import default_directory

MACHINE, JOB = "machine.yaml", "job.json"
_START_LIMIT_S = 10.0


class AlreadySearchedError(StoreError):
    """A search for the step is running."""


@dataclass(frozen=True, kw_only=True)
class SearchEffort:
    """What a search takes.

    Attributes:
        seconds: that the planner has.
        patience: steps of the planner without a better placement, after which it ends; None: it
            goes on.
        threads: at most; 0: as many as there are cores.
        gives_way: it has the lowest priority, and else that of any process.
    """

    seconds: float
    patience: int | None = None
    threads: int = 0
    gives_way: bool = True


class Detached(NamedTuple):
    """A search that has started."""

    log: str  # path
    process_id: int  # SIGTERM ends the search early and keeps the best plan
    directory: str  # is there until the search has ended

    @property
    def is_over(self) -> bool:
        """Whether the search has ended."""
        return not os.path.exists(self.directory) or not _is_alive(self.process_id)

    @property
    def processor_s(self) -> float:
        """Seconds of processor time that it has taken so far; infinite where nothing tells."""
        try:
            return time.clock_gettime((~self.process_id << 3) | 2)  # clock_getcpuclockid(3)
        except OSError:
            return math.inf


def start(
    captured: Captured, machine: Machine, options: Options, store: PlanStore
) -> Detached | None:
    """Starts the search; None if one for this step is running.

    Raises OSError or StoreError if it cannot be started.
    """
    return _start(captured, machine, options, store, SearchEffort(seconds=options.budget_s), None)


@contextlib.contextmanager
def beside(
    captured: Captured, machine: Machine, options: Options, store: PlanStore, effort: SearchEffort
) -> Iterator[Detached]:
    """A search that ends with the block or with this process, and keeps its best plan.

    Raises OSError or StoreError if it cannot be started, AlreadySearchedError if one for this step
    is running.
    """
    ends, ours = os.pipe()
    try:
        search = _start(captured, machine, options, store, effort, ends)
        if search is None:
            raise AlreadySearchedError(f"another process searches for a plan for {captured.label}")
        yield search
    finally:
        os.close(ours)  # which the search sees
        os.close(ends)


def _start(
    captured: Captured,
    machine: Machine,
    options: Options,
    store: PlanStore,
    effort: SearchEffort,
    ends: int | None,
) -> Detached | None:
    parent = _directory(store, options)
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(_log(parent, captured.fingerprint), "a") as log:
        if not _lock(log.fileno()):
            return None
        _write(parent, captured, machine, options, store, effort, is_beside=ends is not None)
        return _spawn(parent / captured.fingerprint, log, ends, effort.threads)


def resume(fingerprint: str, options: Options, store: PlanStore) -> Detached | None:
    """Starts a search again that was killed; None if there is none."""
    parent = _directory(store, options)
    if not (parent / fingerprint / JOB).exists():
        return None
    with open(_log(parent, fingerprint), "a") as log:
        if not _lock(log.fileno()) or not (parent / fingerprint / JOB).exists():
            return None
        return _spawn(parent / fingerprint, log)


def _is_alive(process_id: int) -> bool:
    """Process 1 of a container may not take leave of the dead."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _directory(store: PlanStore, options: Options) -> Path:
    """Beside the plans; one's own where the store is remote or others write there, too."""
    nearest = store.layers[0]
    if not nearest.is_local or options.trust_shared:
        return default_directory() / "pretraining"
    return Path(nearest.address) / "pretraining"


def _log(parent: Path, fingerprint: str) -> Path:
    return parent / f"{fingerprint}.log"


def _lock(descriptor: int) -> bool:
    """Taken for all processes that inherit the descriptor, until the last of them ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(
    parent: Path,
    captured: Captured,
    machine: Machine,
    options: Options,
    store: PlanStore,
    effort: SearchEffort,
    *,
    is_beside: bool,
) -> None:
    """The job's directory, complete or not at all."""
    temporary = Path(tempfile.mkdtemp(".tmp", f"{captured.fingerprint}.", parent))
    try:
        save_captured(captured, temporary)
        save_machine(machine, temporary / MACHINE)
        table = options.cost_table
        job = {
            "planner": options.planner,
            "seed": options.seed,
            "budget_s": effort.seconds,
            "cost_table": os.path.abspath(table) if table else None,
            "host_offload": options.host_offload,
            "cache": store.directory,
            "trust_shared": options.trust_shared,
            "cache_max_bytes": options.cache_max_bytes,
            "attempts": 0,
            "patience": effort.patience,
            "gives_way": effort.gives_way,
            "is_beside": is_beside,
        }
        (temporary / JOB).write_text(json.dumps(job))
        shutil.rmtree(parent / captured.fingerprint, ignore_errors=True)
        temporary.rename(parent / captured.fingerprint)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _spawn(directory: Path, log: IO[str], ends: int | None = None, threads: int = 0) -> Detached:
    """Returns when the process has detached itself from this one.

    `ends`: what it reads until it is to end. `threads`: as in `SearchEffort`.
    """
    variables = child_process.planner_variables()
    if threads:
        # Those of the planners, and of libraries that they use.
        variables |= dict.fromkeys(
            (THREADS, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), f"{threads}"
        )
    done = subprocess.run(
        [sys.executable, "-m", __package__, str(directory)],
        env=child_process.environment(**variables),
        stdin=subprocess.DEVNULL if ends is None else ends,
        stdout=subprocess.PIPE,
        stderr=log,
        pass_fds=(log.fileno(),),
        start_new_session=True,
        timeout=_START_LIMIT_S,
        check=True,
    )
    return Detached(log.name, int(done.stdout), str(directory))
