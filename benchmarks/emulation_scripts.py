"""Do training scripts run unchanged on emulated GPUs, and with plans for these, as on the CPU?

Every script of the repository that trains in one process runs three times, in a fresh process and
an empty directory each: on the CPU, on emulated GPUs, and there with a plan that a random planner
made, which spreads the ops as nobody would. Emulated kernels compute what the CPU's compute. So the
second run is compared with the first one, and the third one with the second: equal to the bit,
close (up to the rounding of sums in another order), or different. What is compared are the JSON
lines that a script prints, or the numbers in its text. A script that draws other numbers in every
run has to end, and no more.

--keep is written after every script, so that Ctrl-C loses one at most.

    python -m benchmarks.emulation_scripts
    python -m benchmarks.emulation_scripts --machine 4xv100 --keep build/4xv100.json
    python -m benchmarks.emulation_scripts --only branches.py workloads/lstm2
    python -m benchmarks.emulation_scripts --resume
    python -m benchmarks.emulation_scripts --runs cpu --keep build/cpu.json
    python -m benchmarks.emulation_scripts --machine here --jobs 8 --keep build/here.json
    python -m benchmarks.emulation_scripts --list

With `--machine here`, scripts run on the first GPU of this machine, divided into two, in place of
emulated ones. Real kernels round otherwise than the CPU's: what tells is the third run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.plans.store import PlanStore
from hplacer_optimizer.workloads import WORKLOADS
from testbed.environment import ROOT, clean_environment
from testbed.training_scripts import (
    CASES,
    OPTIONS,
    ROUNDING,
    SCRIPTS,
    TIMED_SCRIPTS,
    errors_of,
    outcomes_of,
    results_of,
)

CPU, EMULATED, PLANNED = RUNS = ("cpu", "emulated", "planned")
REFERENCE = {EMULATED: CPU, PLANNED: EMULATED}
FINE = {"works", "equal", "close", "ends"}  # outcomes of a run
JSON_LINES, TEXT, NOTHING = "JSON lines", "text", "nothing"

HERE = "here"  # in place of a machine to emulate
DIVIDED = ROOT / "testbed" / "divided_gpu.py"

LEFT_OUT = {
    "device_annotations.py": "names a second CPU, which only the launcher of the tests makes",
    "fork_before_use.py": "forks, and trains in both processes",
    "interrupted.py": "ends by Ctrl-C",
    "multiprocessing_workers.py spawn": "trains in processes that it starts",
    "multiprocessing_workers.py forkserver": "trains in processes that it starts",
    "examples/cluster_tf2.py": "trains on two workers, which are processes",
    "examples/cluster_v1.py": "trains on two workers, which are processes",
    "timed_scripts/two_workers.py": "trains on two workers, which are processes",
    "timed_scripts/stopwatch.py": "a module of the scripts beside it",
    "timed_scripts/v1_graph.py": "a module of the scripts beside it",
}
UNSEEDED = {"examples/spread_variables.py", "examples/train_keras.py"}
_WORKLOAD = """\
import json, sys
from hplacer_optimizer.bench.train_workload import train
from hplacer_optimizer.workloads.setup import Setup
print(json.dumps({"losses": train(sys.argv[1], Setup(devices=1))["losses"]}))
"""
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_LAST_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script, and what is compared of its output."""

    name: str
    command: list[str]
    compared: str
    ends: int = 0  # its exit code
    needs: str = ""  # a module


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a run of a script left; without an exit code it took too long."""

    exit_code: int | None
    wall_s: float
    results: list[Any] = field(default_factory=list)
    error: str = ""  # first line of the first uncaught exception, or what stands for it
    last_lines: list[str] = field(default_factory=list)  # of stderr
    plans: list[str] = field(default_factory=list)  # "made" or "loaded"
    used: list[str] = field(default_factory=list)  # devices that the plans have ops on


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the scripts, keeps the rows, and prints the table."""
    scripts = {script.name: script for script in corpus()}
    options = parse(argv, scripts)
    if options.list:
        print("\n".join([*scripts, "", *left_out_lines(LEFT_OUT)]))
        return 0
    rows = kept_rows(options)
    is_over = True
    todo = [
        name
        for name in options.only or scripts
        if not (options.resume and is_measured(rows.get(name, {}), options.runs))
    ]

    def measured(name: str) -> tuple[str, dict[str, Any]]:
        return name, measure(scripts[name], options.runs, options.machine, options.limit_s)

    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            for name, row in pool.map(measured, todo):
                rows[name] = row
                save({name: rows[name] for name in scripts if name in rows}, options)
    except KeyboardInterrupt:
        is_over = False
        print(f"  interrupted: {len(rows)} scripts are kept", file=sys.stderr)
    print("\n".join([*table(rows), "", *summary(rows), "", *left_out_lines(LEFT_OUT)]))
    return 0 if is_over else 130


