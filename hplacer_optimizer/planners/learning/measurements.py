"""Measures the placements that a policy drew, by a reward of the caller's, in threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.planners.learning.scoring import DOES_NOT_FIT, Reward, Scores

_POLL_S = 0.05


class Measurements:
    """Scores batches of placements by a reward. What was measured is not measured again."""

    def __init__(self, reward: Reward, parallel: int, on_measured: Callable[[], None]) -> None:
        """`parallel`: how many calls at once. `on_measured` is told that `counts` have changed."""
        self._reward = reward
        self._on_measured = on_measured
        self._threads = ThreadPoolExecutor(parallel, "hplacer-reward")
        self._known: dict[bytes, float] = {}  # seconds; inf: it failed
        self._lock = threading.Lock()
        self._measured = self._failed = 0
        self._last_failure: str | None = None

    def __enter__(self) -> Measurements:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def score(self, placements: NDArray[np.int32], is_over: Callable[[], bool]) -> Scores:
        """Of int32[R, n]; what was not measured when it is over has failed, too."""
        keys = [placement.tobytes() for placement in placements]
        rows = {key: row for row, key in enumerate(keys) if key not in self._known}
        calls = {key: self._threads.submit(self._seconds, placements[rows[key]]) for key in rows}
        self._wait(set(calls.values()), is_over)
        for key, call in calls.items():
            if call.done() and not call.cancelled():
                self._known[key] = call.result()
        seconds = np.array([self._known.get(key, math.inf) for key in keys])
        feasible = np.isfinite(seconds)
        slowest_s = max((value for value in self._known.values() if value < math.inf), default=1.0)
        cost = np.log(np.where(feasible, seconds, slowest_s)) + ~feasible * DOES_NOT_FIT
        complete = all(key in self._known for key in keys)
        return Scores(seconds=seconds, feasible=feasible, cost=cost, complete=complete)

    def _wait(self, left: set[Future[float]], is_over: Callable[[], bool]) -> None:
        told = self.counts
        while left and not is_over():
            _, left = wait(left, timeout=_POLL_S)
            if self.counts != told:
                told = self.counts
                self._on_measured()
        for call in left:
            call.cancel()

    @property
    def counts(self) -> tuple[int, int]:
        """Placements measured, failures included, and failures."""
        with self._lock:
            return self._measured, self._failed

    @property
    def last_failure(self) -> str | None:
        """Why the last placement that failed has no time; None if none failed."""
        with self._lock:
            return self._last_failure

    def _seconds(self, placement: NDArray[np.int32]) -> float:
        """A failed measurement is data."""
        try:
            seconds = float(self._reward(placement))
        except Exception as error:
            return self._fail(f"{type(error).__name__}: {error}")
        if not (math.isfinite(seconds) and seconds > 0):
            return self._fail(f"the reward gave {seconds} s")
        with self._lock:
            self._measured += 1
        return seconds

    def _fail(self, reason: str) -> float:
        """Only the first one is a warning: the others may be thousands."""
        with self._lock:
            is_first = self._last_failure is None
            self._last_failure = reason
            self._measured += 1
            self._failed += 1
        log = LOGGER.warning if is_first else LOGGER.debug
        log("a placement could not be measured: %s", reason)
        return math.inf
