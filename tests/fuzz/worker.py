"""Runs a range of cases: `worker.py SEED BEGIN END FOLDER LIMIT_S [ENGINE]`.

Prints a line per case before it and one after it, so that whoever reads them knows which case took
the process down. A case that exceeds the limit ends the process, with a stack trace.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import sys
import traceback
from pathlib import Path


def _use_engine(path: str) -> None:
    """Takes the native engine from this file instead of the package."""
    name = "hplacer_optimizer._engine"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def main() -> None:
    seed, begin, end = map(int, sys.argv[1:4])
    folder, limit_s = Path(sys.argv[4]), float(sys.argv[5])
    for engine in sys.argv[6:]:
        _use_engine(engine)
    from tests.fuzz.cases import run_case

    faulthandler.enable()
    for index in range(begin, end):
        print("begin", index, flush=True)
        faulthandler.dump_traceback_later(limit_s, exit=True)
        try:
            outcome = run_case(seed, index, folder)
        except Exception:
            traceback.print_exc()
            outcome = "failed"
        faulthandler.cancel_dump_traceback_later()
        print("end", index, outcome.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
