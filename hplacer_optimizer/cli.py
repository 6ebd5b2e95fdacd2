"""The command `hplacer`: a thin layer that parses, calls the package and prints.

Exit codes: 0 done, 1 failed (the reason is one line on stderr), 2 wrong usage, 130 interrupted,
141 the reader of stdout went away. People get tables; with `--json` stdout holds JSON and nothing
else. Nothing here imports TensorFlow: only `doctor` does, in processes of its own, and a plan store
at a TensorFlow address.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hplacer_optimizer.errors import HPlacerError, ProblemError
from hplacer_optimizer.log import LEVELS
from hplacer_optimizer.plan import Plan, format_ns
from hplacer_optimizer.store import PlanStore, read_plan

if TYPE_CHECKING:
    from hplacer_optimizer._engine import Problem, StepTrace

OK, FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141
_PROBE_TIMEOUT_S = 120


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; `argv` without the program name, by default the process's. Exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()  # here, where a closed pipe can still be handled
        return code
    except BrokenPipeError:
        # Python flushes stdout again at exit: give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except (HPlacerError, OSError) as error:
        print("hplacer: error:", " ".join(str(error).splitlines()), file=sys.stderr)
        return FAILED


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["demo"]:  # has options of its own
        from hplacer_optimizer.demo import main as demo

        return demo(arguments[1:])
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:  # --help: 0, wrong usage: 2
        return stop.code if isinstance(stop.code, int) else USAGE
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


# ---- the grammar ----


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hplacer", description="Plan which device runs each operation of a TensorFlow graph."
    )
    parser.add_argument("--version", action="version", version=f"hplacer {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_cache(commands)

    show = _add(commands, "show", _show, "describe one plan", "hplacer show 3f9c2b1a")
    show.add_argument("plan", metavar="PLAN", help="a plan file, or the start of a fingerprint")
    _add_store_options(show)
    _add_json(show)

    example = "hplacer simulate mlp.hplacer.json --placement all:0"
    text = "predict the step time of a placement; exit code 1 if it is infeasible"
    simulate = _add(commands, "simulate", _simulate, text, example)
    simulate.add_argument("problem", metavar="PROBLEM", help="a problem file (*.hplacer.json)")
    simulate.add_argument(
        "--placement",
        required=True,
        metavar="P",
        help="a JSON file with one device index per op, `round_robin` or `all:DEVICE_INDEX`",
    )
    _add_json(simulate)

    example = "hplacer plan mlp.hplacer.json --planner etf -o placement.json"
    text = "plan a placement of a problem file; exit code 1 if none that fits was found"
    plan = _add(commands, "plan", _plan, text, example)
    plan.add_argument("problem", metavar="PROBLEM", help="a problem file (*.hplacer.json)")
    plan.add_argument("--planner", default="etf", metavar="NAME", help="default: etf")
    plan.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    plan.add_argument("-o", "--output", metavar="FILE", help="write the placement here, as JSON")
    _add_json(plan)

    commands.add_parser("demo", help="plan and train a small model; see `hplacer demo --help`")

    doctor = _add(commands, "doctor", _doctor, "check this installation", "hplacer doctor --json")
    _add_store_options(doctor)
    _add_json(doctor)
    return parser


def _add_cache(commands: Any) -> None:
    text = "look after the stored plans"
    cache = commands.add_parser("cache", help=text, epilog="example: hplacer cache list")
    actions = cache.add_subparsers(metavar="ACTION", required=True)
    listing = _add(actions, "list", _cache_list, "list the stored plans", "hplacer cache list")
    path = _add(actions, "path", _cache_path, "print the directory", "hplacer cache path")
    example = "hplacer cache remove 3f9c2b1a"
    remove = _add(actions, "remove", _cache_remove, "remove one stored plan", example)
    remove.add_argument("fingerprint", metavar="FP", help="a fingerprint or its unique start")
    text = "read every stored plan; exit code 1 if one is damaged"
    verify = _add(actions, "verify", _cache_verify, text, "hplacer cache verify --json")
    for action in (listing, path, remove, verify):
        _add_store_options(action)
    _add_json(listing)
    _add_json(verify)


def _add(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"example: {example}"
    )
    parser.set_defaults(run=run)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _add_store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="the plan store: a directory or an address such as gs://bucket/plans "
        "(default: $XDG_CACHE_HOME/hplacer or ~/.cache/hplacer)",
    )
    parser.add_argument(
        "--trust-shared", action="store_true", help="read a directory that others can write, too"
    )


def _store(options: argparse.Namespace) -> PlanStore:
    return PlanStore(options.cache, trust_shared=options.trust_shared)


# ---- cache and show ----


def _cache_list(options: argparse.Namespace) -> int:
    store = _store(options)
    entries = store.list()
    if options.json:
        _print_json(
            [
                {
                    "fingerprint": entry.fingerprint,
                    "path": entry.path,
                    "error": entry.error,
                    "plan": _plan_document(entry.plan) if entry.plan else None,
                }
                for entry in entries
            ]
        )
        return OK
    if not entries:
        print(f"no plans in {store.directory}")
    _print_table(
        ("fingerprint", "label", "planner", "step", "ops", "devices", "created"),
        [
            (
                plan.short_fingerprint,
                plan.label,
                plan.planner,
                _step_time(plan.step_time_ns, plan.feasible),
                str(plan.num_ops),
                str(len(plan.device_names)),
                plan.created,
            )
            for plan in (entry.plan for entry in entries)
            if plan
        ],
    )
    for entry in entries:
        if entry.error:
            print(f"unreadable: {entry.error}")
    return OK


def _cache_path(options: argparse.Namespace) -> int:
    print(_store(options).directory)
    return OK


def _cache_remove(options: argparse.Namespace) -> int:
    print(f"removed {_store(options).remove(options.fingerprint)}")
    return OK


def _cache_verify(options: argparse.Namespace) -> int:
    store = _store(options)
    entries = store.list()
    damaged = [entry for entry in entries if entry.error]
    if options.json:
        errors = [{"path": entry.path, "error": entry.error} for entry in damaged]
        _print_json({"directory": store.directory, "checked": len(entries), "damaged": errors})
    else:
        for entry in damaged:
            print(f"failed  {entry.error}")
        print(f"{len(entries)} plans in {store.directory}, {len(damaged)} damaged")
    return FAILED if damaged else OK


def _show(options: argparse.Namespace) -> int:
    plan = _find_plan(options)
    if options.json:
        _print_json(_plan_document(plan))
        return OK
    print(f"{plan.label}: {plan.summary_line()}")
    print(f"planned by {plan.planner} (seed {plan.seed}) in {plan.planning_s:.3g} s", end="")
    print(f" on {plan.host}, {plan.created}; costs: {plan.cost_source}")
    print(f"{plan.num_ops} ops, {plan.num_units} units, {len(plan.node_names)} nodes")
    for assumption in plan.assumptions:
        print(f"assumes {assumption}")
    counts = _count_per_device(plan.node_devices, len(plan.device_names))
    _print_devices(plan.device_names, counts, plan.peak_bytes, "nodes")
    _print_table(("fingerprint part", "value"), list(plan.fingerprint_parts.items()))
    return OK


def _find_plan(options: argparse.Namespace) -> Plan:
    """A name that is a file or looks like one is a path, anything else a fingerprint prefix."""
    if "/" in options.plan or options.plan.endswith(".hplan") or os.path.isfile(options.plan):
        return read_plan(options.plan)
    store = _store(options)
    fingerprint = store.resolve(options.plan)
    return store.get(fingerprint) or read_plan(store.path(fingerprint))  # None: just removed


def _plan_document(plan: Plan) -> dict[str, Any]:
    """Everything but the three columns, which are summed up per device."""
    columns = ("node_names", "node_hashes", "node_devices")
    document = {name: value for name, value in vars(plan).items() if name not in columns}
    counts = _count_per_device(plan.node_devices, len(plan.device_names))
    return {**document, "num_nodes": len(plan.node_names), "nodes_per_device": counts}


# ---- simulate and plan ----


def _simulate(options: argparse.Namespace) -> int:
    from hplacer_optimizer.problem import load_problem_file
    from hplacer_optimizer.simulator import simulate

    problem = load_problem_file(options.problem)
    placement = _placement(problem, options.placement)
    return _report_step(problem, placement, simulate(problem, placement), {}, options.json)


def _plan(options: argparse.Namespace) -> int:
    from hplacer_optimizer.planners import get_planner
    from hplacer_optimizer.problem import load_problem_file
    from hplacer_optimizer.simulator import simulate

    problem = load_problem_file(options.problem)
    planner = get_planner(options.planner)
    start_s = time.perf_counter()
    placement = planner(problem, seed=options.seed)
    planning_s = time.perf_counter() - start_s
    if options.output:
        Path(options.output).write_text(json.dumps(placement.tolist()) + "\n", encoding="ascii")
    facts = {"planner": options.planner, "seed": options.seed, "planning_s": round(planning_s, 6)}
    return _report_step(problem, placement, simulate(problem, placement), facts, options.json)


def _placement(problem: Problem, text: str) -> npt.NDArray[np.int32]:
    """int32[n] from a file or a rule; raises ProblemError if it does not fit the problem."""
    from hplacer_optimizer.problem import check_placement

    devices: list[int]
    if text == "round_robin":
        devices = (problem.units % problem.num_devices).tolist()
    elif match := re.fullmatch(r"all:(\d{1,9})", text, re.ASCII):
        devices = [int(match[1])] * problem.num_ops
    else:
        try:
            devices = json.loads(Path(text).read_text(encoding="utf-8"))
        except FileNotFoundError:
            choices = "--placement takes a JSON file, round_robin or all:DEVICE_INDEX"
            raise ProblemError(f"{text}: no such file; {choices}") from None
        except (ValueError, RecursionError) as error:
            raise ProblemError(f"{text}: is not JSON: {error}") from None
    try:
        return check_placement(problem, devices)
    except ProblemError as error:
        raise ProblemError(f"{text}: {error}") from None


def _report_step(
    problem: Problem,
    placement: npt.NDArray[np.int32],
    trace: StepTrace,
    facts: dict[str, Any],
    as_json: bool,
) -> int:
    """Prints what the simulator says of a placement; `facts` are extra entries for JSON."""
    counts = _count_per_device(placement, problem.num_devices)
    peak_bytes = [int(peak) for peak in trace.peak_bytes]
    if as_json:
        _print_json(
            {
                **facts,
                "num_ops": problem.num_ops,
                "num_units": problem.num_units,
                "feasible": trace.feasible,
                "infeasible_because": list(trace.infeasible_because),
                "makespan_ns": trace.makespan_ns,
                "device_names": list(problem.device_names),
                "ops_per_device": counts,
                "peak_bytes": peak_bytes,
            }
        )
    else:
        print(f"step time: {_step_time(trace.makespan_ns, trace.feasible)}")
        for reason in trace.infeasible_because:
            print(f"infeasible: {reason}")
        _print_devices(problem.device_names, counts, peak_bytes, "ops")
    return OK if trace.feasible else FAILED


# ---- doctor ----


@dataclass(frozen=True)
class Check:
    """One line of `hplacer doctor`; `remedy` is None when all is well."""

    name: str
    detail: str
    remedy: str | None = None


def _doctor(options: argparse.Namespace) -> int:
    checks = [
        Check("hplacer", f"{_version()}, Python {platform.python_version()}, {_system()}"),
        *_check_imports(),
        _check_cache_directory(options),
        *_check_environment(),
    ]
    healthy = not any(check.remedy for check in checks)
    if options.json:
        _print_json({"ok": healthy, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            print(f"{'failed' if check.remedy else 'ok':6}  {check.name}: {check.detail}")
            if check.remedy:
                print(f"        -> {check.remedy}")
    return OK if healthy else FAILED


def _check_imports() -> Iterable[Check]:
    """Imports in separate processes: a native module of another TensorFlow may crash."""
    rebuild = "rebuild the native modules: `make build`, or reinstall hplacer-optimizer"
    probes = (
        ("NumPy", "import numpy as m; print(m.__version__)", "pip install numpy"),
        ("native engine", "import hplacer_optimizer._engine", rebuild),
        (
            "TensorFlow",
            "import tensorflow as m; print(m.__version__)",
            "pip install 'hplacer-optimizer[tf]' (or [cpu])",
        ),
        (
            "native TensorFlow pass",  # compares its TensorFlow version with the installed one
            "import tensorflow, hplacer_optimizer._tf",
            rebuild + " beside this TensorFlow",
        ),
    )

    def check(probe: tuple[str, str, str]) -> Check:
        name, code, remedy = probe
        works, detail = _run_python(code)
        return Check(name, detail or "imports", None if works else remedy)

    with ThreadPoolExecutor(max_workers=len(probes)) as pool:
        return list(pool.map(check, probes))


def _run_python(code: str) -> tuple[bool, str]:
    """Whether `code` runs in a fresh interpreter, and the last line that it printed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_PROBE_TIMEOUT_S} seconds"
    if done.returncode < 0:
        return False, f"crashed with {signal.Signals(-done.returncode).name}"
    output = done.stderr if done.returncode else done.stdout
    return done.returncode == 0, (output.strip().splitlines() or [""])[-1]


