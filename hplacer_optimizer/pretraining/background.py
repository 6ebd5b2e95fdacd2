"""Leaves the long search for a plan to a process of its own, while training goes on.

    training script: plan at once -> start() -> trains
                                       |
    __main__.py:      searches for budget_s, stores the better plan, removes its directory

Under the plan store's directory, `pretraining/FINGERPRINT/` holds the captured step until its
search has ended, and `pretraining/FINGERPRINT.log` what the process says. The process holds a lock
on the log: one search per fingerprint. A directory whose search was killed is taken up by the next
start (`resume`).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from hplacer_optimizer.capture.captured import Captured, save_captured
from hplacer_optimizer.machines import Machine, save_machine
from hplacer_optimizer.options import Options
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.support import child_process
from hplacer_optimizer.support.own_directory import default_directory

MACHINE, JOB = "machine.yaml", "job.json"
_START_LIMIT_S = 10.0


class Detached(NamedTuple):
    """A search that has started."""

    log: str  # path
    process_id: int  # SIGTERM ends the search early and keeps the best plan


def start(
    captured: Captured, machine: Machine, options: Options, store: PlanStore
) -> Detached | None:
    """Starts the search; None if one for this step is running.

    Raises OSError or StoreError if it cannot be started.
    """
    parent = _directory(store, options)
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(_log(parent, captured.fingerprint), "a") as log:
        if not _lock(log.fileno()):
            return None
        _write(parent, captured, machine, options, store)
        return Detached(log.name, _spawn(parent / captured.fingerprint, log.fileno()))


def resume(fingerprint: str, options: Options, store: PlanStore) -> Detached | None:
    """Starts a search again that was killed; None if there is none."""
    parent = _directory(store, options)
    if not (parent / fingerprint / JOB).exists():
        return None
    with open(_log(parent, fingerprint), "a") as log:
        if not _lock(log.fileno()) or not (parent / fingerprint / JOB).exists():
            return None
        return Detached(log.name, _spawn(parent / fingerprint, log.fileno()))


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
    parent: Path, captured: Captured, machine: Machine, options: Options, store: PlanStore
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
            "budget_s": options.budget_s,
            "cost_table": os.path.abspath(table) if table else None,
            "host_offload": options.host_offload,
            "cache": store.directory,
            "trust_shared": options.trust_shared,
            "cache_max_bytes": options.cache_max_bytes,
            "attempts": 0,
        }
        (temporary / JOB).write_text(json.dumps(job))
        shutil.rmtree(parent / captured.fingerprint, ignore_errors=True)
        temporary.rename(parent / captured.fingerprint)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _spawn(directory: Path, log: int) -> int:
    """Returns its id when the process has detached itself from this one."""
    done = subprocess.run(
        [sys.executable, "-m", __package__, str(directory)],
        env=child_process.environment(**child_process.planner_variables()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        pass_fds=(log,),
        start_new_session=True,
        timeout=_START_LIMIT_S,
        check=True,
    )
    return int(done.stdout)
