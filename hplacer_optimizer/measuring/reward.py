"""Step times as the reward of a planner: each placement measured once, the best one carefully.

Several measurers, each with devices of its own, measure at the same time. What a placement's time
is does not depend on the order in which placements come, but for one thing: a placement whose steps
differ much is measured again if it would be the best so far.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.measuring.measurement import Failure, Measurement
from hplacer_optimizer.measuring.measurer import Measurer

_LARGE_SPREAD = 0.1  # of the median
_REPEATS = 2


class MeasuredReward:
    """From a placement to seconds per step, inf for a failure; may be called by many threads."""

    def __init__(self, measurers: Sequence[Measurer]) -> None:
        """Closes the measurers, at least one, when it is closed."""
        self._measurers = list(measurers)
        self._free: queue.SimpleQueue[Measurer] = queue.SimpleQueue()
        for measurer in self._measurers:
            self._free.put(measurer)
        self._threads = ThreadPoolExecutor(len(self._measurers), "hplacer-measuring")
        self._lock = threading.Lock()
        self._answers: dict[bytes, Future[Measurement]] = {}
        self._known: dict[bytes, Measurement] = {}
        self.last_failure: Failure | None = None

    def __enter__(self) -> MeasuredReward:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all processes, also amid a measurement."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for measurer in self._measurers:
            measurer.close()
        self._threads.shutdown()

    @property
    def parallel(self) -> int:
        """Placements that are measured at once."""
        return len(self._measurers)

    @property
    def measured(self) -> int:
        """Placements that were run, failures included."""
        return len(self._known)

    @property
    def failed(self) -> int:
        """Of these."""
        with self._lock:
            return sum(measurement.error is not None for measurement in self._known.values())

    @property
    def best(self) -> tuple[NDArray[np.int32], Measurement] | None:
        """The placement with the least median, int32[n]; None if none was measured."""
        with self._lock:
            key = min(self._known, key=lambda key: _rank(self._known[key]), default=None)
            if key is None or self._known[key].error is not None:
                return None
            return np.frombuffer(key, np.int32).copy(), self._known[key]

    @property
    def best_ns(self) -> int | None:
        """Its median."""
        best = self.best
        return round(best[1].step_s * 1e9) if best and best[1].step_s else None

    @property
    def steps_s(self) -> list[tuple[NDArray[np.int32], float]]:
        """The placements that ran, read-only int32[n], in their order, and seconds per step."""
        with self._lock:
            return [
                (np.frombuffer(key, np.int32), measurement.step_s)
                for key, measurement in self._known.items()
                if measurement.step_s is not None
            ]

    def __call__(self, placement: NDArray[np.int32]) -> float:
        return _rank(self.submit(placement).result())

    def of_no_candidate(self, placement: NDArray[np.int32]) -> float:
        """Seconds per step of a placement that does not count as measured and is never the best."""
        return _rank(self._lease(np.ascontiguousarray(placement, np.int32)))

    def submit(self, placement: NDArray[np.int32]) -> Future[Measurement]:
        """Its measurement, as soon as a measurer was free; the same for the same placement."""
        placement = np.ascontiguousarray(placement, np.int32)
        with self._lock:
            key = placement.tobytes()
            if key not in self._answers:
                self._answers[key] = self._threads.submit(self._measure, placement)
            return self._answers[key]

    def submit_again(self, placement: NDArray[np.int32]) -> Future[Measurement]:
        """What is known of a measured placement, with a new measurement."""
        return self._threads.submit(self._measure_again, placement)

    def is_known(self, placement: NDArray[np.int32]) -> bool:
        """Whether it was submitted."""
        with self._lock:
            return placement.tobytes() in self._answers

    def _measure_again(self, placement: NDArray[np.int32]) -> Measurement:
        more = self._lease(placement)
        with self._lock:
            key = placement.tobytes()
            self._known[key] = self._known[key].with_more(more)
            return self._known[key]

    def _measure(self, placement: NDArray[np.int32]) -> Measurement:
        measurement = self._lease(placement)
        for _ in range(_REPEATS):
            best = self.best
            if not _is_unsteady(measurement) or (best and _rank(best[1]) < _rank(measurement)):
                break
            measurement = measurement.with_more(self._lease(placement))
        with self._lock:
            self._known[placement.tobytes()] = measurement
            self.last_failure = measurement.error or self.last_failure
        return measurement

    def _lease(self, placement: NDArray[np.int32]) -> Measurement:
        measurer = self._free.get()
        try:
            return measurer.measure(placement)
        finally:
            self._free.put(measurer)


def _rank(measurement: Measurement) -> float:
    return math.inf if measurement.step_s is None else measurement.step_s


def _is_unsteady(measurement: Measurement) -> bool:
    step_s, spread_s = measurement.step_s, measurement.spread_s
    return step_s is not None and spread_s is not None and spread_s > _LARGE_SPREAD * step_s
