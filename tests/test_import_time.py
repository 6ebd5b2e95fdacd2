"""Importing the package costs little, and a lookup imports no more than it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hplacer_optimizer.plans.store import PlanStore
from tests.plans.test_plan import FINGERPRINT, make_plan
from tests.processes import ROOT

# In CPU time. Of the two, the first took 31 ms and the limit is near 50 ms on idle cores; on busy
# ones both take longer.
PACKAGE = "hplacer_optimizer"
YARDSTICK = "asyncio, decimal, email.message, http.client, unittest.mock, xml.dom.minidom"
MOST = 1.4
CODE = """
import time
start_s = time.process_time()
import {}
print(time.process_time() - start_s)
"""
HIT = """
import sys
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.plugin import service
print(PlanStore({!r}).get({!r}).why_left_alone(-1) == "")
print([name for name in sys.modules if name.startswith("hplacer_optimizer.inspection.report")])
"""


def printed(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ).stdout


def import_s(modules: str) -> float:
    return float(printed(CODE.format(modules)))


def test_importing_the_package_takes_little_more_than_some_standard_modules() -> None:
    seconds = [(import_s(PACKAGE), import_s(YARDSTICK)) for _ in range(5)]
    package, yardstick = (min(column) for column in zip(*seconds, strict=True))
    assert package < MOST * yardstick


def test_a_hit_imports_nothing_of_reports(tmp_path: Path) -> None:
    PlanStore(tmp_path).put(make_plan())
    assert printed(HIT.format(str(tmp_path), FINGERPRINT)).split() == ["True", "[]"]
