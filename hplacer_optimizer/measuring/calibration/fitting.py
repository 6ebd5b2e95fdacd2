"""Rates from times that some disturbance has lengthened now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROUNDS = 20
_LEAST_RESIDUAL = 1e-3
_LEAST_S = 1e-9


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Repetitions of one step."""

    seconds: tuple[float, ...]  # at least 1

    @property
    def median_s(self) -> float:
        """A prediction is of a usual step, which is measured by its median, too."""
        return float(np.median(self.seconds))

    @property
    def spread(self) -> float:
        """The interquartile range, as a share of the median."""
        low, middle, high = np.quantile(self.seconds, (0.25, 0.5, 0.75))
        return float((high - low) / middle)


@dataclass(frozen=True, kw_only=True)
class BytesFit:
    """What takes `fixed_s + bytes * s_per_byte`."""

    fixed_s: float
    s_per_byte: float
    error: float
    """Median of the errors, as shares of the times that were fitted."""

    @classmethod
    def of(cls, sizes: Sequence[int], seconds: ArrayLike, known: ArrayLike = 0.0) -> BytesFit:
        """The fit with the least sum of absolute relative errors, by reweighted least squares.

        An error is relative to what is longer, the time or the fit: a time that is far too short
        weighs no more than one that is too long.

        Args:
            sizes: bytes, at least two different ones.
            seconds: for each size; differences of times may be 0 or less, which counts as 0.
            known: for each size, the part of `seconds` that is known to be something else.
        """
        size = np.asarray(sizes, float)
        taken = np.maximum(np.asarray(seconds, float), 0.0)
        known = np.broadcast_to(np.asarray(known, float), taken.shape)
        wanted, columns = taken - known, np.stack([np.ones(len(size)), size], axis=1)
        scale = np.maximum([taken[size <= most].max() for most in size], _LEAST_S)
        weights = np.ones(len(size))
        for _ in range(_ROUNDS):
            weighted = weights / scale
            parameters = _least_squares(columns * weighted[:, None], wanted * weighted)
            fitted = columns @ parameters
            errors = np.abs(fitted - wanted) / scale
            weights = 1 / np.sqrt(np.maximum(errors, _LEAST_RESIDUAL))
            scale = np.maximum(np.maximum(taken, fitted + known), _LEAST_S)
        fixed_s, s_per_byte = parameters
        return cls(
            fixed_s=float(fixed_s),
            s_per_byte=float(s_per_byte),
            error=float(np.median(errors)),
        )

    def seconds(self, sizes: Sequence[int]) -> NDArray[np.float64]:
        """float64[len(sizes)]."""
        return self.fixed_s + np.asarray(sizes, float) * self.s_per_byte

    @property
    def fixed_ns(self) -> int:
        return round(1e9 * self.fixed_s)

    @property
    def bytes_per_s(self) -> int:
        """At least 1; at most MOST_BYTES_PER_S, where bytes take next to no time."""
        return max(1, round(1 / max(self.s_per_byte, 1 / MOST_BYTES_PER_S)))


MOST_BYTES_PER_S = 10**13


def _least_squares(
    columns: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Two parameters, neither below 0."""
    found = np.asarray(np.linalg.lstsq(columns, values, rcond=None)[0], np.float64)
    if (found >= 0).all():
        return found
    alone = [
        max(0.0, float(column @ values / (column @ column))) if kept else 0.0
        for column, kept in zip(columns.T, found >= 0, strict=True)
    ]
    return np.array(alone)
