"""The HTML report in headless Chromium: its size, its first paint, frames per second while zooming.

    python -m hplacer_optimizer.workloads.graphs nmt layers=8 -o nmt_8.meta
    hplacer pretrain nmt_8.meta --machine 1cpu-8xk40 --planner hierarchical --steps 70
    python -m benchmarks.report_page PLAN [--seconds 5] [--screenshot FILE] [--json]

PLAN is a plan file. The page is drawn in software, without a GPU. One wheel event per frame zooms
to a point of the timeline, and out again, over and over; a frame redraws both timelines and memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hplacer_optimizer.plans.plan import load_plan
from testbed.browser import Browser, browser, missing

_SCREENSHOT_HEIGHT = 1340
_ZOOM = """
const [seconds, done] = arguments;
const lanes = document.querySelector(".lanes"), box = lanes.getBoundingClientRect();
const turn = (deltaY) => lanes.dispatchEvent(new WheelEvent("wheel", { deltaY, ctrlKey: true,
  clientX: box.left + 700, clientY: box.top + 40, cancelable: true }));
const begin = performance.now();
let frames = 0;
(function frame(now) {
  if (now - begin > seconds * 1000) return done(frames / ((now - begin) / 1000));
  turn(frames++ % 200 < 100 ? -40 : 40);
  requestAnimationFrame(frame);
})(begin);
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Writes and opens the report of a plan, prints what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", metavar="PLAN", help="a plan file that holds its problem")
    parser.add_argument("--seconds", type=float, default=5.0, help="of zooming; default: 5")
    parser.add_argument("--screenshot", type=Path, metavar="FILE", help="of the upper half")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(argv)
    if missing():
        parser.error(missing())
    plan = load_plan(options.plan)
    step = plan.simulated()
    with tempfile.TemporaryDirectory() as directory, browser() as opened:
        path = Path(directory) / "report.html"
        plan.report(path)
        found = {
            "ops": step.problem.num_ops,
            "transfers": len(step.trace.transfers),
            "bytes": path.stat().st_size,
            **_measure(opened, path, options.seconds),
        }
        if options.screenshot:
            opened.open(path)
            opened.screenshot(options.screenshot, height=_SCREENSHOT_HEIGHT)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:20} {value:,.1f}".removesuffix(".0"))
    return 0


def _measure(opened: Browser, path: Path, seconds: float) -> dict[str, Any]:
    opened.open(path)
    paint_ms = opened.run(
        "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    drawn_ms = opened.run("return performance.getEntriesByName('drawn')[0].startTime")
    opened.driver.set_script_timeout(seconds + 60)
    frames_per_s = opened.driver.execute_async_script(_ZOOM, seconds)
    return {"first_paint_ms": paint_ms, "charts_drawn_ms": drawn_ms, "frames_per_s": frames_per_s}


if __name__ == "__main__":
    sys.exit(main())
