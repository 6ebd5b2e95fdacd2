"""Jobs at once on a Ray cluster, or on this machine's cores through Ray.

    driver: load each graph once, put it into Ray --> worker per job: plan --> driver: store

Workers neither read the graphs nor write plans, so they need this package and nothing else. Plans
for one fingerprint are stored in the order of the jobs: the store ends as after a serial run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from hplacer_optimizer.errors import OptionError, PlannerUnavailableError
from hplacer_optimizer.planners import Progress
from hplacer_optimizer.plans.making import Search
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.pretraining.jobs import (
    Job,
    Loaded,
    Outcome,
    error_text,
    failure,
    keep,
    load_to_keep,
    plan_job,
    with_stop,
)

LOCAL = "local"
_POLL_S = 0.5

ShowAll = Callable[[int, Mapping[int, Progress]], None]  # jobs done, progress of those that run


def run_on_ray(
    jobs: Sequence[Job],
    store: PlanStore | None,
    address: str,
    *,
    stop: threading.Event,
    watched: Callable[[], AbstractContextManager[None]],
    on_start: Callable[[Job], None],
    on_progress: ShowAll,
) -> Iterator[Outcome]:
    """The outcomes of all jobs, as they come; a job's failure does not end the others.

    `address` is a cluster's, as `ray.init` takes it, or "local". When `stop` is set, jobs that run
    end with their best plan, and the others do not begin. Raises PlannerUnavailableError without
    the package or the cluster.
    """
    if any(job.search.measuring for job in jobs):
        raise OptionError("--ray: jobs that measure at the same time disturb each other")
    with _connected(address) as ray, watched():
        yield from _Driver(ray, jobs, store, stop).run(on_start, on_progress)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        import ray
    except ImportError as error:
        raise PlannerUnavailableError(
            f"--ray needs the package ray ({error}): pip install 'hplacer-optimizer[ray]'"
        ) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == LOCAL:
        # Not the address of the environment: a cluster of this process's own, which ends with it.
        options |= {"address": "local", "include_dashboard": False}
    else:
        options |= {"address": address}
    try:
        ray.init(**options)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise PlannerUnavailableError(f"--ray {address}: cannot connect: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


class _Board:
    """An actor: what the workers tell, and whether they are to stop."""

    def __init__(self) -> None:
        self._latest: dict[int, Progress] = {}
        self._stopped = False

    def tell(self, number: int, progress: Progress) -> bool:
        self._latest[number] = progress
        return self._stopped

    def latest(self) -> dict[int, Progress]:
        return self._latest

    def stop(self) -> None:
        self._stopped = True


def _work(number: int, loaded: Loaded, search: Search, board: Any) -> bytes | str:
    """In a worker: the bytes of the plan, or the text of the error."""
    os.environ["HPLACER_DISABLE"] = "1"  # a planner's TensorFlow is not planned
    import ray

    stop = threading.Event()
    told = -_POLL_S

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= _POLL_S:
            told = time.monotonic()
            if ray.get(board.tell.remote(number, progress)):
                stop.set()

    try:
        tell(Progress(steps=0, best_ns=None))
        return plan_job(loaded, with_stop(search, stop), tell).to_bytes()
    except Exception as error:  # a planner may raise anything, also what cannot be sent
        return error_text(error)


class _Driver:
    def __init__(
        self, ray: Any, jobs: Sequence[Job], store: PlanStore | None, stop: threading.Event
    ) -> None:
        self._ray = ray
        self._jobs = jobs
        self._store = store
        self._stop = stop
        self._board = ray.remote(num_cpus=0)(_Board).remote()
        self._work = ray.remote(num_cpus=1, max_retries=0)(_work)
        self._running: dict[Any, int] = {}  # job numbers by reference
        self._answers: dict[int, bytes | str] = {}  # that wait for an earlier job
        self._loaded: dict[int, Loaded] = {}
        self._done = 0

    def run(self, on_start: Callable[[Job], None], on_progress: ShowAll) -> Iterator[Outcome]:
        for outcome in self._begin(on_start):
            self._done += 1
            yield outcome
        told = False
        while self._running:
            if self._stop.is_set() and not told:
                self._ray.get(self._board.stop.remote())
                told = True
            self._collect()
            latest = self._ray.get(self._board.latest.remote())
            running = {n: latest[n] for n in self._running.values() if n in latest}
            on_progress(self._done, running)
            for outcome in self._ready():
                self._done += 1
                yield outcome

    def _begin(self, on_start: Callable[[Job], None]) -> Iterator[Outcome]:
        """Hands out all jobs; yields those that fail at once."""
        previous: Job | None = None
        shared: Any = None
        for number, job in enumerate(self._jobs):
            if self._stop.is_set():
                return
            on_start(job)
            try:
                if previous is None or job.graph != previous.graph:
                    previous, shared = None, None
                    loaded = load_to_keep(job.graph, self._store)
                    previous, shared = job, self._ray.put(loaded)
            except Exception as error:
                yield failure(job, error)
                continue
            self._loaded[number] = loaded
            search = replace(job.search, budget=replace(job.search.budget, stop=None))
            self._running[self._work.remote(number, shared, search, self._board)] = number

    def _collect(self) -> None:
        finished, _ = self._ray.wait(list(self._running), timeout=_POLL_S)
        for reference in finished:
            number = self._running.pop(reference)
            try:
                self._answers[number] = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:  # such as a worker that was killed
                self._answers[number] = f"{type(error).__name__}: {' '.join(str(error).split())}"

    def _ready(self) -> Iterator[Outcome]:
        for number in sorted(self._answers):
            fingerprint = self._loaded[number].captured.fingerprint
            earlier = (n for n in self._running.values() if n < number)
            if any(self._loaded[n].captured.fingerprint == fingerprint for n in earlier):
                continue
            yield self._outcome(number, self._answers.pop(number))

    def _outcome(self, number: int, answer: bytes | str) -> Outcome:
        job = self._jobs[number]
        if isinstance(answer, str):
            return Outcome(job=job, error=answer)
        try:
            return keep(job, Plan.from_bytes(answer), self._loaded[number], self._store)
        except Exception as error:  # of the store
            return failure(job, error)
