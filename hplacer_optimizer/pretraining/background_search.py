"""The process that searches in the background; `__main__.py` detached it from the training.

Searches in half of the memory that is free, stores the plan and removes the directory of the job.
It has the lowest priority, unless the job says otherwise. SIGTERM ends the search early and keeps
the best plan; SIGALRM ends a process that outlives its budget. A search beside a training ends as
soon as the training does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from hplacer_optimizer.capture.captured import load_captured
from hplacer_optimizer.machines import load_machine
from hplacer_optimizer.machines.host import free_memory_bytes
from hplacer_optimizer.machines.spare_cores import widen_affinity
from hplacer_optimizer.planners import Budget, Progress
from hplacer_optimizer.planners.progress import describe_progress
from hplacer_optimizer.plans.making import Search, make_plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.pretraining.background import JOB, MACHINE
from hplacer_optimizer.support.child_process import limit_memory

_NICENESS = 19
_MARGIN_S = 120  # beyond the budget: loading, the last step, simulating and storing
_MAX_ATTEMPTS = 3  # of a search that is killed each time
_LOG_INTERVAL_S = 10.0


def main(directory: Path) -> None:
    """Does the job in the directory, which it removes unless the process is killed."""
    job = json.loads((directory / JOB).read_text())
    if job["gives_way"]:
        _give_way()
    # Who takes it up again is in the background.
    kept = {**job, "attempts": job["attempts"] + 1, "is_beside": False, "gives_way": True}
    signal.alarm(int(job["budget_s"]) + _MARGIN_S)  # its default action ends the process
    stop = threading.Event()
    if job["is_beside"]:
        widen_affinity()
        threading.Thread(target=_wait_for_end, args=(stop,), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # __main__.py has blocked them
    (directory / JOB).write_text(json.dumps(kept))
    if kept["attempts"] > _MAX_ATTEMPTS:
        _say(f"given up after {_MAX_ATTEMPTS} attempts that were killed")
    else:
        try:
            _search(directory, job, stop)
        except BaseException as error:  # a planner may raise anything
            _say(f"failed: {type(error).__name__}: {error}")
    shutil.rmtree(directory, ignore_errors=True)


def _search(directory: Path, job: dict[str, Any], stop: threading.Event) -> None:
    captured, machine = load_captured(directory), load_machine(directory / MACHINE)
    search = Search(
        planner=job["planner"],
        seed=job["seed"],
        budget=Budget(seconds=job["budget_s"], patience=job["patience"], stop=stop),
        cost_table=job["cost_table"],
        host_offload=job["host_offload"],
    )
    _say(f"searches for {captured.label} with {search.planner} for {job['budget_s']:g} s")
    said = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal said
        if time.monotonic() - said > _LOG_INTERVAL_S:
            said = time.monotonic()
            _say(describe_progress(progress))

    plan, _ = make_plan(captured, machine, search, on_progress=tell)
    store = PlanStore(
        job["cache"], trust_shared=job["trust_shared"], max_bytes=job["cache_max_bytes"]
    )
    stored = store.put(plan)
    ending = "stopped early, " if stop.is_set() else ""
    what = "stored" if stored else "not stored: the plan that is there is as good"
    _say(f"{ending}{plan.summary_line()} after {plan.budget['steps_done']} steps: {what}")


def _wait_for_end(stop: threading.Event) -> None:
    """The training closes the other end of the standard input, at the latest when it ends."""
    while os.read(0, 1024):
        pass
    stop.set()


def _give_way() -> None:
    """To the training: where sessions share processors, also as a session."""
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICENESS))


def _say(text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), os.getpid(), text, flush=True)


if __name__ == "__main__":
    limit_memory(free_memory_bytes())
    main(Path(sys.argv[1]))
