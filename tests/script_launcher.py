"""Runs a user's script with two CPU devices, under HPLACER_OPTIONS, and tells what the pass did.

    python script_launcher.py REPORT SCRIPT ARGUMENT ...

REPORT is the file for the history and the step checks of this process.
"""

import atexit
import json
import sys
from pathlib import Path

import tensorflow as tf

import hplacer_optimizer as hp
from hplacer_optimizer import run


def report(path):
    """At exit: whatever the script did, and however it ended."""
    Path(path).write_text(json.dumps({"history": hp.history(), "checks": hp.step_checks()}))


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    atexit.register(report, sys.argv[1])
    run.main(sys.argv[2:])
