"""Runs steps to measure how long they take under a placement.

measure(graph, placement)        one Measurement
Measurer(step, problem)          many of one step, in one process that may die
MeasuredReward(measurers)        what planners score placements by
turns.py                         alternatives in turn, until it is known how they compare
running_trial.py                 the same for calls of a training that goes on meanwhile
training_steps/                  the training steps of a process, seen from inside

measurer.py -- runner_process.py: step_runner.py (executable, feeds, initialisers) -- TensorFlow
"""

from __future__ import annotations

from hplacer_optimizer.measuring.measurement import Failure, Measurement
from hplacer_optimizer.measuring.measurer import Effort, Measurer
from hplacer_optimizer.measuring.reward import MeasuredReward
from hplacer_optimizer.measuring.target import Devices

__all__ = ["Devices", "Effort", "Failure", "MeasuredReward", "Measurement", "Measurer"]
