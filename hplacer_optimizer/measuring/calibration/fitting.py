"""Rates from times that some disturbance has lengthened now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROUNDS = 20
_LEAST_RESIDUAL = 1e-3


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Repetitions of one step."""

    seconds: tuple[float, ...]  # at least 1

    @property
    def value_s(self) -> float:
        """The lower quartile: what disturbs only ever adds."""
        return float(np.quantile(self.seconds, 0.25))

    @property
    def spread(self) -> float:
        """The interquartile range, as a share of the median."""
        low, middle, high = np.quantile(self.seconds, (0.25, 0.5, 0.75))
        return float((high - low) / middle)


@dataclass(frozen=True, kw_only=True)
class LinkFit:
    """A transfer takes `latency_s + bytes / bytes_per_s`."""

    latency_s: float
    bytes_per_s: float
    error: float  # median of the relative errors

    @classmethod
    def of(cls, sizes: Sequence[int], seconds: ArrayLike) -> LinkFit:
        """The fit with the least sum of absolute relative errors, by reweighted least squares.

        Args:
            sizes: bytes, at least two different ones.
            seconds: of a transfer of each size, above 0.
        """
        taken = np.maximum(np.asarray(seconds, float), 1e-9)
        columns = np.stack([np.ones(len(sizes)), np.asarray(sizes, float)], axis=1) / taken[:, None]
        weights = np.ones(len(sizes))
        for _ in range(_ROUNDS):
            parameters = _least_squares(columns * weights[:, None], weights)
            errors = np.abs(columns @ parameters - 1)
            weights = 1 / np.sqrt(np.maximum(errors, _LEAST_RESIDUAL))
        latency_s, s_per_byte = parameters
        return cls(
            latency_s=float(latency_s),
            bytes_per_s=float(1 / max(s_per_byte, 1e-15)),
            error=float(np.median(errors)),
        )


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
