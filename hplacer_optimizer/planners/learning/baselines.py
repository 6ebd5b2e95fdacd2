"""The moving-average baseline of the rewards (ICLR 2018, section 3.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer.planners.learning.settings import Settings

_LARGEST = 3.0  # in deviations: one placement that fails must not outweigh a batch


@dataclass
class Baselines:
    """Moving averages of the rewards and of their squared deviations, by kind of sample."""

    mean: dict[str, float] = field(default_factory=dict)
    variance: dict[str, float] = field(default_factory=dict)

    def advantages(
        self, kind: str, rewards: NDArray[np.float64], settings: Settings
    ) -> NDArray[np.float64]:
        """Of rewards [S] of one kind over the baseline so far, which then moves."""
        batch = float(rewards.mean())
        mean = self.mean.get(kind, batch)
        deviation = float(np.square(rewards - mean).mean())
        variance = self.variance.get(kind, deviation)
        decay = settings.baseline_decay
        self.mean[kind] = decay * mean + (1 - decay) * batch
        self.variance[kind] = decay * variance + (1 - decay) * deviation
        if not settings.normalise_advantages:
            return rewards - mean
        return np.clip((rewards - mean) / (math.sqrt(variance) + 1e-12), -_LARGEST, _LARGEST)
