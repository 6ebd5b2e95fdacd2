"""Runs a script or a module whose warnings are errors: strict_warnings.py [-m] SCRIPT ARGUMENTS

Not user warnings: Keras has some about its own defaults.
"""

from __future__ import annotations

import os
import runpy
import sys
import warnings

if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", UserWarning)
    is_module = sys.argv[1] == "-m"
    del sys.argv[: 1 + is_module]
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(sys.argv[0]))
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
