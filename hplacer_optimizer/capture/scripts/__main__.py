"""The script's process: `python -m hplacer_optimizer.capture.scripts LIMIT_S script.py ARGS`.

Runs the script with the optimizer switched on, as `hplacer_optimizer.run` does, until its step is
captured (child.py), it ends, or the time is up.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import threading
from pathlib import Path

from hplacer_optimizer.capture.scripts import child
from hplacer_optimizer.errors import OptionError
from hplacer_optimizer.options import Options
from hplacer_optimizer.support.child_process import end_with_parent, kill_group
from hplacer_optimizer.support.script import run_script


def _write_compiled(where: Path) -> None:
    """Names the functions that XLA compiles, which hides their ops from the pass."""
    names = set()
    tensorflow = sys.modules.get("tensorflow")
    function_class = type(tensorflow.function(lambda: None)) if tensorflow else ()
    for thing in gc.get_objects():
        # Not isinstance, which would load lazy modules.
        is_compiled = issubclass(type(thing), function_class) and thing._jit_compile
        if is_compiled and thing.experimental_get_tracing_count():
            names.add(thing._name)
    temporary = where / f"{child.COMPILED}.tmp"
    temporary.write_text(json.dumps(sorted(names)))
    temporary.rename(where / child.COMPILED)


def _expire(where: Path) -> None:
    try:
        _write_compiled(where)
    finally:
        kill_group()


if __name__ == "__main__":
    end_with_parent()
    directory = child.directory()
    assert directory is not None
    timer = threading.Timer(float(sys.argv[1]), _expire, (directory,))
    timer.daemon = True
    timer.start()
    atexit.register(_write_compiled, directory)
    try:
        Options.from_environment(os.environ.setdefault("HPLACER_OPTIONS", "on"))
    except OptionError as error:
        sys.exit(f"hplacer: error: {error}")
    run_script(sys.argv[2:])
