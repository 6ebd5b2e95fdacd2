"""Many processes on one plan store, and writers that die: `python -m tests.stress_store --help`.

    processes   random put, get, remove and prune by several processes, whose logs are then checked
                against each other: no exception, no corrupt read, no best plan lost
    kills       a writer is killed at random moments: every plan that it had committed is still
                there and readable, and what it left behind goes away

Exits with 1 and tells what it saw if anything is wrong. Times are CLOCK_MONOTONIC in nanoseconds,
which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from hplacer_optimizer.errors import StoreError
from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.plans.directories.files import TEMPORARY_MAX_AGE_S
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from tests.plans.test_plan import make_plan

FINGERPRINTS = [f"{i:032x}" for i in range(20)]
_SERVER = multiprocessing.get_context("forkserver")  # imports once for all
_SERVER.set_forkserver_preload(["tests.plans.test_plan", "hplacer_optimizer.plans.store"])
_NEVER = 1 << 62


def plan_of(fingerprint: str, step_time_ns: int, nodes: int = 500) -> Plan:
    """All of its content follows from these numbers, so a mixed one would be noticed."""
    return make_plan(
        fingerprint=fingerprint,
        step_time_ns=step_time_ns,
        node_names=[f"node_{i}" for i in range(nodes)],
        node_hashes=np.random.default_rng(step_time_ns).integers(0, 2**63, nodes),
        node_devices=np.full(nodes, step_time_ns % 2),
    )


def check_content(plan: Plan, nodes: int = 500) -> int:
    """The step time of a plan that `plan_of` made; AssertionError for any other."""
    assert plan.step_time_ns is not None
    assert plan == plan_of(plan.fingerprint, plan.step_time_ns, nodes)
    return plan.step_time_ns


# ---- processes ----


@dataclass(frozen=True)
class Event:
    """What one operation did with one fingerprint; a removal may be by prune or by the limit."""

    kind: str  # "put", "get", "remove"
    fingerprint: str
    start_ns: int
    end_ns: int
    step_time_ns: int | None = None  # put: the plan's; get: what was found
    written: bool = False


class _Evictions(logging.Handler):
    """Collects what the store's size limit removes."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.fingerprints: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and "evicted" in record.msg:
            self.fingerprints.append(str(record.args[0]))


def _work(directory: str, seed: int, operations: int, log: str) -> None:
    rng, events = random.Random(seed), []
    size = len(plan_of(FINGERPRINTS[0], 1).to_bytes())
    LOGGER.handlers[:] = [evictions := _Evictions()]
    LOGGER.setLevel(logging.DEBUG)
    # Some have a limit of their own that evicts at their puts.
    store = PlanStore(directory, max_bytes=15 * size if seed % 4 == 0 else None)
    for _ in range(operations):
        fingerprint, start_ns = rng.choice(FINGERPRINTS), time.monotonic_ns()
        dice, step, written, removed = rng.random(), None, False, []
        kind = "get"
        if dice < 0.5:
            kind, step = "put", rng.randrange(1, 10_000)
            written = store.put(plan_of(fingerprint, step))
            removed, evictions.fingerprints = evictions.fingerprints, []
        elif dice < 0.8:
            plan = store.get(fingerprint)
            step = None if plan is None else check_content(plan)
        elif dice < 0.9:
            kind = "remove"
            if fingerprint in store.fingerprints():
                removed = _removed(store, fingerprint)
        else:
            kind = "remove"
            paths = store.prune(max_bytes=rng.randrange(5, 20) * size, damaged=rng.random() < 0.2)
            removed = [Path(path).stem for path in paths]
        end_ns = time.monotonic_ns()
        if kind != "remove":
            events.append(Event(kind, fingerprint, start_ns, end_ns, step, written))
        events += [Event("remove", name, start_ns, end_ns) for name in removed]
    Path(log).write_text(json.dumps([vars(event) for event in events]))


def _removed(store: PlanStore, fingerprint: str) -> list[str]:
    try:
        return [Path(path).stem for path in store.remove(fingerprint)]
    except StoreError as error:
        if "no plan" in str(error) or "just been removed" in str(error):
            return []  # another process was faster
        raise


def _violations(events: list[Event]) -> Iterator[str]:
    """Reads that missed a better plan although nothing can have removed it, and refused puts that
    no better plan can explain.
    """
    for fingerprint in FINGERPRINTS:
        own = [event for event in events if event.fingerprint == fingerprint]
        puts = [event for event in own if event.kind == "put"]
        removals = [event for event in own if event.kind == "remove"]
        made = {event.step_time_ns for event in puts if event.written}
        for get in (event for event in own if event.kind == "get"):
            found = _NEVER if get.step_time_ns is None else get.step_time_ns
            if found != _NEVER and found not in made:
                yield f"{fingerprint}: read {found} ns, which nobody wrote"
            for put in puts:
                if put.end_ns < get.start_ns and (put.step_time_ns or 0) < found:
                    may = (r.end_ns > put.start_ns and r.start_ns < get.end_ns for r in removals)
                    if not any(may):
                        yield f"{fingerprint}: {get} misses {put}"
        for put in puts:
            if not put.written and not any(
                other.written
                and other.start_ns < put.end_ns
                and (other.step_time_ns or 0) <= (put.step_time_ns or 0)
                for other in puts
            ):
                yield f"{fingerprint}: {put} was refused for nothing"


