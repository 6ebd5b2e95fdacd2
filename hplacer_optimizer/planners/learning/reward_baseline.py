"""The moving-average baseline of the rewards (ICLR 2018, section 3.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.planners.learning.settings import Settings

_LARGEST = 3.0  # in deviations: one placement that fails must not outweigh a batch


@dataclass
class RewardBaseline:
    """Moving averages of the rewards and of their squared deviations; None before the first."""

    mean: float | None = None
    variance: float | None = None

    def advantages(self, rewards: NDArray[np.float64], settings: Settings) -> NDArray[np.float64]:
        """Of rewards [S] over the baseline so far, which then moves."""
        batch = float(rewards.mean())
        mean = batch if self.mean is None else self.mean
        deviation = float(np.square(rewards - mean).mean())
        variance = deviation if self.variance is None else self.variance
        decay = settings.baseline_decay
        self.mean = decay * mean + (1 - decay) * batch
        self.variance = decay * variance + (1 - decay) * deviation
        if not settings.normalise_advantages:
            return rewards - mean
        return np.clip((rewards - mean) / (math.sqrt(variance) + 1e-12), -_LARGEST, _LARGEST)
