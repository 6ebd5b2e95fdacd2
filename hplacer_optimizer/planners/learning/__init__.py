"""Planners that learn placements by policy gradient: the Hierarchical Planner and ColocRL.

    hierarchical.py  the method: what is drawn, and how that changes   groups.py    structure
    training.py      the loop, checkpoints                             scoring.py   costs
    learner.py       `learn`                                           settings.py  presets
    around.py        the same near a placement, for `auto`
    measurements.py  measured steps in place of simulated ones
    networks.py      the published networks, events.py TensorBoard; both in tensorflow_process.py

Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR 2018) and "Device Placement
Optimization with Reinforcement Learning" (ICML 2017). Only networks and event files need
TensorFlow, which is imported in a process of its own.
"""

from hplacer_optimizer.planners.learning.hierarchical import LEARNED_PLANNERS
from hplacer_optimizer.planners.learning.learner import Learned, learn
from hplacer_optimizer.planners.learning.scoring import Reward
from hplacer_optimizer.planners.learning.settings import PRESETS, NetworkSettings, Settings

__all__ = [
    "LEARNED_PLANNERS",
    "PRESETS",
    "Learned",
    "NetworkSettings",
    "Reward",
    "Settings",
    "learn",
]