def parse(argv: Sequence[str] | None, names: Mapping[str, Script]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kept = Path("docs/results/emulation/scripts.json")
    parser.add_argument("--machine", default="2xa100", help="emulated, default: 2xa100")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        metavar="NAME",
        help="these scripts, see --list; rows of the others stay as they are",
    )
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS, help="default: all three")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at once, default: 1")
    parser.add_argument("--limit-s", type=float, default=300.0, help="of a run, default: 300")
    parser.add_argument("--keep", type=Path, default=kept, metavar="FILE", help=f"default: {kept}")
    parser.add_argument("--resume", action="store_true", help="measure no row again")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    return parser.parse_args(argv)


# ---- scripts ----


def corpus() -> list[Script]:
    """All scripts but those of LEFT_OUT."""
    found = [of_cases(name) for name in CASES]
    found += [of_examples(path) for path in sorted((ROOT / "examples").glob("*.py"))]
    found += [
        Script(
            name=f"timed_scripts/{path.name}",
            command=[str(path), "stopwatch.json"],
            compared=NOTHING,
        )
        for path in sorted(TIMED_SCRIPTS.glob("*.py"))
    ]
    found += [
        Script(name=f"workloads/{name}", command=["workload.py", name], compared=JSON_LINES)
        for name in WORKLOADS
    ]
    if unknown := LEFT_OUT.keys() - {script.name for script in found}:
        raise ValueError(f"left out, but there are none of these: {', '.join(sorted(unknown))}")
    return [script for script in found if script.name not in LEFT_OUT]


def of_cases(name: str) -> Script:
    """A script of testbed/scripts/ with its arguments."""
    file, *arguments = name.split()
    return Script(
        name=name,
        command=[str(SCRIPTS / file), *arguments],
        compared=JSON_LINES,
        ends=CASES[name].ends,
        needs=CASES[name].needs,
    )


def of_examples(path: Path) -> Script:
    name = f"examples/{path.name}"
    return Script(name=name, command=[str(path)], compared=NOTHING if name in UNSEEDED else TEXT)


# ---- runs ----


def measure(script: Script, runs: Sequence[str], machine: str, limit_s: float) -> dict[str, Any]:
    """The row of a script."""
    row: dict[str, Any] = {"compared": script.compared}
    if script.needs and importlib.util.find_spec(script.needs) is None:
        return row | {"skipped": f"needs {script.needs}"}
    ended: dict[str, Ended] = {}
    for run in (run for run in RUNS if run in runs):
        ended[run] = run_once(script, run, machine, limit_s)
        row[run] = told(script, run, ended)
        print(f"  {script.name}, {run}: {row[run]['outcome']}", file=sys.stderr, flush=True)
    return row


