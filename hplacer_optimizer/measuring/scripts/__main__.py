"""The script's process: `python -m hplacer_optimizer.measuring.scripts script.py ARGS`.

Runs the script as `hplacer_optimizer.run` does, with a timer on its training steps.
"""

from __future__ import annotations

import json
import os
import sys

import wrapt

from hplacer_optimizer.measuring.scripts import child, timer
from hplacer_optimizer.measuring.scripts.guard import Guard, watch_input
from hplacer_optimizer.run import main
from hplacer_optimizer.support.child_process import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    where = child.directory()
    assert where is not None
    trial = json.loads((where / child.TRIAL).read_text())
    timing = timer.Timer(where, trial["steps"])
    wrapt.register_post_import_hook(lambda _: timing.install(), "tensorflow")
    if trial["free"] is not None:
        guard = Guard(where, [os.getcwd(), *trial["free"]])
        guard.install()
        wrapt.register_post_import_hook(guard.on_tensorflow, "tensorflow")
    watch_input(where)
    main(sys.argv[1:])
