"""A stopwatch for the scripts here: seconds per step, after the steps that the timer leaves out."""

import json
import sys
import time

from hplacer_optimizer.measuring.training_steps.recording import WARMUP


class Stopwatch:
    """Call it before every step, and `write` after the last one."""

    def __init__(self):
        self._times = []

    def __call__(self):
        self._times.append(time.perf_counter())

    def write(self):
        """Into the file that is the script's argument."""
        first, last = self._times[WARMUP], self._times[-1]
        step_s = (last - first) / (len(self._times) - 1 - WARMUP)
        with open(sys.argv[1], "w") as file:
            json.dump(step_s, file)


def two_devices():
    """Two logical CPUs, and the optimizer switched on."""
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    tf.config.optimizer.set_experimental_options({"hierarchical_placer": True})