def run_once(script: Script, run: str, machine: str, limit_s: float) -> Ended:
    """Runs it in a directory of its own."""
    before = [] if run == CPU else ["-m", "hplacer_optimizer.run", "--emulate", machine]
    if run != CPU and machine == HERE:
        before = ["-m", "hplacer_optimizer.run", str(DIVIDED)]
    with tempfile.TemporaryDirectory() as kept:
        directory = Path(kept)
        (directory / "workload.py").write_text(_WORKLOAD)
        # Scripts that choose their options themselves have the store where it is by default.
        store = directory / "cache" / "hplacer"
        switch = {"HPLACER_DISABLE": "1"}
        if run == PLANNED:
            switch = {"HPLACER_OPTIONS": OPTIONS.format(cache=store), "HPLACER_LOG": "debug"}
        switch |= {"XDG_CACHE_HOME": str(store.parent)}
        if run != CPU and machine == HERE:
            gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
            switch |= {"CUDA_VISIBLE_DEVICES": gpus, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        begin = time.monotonic()
        try:
            done = run_python([*before, *script.command], directory, switch, limit_s)
        except subprocess.TimeoutExpired:
            return Ended(exit_code=None, wall_s=limit_s)
        return Ended(
            exit_code=done.returncode,
            wall_s=time.monotonic() - begin,
            results=texts_of(done.stdout) if script.compared == TEXT else results_of(done.stdout),
            error=first_error(done.stderr) if done.returncode != 0 else "",
            last_lines=done.stderr.splitlines()[-_LAST_LINES:],
            plans=outcomes_of(done.stderr),
            used=devices_of(store) if run == PLANNED else [],
        )


def run_python(
    arguments: Sequence[str],
    directory: Path,
    variables: Mapping[str, str],
    limit_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs Python in a directory; raises subprocess.TimeoutExpired after the limit."""
    return subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**clean_environment(directory), **variables},
        cwd=directory,
        timeout=limit_s,
    )


def texts_of(stdout: str) -> list[Any]:
    """Lines of text, and the numbers in them."""
    return [
        {"text": _NUMBER.sub("#", line), "numbers": [*map(float, _NUMBER.findall(line))]}
        for line in stdout.splitlines()
    ]


def first_error(stderr: str) -> str:
    """What ended a process: an exception, or the last that it said."""
    said = [line for line in stderr.splitlines() if line and not line.startswith("hplacer: ")]
    return next(iter([*errors_of(stderr), *reversed(said)]), "")


def devices_of(store: Path) -> list[str]:
    """Those that plans have ops on, such as GPU:1."""
    used: set[str] = set()
    for entry in PlanStore(str(store)).list() if store.exists() else []:
        if entry.plan is not None:
            used |= {entry.plan.device_names[device] for device in entry.plan.node_devices}
    return sorted(name.rpartition("device:")[2] for name in used)


# ---- outcomes ----


def told(script: Script, run: str, ended: Mapping[str, Ended]) -> dict[str, Any]:
    """What is kept of a run: its outcome, and the details of one that is not fine."""
    mine = ended[run]
    found: dict[str, Any] = {"exit_code": mine.exit_code, "wall_s": round(mine.wall_s, 2)}
    found |= {"error": mine.error} if mine.error else {}
    if run == PLANNED:
        found["plans"] = {kind: mine.plans.count(kind) for kind in ("made", "loaded")}
        found["used"] = mine.used
    found["outcome"], details = outcome(script, run, ended)
    found |= details
    if found["outcome"] not in FINE:
        found["last_lines"] = mine.last_lines
    return found


def outcome(script: Script, run: str, ended: Mapping[str, Ended]) -> tuple[str, dict[str, Any]]:
    """works, equal, close or ends; else too slow, fails, differs or unknown; and why."""
    mine = ended[run]
    if mine.exit_code is None:
        return "too slow", {}
    if mine.exit_code != script.ends:
        return "fails", {}
    if run == CPU:
        has_results = script.compared == NOTHING or bool(mine.results)
        return ("works" if has_results else "fails"), {"results": len(mine.results)}
    if script.compared == NOTHING:
        return "ends", {}
    reference = ended.get(REFERENCE[run])
    if reference is None or reference.exit_code != script.ends:
        return "unknown", {}
    largest, where = max(differences(mine.results, reference.results, "results"), default=(0.0, ""))
    if largest == 0:
        return "equal", {"largest": 0.0}
    details = {"largest": largest if math.isfinite(largest) else None, "where": where}
    if largest <= ROUNDING:
        return "close", details
    return "differs", details | {"found": mine.results, "expected": reference.results}


def differences(found: Any, expected: Any, where: str) -> Iterator[tuple[float, str]]:
    """Relative differences of numbers, and where they are; infinite if anything else differs."""
    if isinstance(found, float) and isinstance(expected, float):
        yield relative(found, expected), where
    elif isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for key in expected:
            yield from differences(found[key], expected[key], f"{where}.{key}")
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, pair in enumerate(zip(found, expected, strict=True)):
            yield from differences(*pair, f"{where}[{number}]")
    elif found != expected:
        yield math.inf, where


def relative(found: float, expected: float) -> float:
    if found == expected or (math.isnan(found) and math.isnan(expected)):
        return 0.0
    largest = max(abs(found), abs(expected))
    return abs(found - expected) / largest if math.isfinite(largest) else math.inf


# ---- rows ----


def is_measured(row: Mapping[str, Any], runs: Sequence[str]) -> bool:
    return "skipped" in row or all(run in row for run in runs)


def kept_rows(options: argparse.Namespace) -> dict[str, Any]:
    """Those of the file that stay; all of it has one machine."""
    if not options.keep.exists() or not (options.resume or options.only):
        return {}
    document = json.loads(options.keep.read_text())
    if document["machine"] != options.machine:
        raise SystemExit(
            f"{options.keep} has rows of {document['machine']}: name another file with --keep"
        )
    rows: dict[str, Any] = document["rows"]
    return rows


def save(rows: Mapping[str, Any], options: argparse.Namespace) -> None:
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": options.machine,
        "tensorflow": installed_version(),
        "cores": len(os.sched_getaffinity(0)),
        "options": OPTIONS,
        "rounding": ROUNDING,
        "rows": rows,
        "left_out": LEFT_OUT,
    }
    written = options.keep.with_suffix(".part")
    written.write_text(result_json(document) + "\n")
    written.replace(options.keep)


def installed_version() -> str:
    """Of the package that is here."""
    for package in ("tensorflow-cpu", "tensorflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)
    raise SystemExit("TensorFlow is not installed")


# ---- for people ----


def table(rows: Mapping[str, Any]) -> list[str]:
    """In Markdown."""
    lines = [
        "| script | CPU | emulated | largest difference | with plans | largest difference "
        "| plans made, loaded | devices | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if "skipped" in row:
            lines.append(f"| {name} | {row['skipped']} | | | | | | | |")
            continue
        cells = [name, shown(row, CPU)]
        for run in (EMULATED, PLANNED):
            cells += [shown(row, run), largest(row.get(run, {}))]
        planned = row.get(PLANNED, {})
        cells.append(", ".join(map(str, planned.get("plans", {}).values())))
        cells.append(" ".join(planned.get("used", [])))
        cells.append(", ".join(f"{row[run]['wall_s']:.1f}" for run in RUNS if run in row))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def shown(row: Mapping[str, Any], run: str) -> str:
    """The outcome, with the error of a run that fails."""
    if run not in row:
        return ""
    found = row[run]
    if found["outcome"] != "fails":
        return str(found["outcome"])
    error = found.get("error", "no results")[:80].replace("|", "/")
    return f"fails with exit code {found['exit_code']}: {error}"


def largest(found: Mapping[str, Any]) -> str:
    if "largest" not in found:
        return ""
    return "not of numbers" if found["largest"] is None else f"{found['largest']:.1e}"


def summary(rows: Mapping[str, Any]) -> list[str]:
    """How many ended how."""
    lines = [f"{len(rows)} scripts"]
    for run in RUNS:
        outcomes = [row[run]["outcome"] for row in rows.values() if run in row]
        if outcomes:
            counts = [f"{outcomes.count(kind)} {kind}" for kind in sorted(set(outcomes))]
            lines.append(f"{run}: {', '.join(counts)}")
    planned = [row[PLANNED] for row in rows.values() if PLANNED in row]
    if planned:
        in_effect = sum(any(row["plans"].values()) for row in planned)
        spread = sum(sum("GPU" in name for name in row["used"]) > 1 for row in planned)
        lines.append(f"plans in effect: {in_effect}, of which on several GPUs: {spread}")
    return lines


def left_out_lines(reasons: Mapping[str, str]) -> list[str]:
    return ["left out:", *(f"  {name}: {reason}" for name, reason in reasons.items())]


if __name__ == "__main__":
    sys.exit(main())
