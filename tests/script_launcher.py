"""Runs a user's script with CPU devices, under HPLACER_OPTIONS, and tells what the pass did.

    python script_launcher.py REPORT TIMES SCRIPT ARGUMENT ...

REPORT is the file for the history and the step checks of this process, which runs the script so
many TIMES, whatever it raises, as a notebook does whose cells are run again. Environment variables:

TEST_CPU_DEVICES    how many there are; the default is two
TEST_LOG_PLACEMENT  TensorFlow's placer prints where it puts each op
TEST_EXECUTED       a directory for the graphs that sessions execute (tests/executed_graphs.py)
"""

import atexit
import contextlib
import json
import os
import sys
from pathlib import Path

import tensorflow as tf

import hplacer_optimizer as hp
from hplacer_optimizer import run
from tests import executed_graphs


def report(path):
    """At exit: whatever the script did, and however it ended."""
    told = {"history": hp.history(), "checks": hp.step_checks()}
    Path(path).write_text(json.dumps(told, default=vars))


def log_placement():
    """In functions and in sessions, which have options of their own."""
    from tensorflow.python.client import session

    tf.debugging.set_log_device_placement(True)
    original = session.BaseSession.__init__

    def init(self, target="", graph=None, config=None):
        config = config or tf.compat.v1.ConfigProto()
        config.log_device_placement = True
        original(self, target, graph, config)

    session.BaseSession.__init__ = init


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * int(os.environ.get("TEST_CPU_DEVICES", "2")),
    )
    atexit.register(report, sys.argv[1])
    if os.environ.get("TEST_LOG_PLACEMENT"):
        log_placement()
    if directory := os.environ.get("TEST_EXECUTED"):
        executed_graphs.record_sessions(Path(directory))
    times, script = int(sys.argv[2]), sys.argv[3:]
    for _ in range(times - 1):
        with contextlib.suppress(Exception, KeyboardInterrupt, SystemExit):
            run.main(script)
        tf.compat.v1.reset_default_graph()
    run.main(script)