def _check_cache_directory(options: argparse.Namespace) -> Check:
    name = "plan store"
    try:
        store = _store(options)
        count = len(store.fingerprints())
    except HPlacerError as error:
        return Check(name, str(error), "choose another directory with --cache")
    detail = f"{store.directory}, {count} plans"
    if "://" in store.directory:
        return Check(name, detail)
    directory = existing = Path(store.directory).absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check(name, f"{detail}: {existing} is not writable", f"chmod u+rwx {existing}")
    if existing != directory:
        return Check(name, f"{detail} (is created when needed)")
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not options.trust_shared:
        return Check(name, f"{detail}: others can write (mode {mode:o})", f"chmod go-w {directory}")
    return Check(name, f"{detail}, mode {mode:o}")


def _check_environment() -> Iterable[Check]:
    """One check per HPLACER_* variable."""
    for name, value in sorted(os.environ.items()):
        remedy = None
        if name == "HPLACER_DISABLE" and value == "1":
            remedy = "no graph is planned: unset HPLACER_DISABLE"
        elif name == "HPLACER_LOG" and value.strip().lower() not in LEVELS:
            remedy = f"set it to one of {', '.join(LEVELS)}"
        if name.startswith("HPLACER_"):
            yield Check(name, value, remedy)


# ---- printing ----


def _version() -> str:
    try:
        return importlib.metadata.version("hplacer-optimizer")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


def _step_time(step_time_ns: int | None, feasible: bool) -> str:
    if step_time_ns is None:
        return "unknown" if feasible else "infeasible"
    return format_ns(step_time_ns) + ("" if feasible else " (infeasible)")


def _format_bytes(size_bytes: int) -> str:
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


def _count_per_device(placement: npt.NDArray[np.int32], num_devices: int) -> list[int]:
    return [int(count) for count in np.bincount(placement, minlength=num_devices)]


def _print_devices(
    names: Sequence[str], counts: Sequence[int], peak_bytes: Sequence[int], what: str
) -> None:
    total = max(sum(counts), 1)
    _print_table(
        ("device", what, "share", "peak memory"),
        [
            (name, str(count), f"{count / total:.1%}", _format_bytes(peak))
            for name, count, peak in zip(names, counts, peak_bytes, strict=True)
        ],
    )


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))
