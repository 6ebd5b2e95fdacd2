"""Runs a user's script with two CPU devices, under HPLACER_OPTIONS, and tells what the pass did.

    python script_launcher.py REPORT TIMES SCRIPT ARGUMENT ...

REPORT is the file for the history and the step checks of this process, which runs the script so
many TIMES, whatever it raises, as a notebook does whose cells are run again.
"""

import atexit
import contextlib
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
    times, script = int(sys.argv[2]), sys.argv[3:]
    for _ in range(times - 1):
        with contextlib.suppress(Exception, KeyboardInterrupt, SystemExit):
            run.main(script)
        tf.compat.v1.reset_default_graph()
    run.main(script)
