"""Planners that learn placements by policy gradient: the Hierarchical Planner and ColocRL.

    settings.py   hyperparameters and presets       draws.py      what a step draws
    items.py      what is grouped, and embeddings   scoring.py    rewards
    models.py     the planners' differences         training.py   REINFORCE, checkpoints
    networks.py   Grouper and Placer                learner.py    `learn`
    trainer_process.py  the process in which they train, started by `learn`

Mirhoseini et al., "A Hierarchical Model for Device Placement" (ICLR 2018) and "Device Placement
Optimization with Reinforcement Learning" (ICML 2017). TensorFlow is imported in that process only.
"""

from hplacer_optimizer.planners.learning.learner import Learned, learn
from hplacer_optimizer.planners.learning.models import LEARNED_PLANNERS
from hplacer_optimizer.planners.learning.scoring import Reward
from hplacer_optimizer.planners.learning.settings import PRESETS, Settings

__all__ = ["LEARNED_PLANNERS", "PRESETS", "Learned", "Reward", "Settings", "learn"]