@dataclass
class Result:
    """What a run found; `failures` is empty if all is well."""

    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def run_processes(directory: Path, processes: int, operations: int, seed: int = 0) -> Result:
    """Random operations by several processes at once on the store in `directory`."""
    store, result = directory / "plans", Result()
    logs = [directory / f"log{i}" for i in range(processes)]
    workers = [
        _SERVER.Process(target=_guarded, args=(str(store), seed + i, operations, str(log)))
        for i, log in enumerate(logs)
    ]
    for worker in workers:
        worker.start()
    for worker, log in zip(workers, logs, strict=True):
        worker.join()
        if worker.exitcode != 0:
            result.failures.append(log.read_text())
    if result.failures:
        return result
    events = [Event(**event) for log in logs for event in json.loads(log.read_text())]
    start_ns = time.monotonic_ns()
    opened = PlanStore(store)
    for fingerprint in FINGERPRINTS:  # what is left counts as one more read
        plan = opened.get(fingerprint)
        step = None if plan is None else check_content(plan)
        events.append(Event("get", fingerprint, start_ns, time.monotonic_ns(), step))
    result.counts = Counter(event.kind for event in events)
    result.counts["written"] = sum(event.written for event in events)
    result.counts["found"] = sum(e.kind == "get" and bool(e.step_time_ns) for e in events)
    result.failures = list(_violations(events))
    leftovers = [name for name in os.listdir(store) if name.endswith(".tmp")]
    result.failures += [f"left behind: {name}" for name in leftovers]
    return result


def _guarded(directory: str, seed: int, operations: int, log: str) -> None:
    try:
        _work(directory, seed, operations, log)
    except BaseException:
        Path(log).write_text(traceback.format_exc())
        os._exit(1)


# ---- kills ----

_LARGE = 20_000  # nodes; a write takes long enough to be hit


def run_kills(directory: Path, moments: int, seed: int = 0) -> Result:
    """Kills a writer at so many random moments, one after the other, on one store."""
    rng, result, store = random.Random(seed), Result(), PlanStore(directory / "plans")
    best: dict[str, int] = {}
    for moment in range(moments):
        fingerprint = FINGERPRINTS[moment % len(FINGERPRINTS)]
        reader, writer = _SERVER.Pipe(duplex=False)
        first = best.setdefault(fingerprint, 10**9)
        store.put(plan_of(fingerprint, first, _LARGE))
        process = _SERVER.Process(
            target=_write_on, args=(store.directory, fingerprint, first, writer)
        )
        process.start()
        writer.close()
        assert reader.poll(60), "the writer does not start"
        time.sleep(rng.random() * 0.05)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        try:
            while True:
                best[fingerprint] = min(best[fingerprint], reader.recv())
        except (EOFError, OSError):
            reader.close()
        for entry in store.entries(verify=True):
            if entry.plan is None or entry.plan.step_time_ns is None:
                result.failures.append(f"kill {moment}: {entry.error}")
            elif entry.plan.step_time_ns > best[entry.fingerprint]:
                result.failures.append(f"kill {moment}: a committed plan of {entry.path} is lost")
        missing = best.keys() - set(store.fingerprints())
        result.failures += [f"kill {moment}: {name} is gone" for name in missing]
    for plan in (entry.plan for entry in store.entries()):
        if plan is not None:
            check_content(plan, _LARGE)
    _check_leftovers(Path(store.directory), result)
    result.counts["kills"] = moments
    return result


def _write_on(directory: str, fingerprint: str, first: int, committed: Connection) -> None:
    committed.send(first)  # ready
    for step in range(first - 1, 0, -1):  # better and better
        PlanStore(directory).put(plan_of(fingerprint, step, _LARGE))
        committed.send(step)


def _check_leftovers(directory: Path, result: Result) -> None:
    """Young ones may stay; the next writer removes them when they are old."""
    leftovers = [name for name in os.listdir(directory) if name.endswith(".tmp")]
    result.counts["left behind"] = len(leftovers)
    old_s = time.time() - 2 * TEMPORARY_MAX_AGE_S
    for name in leftovers:
        os.utime(directory / name, (old_s, old_s))
    PlanStore(directory).put(plan_of("f" * 32, 1))
    remaining = [name for name in os.listdir(directory) if name.endswith(".tmp")]
    result.failures += [f"never removed: {name}" for name in remaining]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stress_store",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--operations", type=int, default=1000, help="of each process")
    parser.add_argument("--kills", type=int, default=300, help="moments at which a writer dies")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in ("processes", "kills"):
            directory, start_s = Path(folder, name), time.monotonic()
            directory.mkdir()
            if name == "processes":
                result = run_processes(
                    directory, options.processes, options.operations, options.seed
                )
            else:
                result = run_kills(directory, options.kills, options.seed)
            counts = ", ".join(f"{count} {what}" for what, count in result.counts.items())
            seconds = time.monotonic() - start_s
            print(f"{name}: {counts}; {len(result.failures)} failures in {seconds:.0f} s")
            print(*result.failures[:20], sep="\n", end="\n" if result.failures else "")
            failed = failed or bool(result.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
