"""Seeds small faults, one after the other, and tells which ones the tests find.

    python -m tests.faults [--fault 3]    all of them take three quarters of an hour

Each is a slip that a change could bring: off by one, a wrong comparison, a lock that is not taken,
a wrong unit, swapped arguments, a check that is missing. It is made in build/faults/, a copy of the
working tree, whose native modules are built anew where it is in C++. Then the Python tests of its
package run until one fails; for the engine the C++ tests of its folder run first. Tests that do not
end find a fault too. Exits with 1 if a fault is missed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.scratch_copy import ScratchCopy

_CPP_LIMIT_S = 60
_PYTHON_LIMIT_S = 1200


@dataclass(frozen=True)
class Fault:
    """`right`, which the file has once, becomes `wrong`; the Python `tests` should notice."""

    file: str
    right: str
    wrong: str
    tests: str


FAULTS = (
    Fault(
        "cc/engine/problem/problem_check.cc",
        'CheckIndex(spec.link_dst[i], m, "device", "links", i, "dst");',
        "",
        "tests/problem",
    ),
    Fault(
        "cc/engine/simulator/step_simulation.cc",
        "EndRead(send.src_buffer, send.src_device);",
        "EndRead(send.src_buffer, send.dst_device);",
        "tests/problem",
    ),
    Fault(
        "cc/engine/simulator/step_simulation.cc",
        "if (src.device == device) return buffers_[alias].root;",
        "if (src.device == device) return alias;",
        "tests/problem",
    ),
    Fault(
        "cc/engine/simulator/memory_trace.cc",
        "changes[i].held_bytes > changes[of_device].held_bytes",
        "changes[i].held_bytes >= changes[of_device].held_bytes",
        "tests/problem",
    ),
    Fault(
        "cc/engine/bounds/device_classes.cc",
        "(carried - 1) * latency_ns",
        "carried * latency_ns",
        "tests/problem",
    ),
    Fault(
        "cc/engine/bounds/load_bound.cc",
        "(total + per_makespan_ns - 1) / per_makespan_ns",
        "total / per_makespan_ns + 1",
        "tests/problem",
    ),
    Fault(
        "cc/engine/schedulers/device_timeline.cc",
        "gaps_.lower_bound({arrival_ns + duration_ns, 0})",
        "gaps_.lower_bound({arrival_ns, 0})",
        "tests/planners",
    ),
    Fault(
        "cc/engine/schedulers/schedule_state.cc",
        "  ReleaseUntil(FreeNs(device), device);\n  estimate",
        "  estimate",
        "tests/planners",
    ),
    Fault(
        "cc/engine/search/memory_repair.cc",
        "change.device += change.device >= from;",
        "change.device += change.device > from;",
        "tests/planners",
    ),
    Fault(
        "cc/tf/node_hasher.cc",
        "  if (!node.requested_device().empty()) hash = "
        "HashBytes(node.requested_device(), Mix(hash, 1));\n",
        "",
        "tests/plans",
    ),
    Fault(
        "hplacer_optimizer/planners/simple.py",
        "(uniform * counts)",
        "(uniform * (counts - 1))",
        "tests/planners",
    ),
    Fault(
        "hplacer_optimizer/planners/metis.py",
        "np.argsort(-graph.vertex_weight,",
        "np.argsort(graph.vertex_weight,",
        "tests/planners",
    ),
    Fault(
        "hplacer_optimizer/plans/directories/local_files.py",
        "                _acquire(descriptor, path)\n",
        "",
        "tests/plans",
    ),
    Fault(
        "hplacer_optimizer/plans/store/layer.py",
        "key=lambda plan: (plan.used_s, plan.name)",
        "key=lambda plan: (plan.name, plan.used_s)",
        "tests/plans",
    ),
    Fault(
        "hplacer_optimizer/capture/graph_files.py",
        'f"line {line}: "',
        'f"line {line - 1}: "',
        "tests/capture",
    ),
    Fault(
        "hplacer_optimizer/measuring/reward.py",
        "_rank(best[1]) < _rank(measurement)",
        "_rank(measurement) < _rank(best[1])",
        "tests/measuring",
    ),
    Fault(
        "hplacer_optimizer/plugin/switch.py",
        "        set_original(self, checked)\n        _epoch = object()\n",
        "        set_original(self, checked)\n",
        "tests/plugin",
    ),
    Fault(
        "hplacer_optimizer/pretraining/background.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "tests/pretraining",
    ),
    Fault(
        "hplacer_optimizer/cli/cache.py",
        '"would remove" if options.dry_run else "removed"',
        '"removed" if options.dry_run else "would remove"',
        "tests/cli",
    ),
    Fault(
        "hplacer_optimizer/machines/detect.py",
        "host.usable_cores() / sharing",
        "host.usable_cores()",
        "tests/machines",
    ),
    # In places that are rarely run.
    Fault(
        "hplacer_optimizer/problem/memory.py",
        "(0 if is_limit else added.process_bytes)",
        "(added.process_bytes if is_limit else 0)",
        "tests/plans",
    ),
    Fault(
        "hplacer_optimizer/plans/elsewhere.py",
        "full_device_name(name), 0) < peak:",
        "full_device_name(name), 0) <= peak:",
        "tests/plans",
    ),
    Fault(
        "hplacer_optimizer/measuring/turns.py",
        "turn if number % 2 else turn[::-1]",
        "turn",
        "tests/measuring",
    ),
    Fault(
        "hplacer_optimizer/measuring/calibration/fitting.py",
        "np.median(self.seconds)",
        "np.quantile(self.seconds, 0.75)",
        "tests/measuring",
    ),
    Fault(
        "hplacer_optimizer/inspection/chrome_trace.py",
        "{time_ns % 1000:03d}",
        "{time_ns % 1000}",
        "tests/inspection",
    ),
    Fault(
        "hplacer_optimizer/support/new_file.py",
        "        temporary.unlink(missing_ok=True)\n",
        "",
        "tests/support",
    ),
    Fault(
        "hplacer_optimizer/support/quantities.py",
        "3600 * hours + 60 * minutes",
        "60 * hours + 60 * minutes",
        "tests/support",
    ),
    Fault(
        "hplacer_optimizer/machines/nvidia.py",
        "2 ** (int(generation) - 3)",
        "2 * (int(generation) - 3)",
        "tests/machines",
    ),
    Fault(
        "hplacer_optimizer/scripts/file_guard.py",
        "os.path.expanduser(path)) + os.sep",
        "os.path.expanduser(path))",
        "tests/scripts",
    ),
    Fault(
        "hplacer_optimizer/measuring/training_steps/recording.py",
        "between_s <= _PAUSE",
        "between_s <= 100 * _PAUSE",
        "tests/scripts",
    ),
)


def finder(copy: ScratchCopy, fault: Fault) -> str | None:
    """What finds the fault first; None if all tests pass with it."""
    path = copy.directory / fault.file
    right = path.read_text()
    if right.count(fault.right) != 1:
        raise SystemExit(f"{fault.file}: has not exactly once what the fault replaces")
    path.write_text(right.replace(fault.right, fault.wrong))
    try:
        copy.build()
        return _cpp_finder(copy, fault) or _python_finder(copy, fault)
    finally:
        path.write_text(right)


def _cpp_finder(copy: ScratchCopy, fault: Fault) -> str | None:
    if not fault.file.startswith("cc/engine/"):
        return None
    try:
        done = copy.run_cpp_tests(f"{Path(fault.file).parts[2]}/", limit_s=_CPP_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"C++ tests that do not end in {_CPP_LIMIT_S} s"
    found = re.search(r"^TEST CASE: +(.+)", done.stdout, re.MULTILINE)
    return f"the C++ test '{found[1]}'" if found else None


def _python_finder(copy: ScratchCopy, fault: Fault) -> str | None:
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "--tb", "no"]
    pytest += ["-n", str(os.cpu_count()), "--dist", "loadfile", fault.tests]
    try:
        done = copy.run(pytest, limit_s=_PYTHON_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"Python tests that do not end in {_PYTHON_LIMIT_S} s"
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pytest did not run: {done.stdout}")
    return found[1]


def main() -> int:
    """Prints a line per fault."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    numbers = range(1, len(FAULTS) + 1)
    parser.add_argument(
        "--fault", type=int, action="append", choices=numbers, metavar="N", help="only this one"
    )
    chosen = parser.parse_args().fault or numbers
    copy = ScratchCopy("faults")
    print("building", flush=True)
    copy.build()
    missed = 0
    for number in chosen:
        fault, started = FAULTS[number - 1], time.monotonic()
        test = finder(copy, fault)
        missed += test is None
        result = f"found by {test}" if test else f"MISSED by {fault.tests}"
        print(f"{number:2} {fault.file}: {result} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
