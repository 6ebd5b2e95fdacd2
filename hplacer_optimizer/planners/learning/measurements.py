"""The placements that a learner's process wants measured, and the answers so far."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.log import LOGGER
from hplacer_optimizer.planners.learning.scoring import Reward


class Measurements:
    """Calls a reward for one batch of placements after the other, in threads."""

    def __init__(self, reward: Reward, parallel: int) -> None:
        """`parallel`: how many calls at once."""
        self._reward = reward
        self._threads = ThreadPoolExecutor(parallel, "hplacer-reward")
        self._batch: list[Future[float]] | None = None
        self._ended = False
        self._measured = self._failed = 0  # of earlier batches
        self._lock = threading.Lock()
        self._best: tuple[float, NDArray[np.int32]] | None = None
        self._last_failure: str | None = None

    def __enter__(self) -> Measurements:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def begin(self, placements: Iterable[NDArray[np.int32]]) -> None:
        """A new batch; the last one has been answered."""
        self._batch = [self._threads.submit(self._seconds, placement) for placement in placements]
        if self._ended:
            self.end()

    def end(self) -> None:
        """Nothing more is waited for."""
        self._ended = True
        for future in self._batch or ():
            future.cancel()

    def answer(self) -> list[float] | None:
        """Seconds per step of the batch, inf where there are none; None before it is done."""
        if self._batch is None or not all(f.done() or self._ended for f in self._batch):
            return None
        self._measured, self._failed = self.counts
        seconds = [future.result() if _is_known(future) else math.inf for future in self._batch]
        self._batch = None
        return seconds

    @property
    def counts(self) -> tuple[int, int]:
        """Placements measured, failures included, and failures."""
        known = [future.result() for future in self._batch or () if _is_known(future)]
        failed = sum(not math.isfinite(seconds) for seconds in known)
        return self._measured + len(known), self._failed + failed

    @property
    def best(self) -> tuple[float, NDArray[np.int32]] | None:
        """The least seconds and their placement; None if all failed."""
        with self._lock:
            return self._best

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
            if seconds < (self._best[0] if self._best else math.inf):
                self._best = seconds, placement
        return seconds

    def _fail(self, reason: str) -> float:
        """Only the first one is a warning: the others may be thousands."""
        with self._lock:
            is_first = self._last_failure is None
            self._last_failure = reason
        log = LOGGER.warning if is_first else LOGGER.debug
        log("a placement could not be measured: %s", reason)
        return math.inf


def _is_known(future: Future[float]) -> bool:
    return future.done() and not future.cancelled()
