"""Does each rule of the simulator for launches earn its place? Left out, how far off is a step?

Builds the engine once as it is and once without each rule, and simulates the placements that
benchmarks/agreement.py executed. If that ran elsewhere, its --simulate has to run here first.

    python -m benchmarks.launch_rules
    python -m benchmarks.launch_rules --executed docs/results/emulation --tasks inception_v3 nmt_2
    python -m benchmarks.launch_rules --list

The build takes a minute or two, and some seconds for each rule.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "launch_rules"
PROBLEMS = Path("build/agreement")  # as in benchmarks/agreement.py, which imports the usual engine
SOURCE = "cc/engine/simulator/step_simulation.cc"
# Without the rule, this text of SOURCE becomes that.
RULES: dict[str, tuple[str, str]] = {
    "launches take time": ("now_ns_ + launch_ns_[device]", "now_ns_"),
    "the host has so many threads": (
        "Reset(problem_->num_tasks(), problem_->spec().inter_op_threads,",
        "Reset(problem_->num_tasks(), 1 << 30,",
    ),
    "they run the host's ops, too": (
        "has_threads_[d] = launches[device_task_[d]];",
        "has_threads_[d] = launch_ns_[d] > 0;",
    ),
    "what is not removed keeps its thread": (
        "is_arriving_ = self.is_new && IsRemoved(item, device, /*follows_transfer=*/true);",
        "is_arriving_ = self.is_new;",
    ),
    "arrivals wake threads of their own": (
        "is_arriving_ = self.is_new && IsRemoved(item, device, /*follows_transfer=*/true);",
        "is_arriving_ = false;",
    ),
    "copies wait for all that is launched where they start": (
        "ready_ns = std::max(ready_ns, stream_free_ns_[send.src_device]);",
        "ready_ns = std::max(ready_ns, ops_[send.op].finish_ns);",
    ),
    "and where they end": ("if (is_to && (!is_from || send.bytes > 0)) {", "if (false) {"),
    "what only waits comes behind what reads": (
        "kWaits = uint64_t{1} << 63",
        "kWaits = 0",
    ),
    "a signal is the tensor of a constant": (
        "if (std::exchange(copies_[~item].has_tensor, true)) {",
        "if (true) {",
    ),
    "what only hands on is removed": ("if (ops_[op].finish_ns > 0 || ", "if (true || "),
    "but not if there were more edges": ("if (num_readers <= 1) return true;", "return true;"),
    "constants that are the same are one": (
        "if (!merged_.empty() && IsMerged(op, device)) return;",
        "",
    ),
    "ops have another order under each placement": (
        "if (!has_launches_ || problem_->ordered_graph() == nullptr) return;",
        "return;",
    ),
    "many followers lie in a hash table": (
        "device != kNone && num_followers > kMostInOrder;",
        "false;",
    ),
}


def texts_without() -> dict[str, str]:
    """SOURCE without each rule. Ends the process if a rule does not stand there once."""
    text = (ROOT / SOURCE).read_text()
    for rule, (old, new) in RULES.items():
        if text.count(old) != 1 or old == new:
            raise SystemExit(f"{SOURCE} has {text.count(old)} times what '{rule}' is: {old}")
    return {rule: text.replace(old, new) for rule, (old, new) in RULES.items()}


def cache_of(build: Path) -> list[str]:
    """The settings of a build, as arguments of CMake."""
    names = ("CMAKE_CXX_COMPILER", "CMAKE_CXX_FLAGS", "CMAKE_BUILD_TYPE", "CMAKE_MAKE_PROGRAM")
    found = []
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        name, _, value = line.partition("=")
        if name.partition(":")[0] in (*names, "HPLACER_PYTHONS"):
            found.append(f"-D{name}={value}")
        elif name.startswith("HPLACER_INCLUDES"):
            found.append(f"-D{name}={value.replace(str(ROOT / 'cc'), str(TREE / 'cc'))}")
    return found


def build_engines(rules: Sequence[str]) -> dict[str, Path]:
    """The engine as it is, under "", and without each rule."""
    (native,) = (ROOT / "build" / "native").iterdir()
    shutil.rmtree(TREE, ignore_errors=True)
    for name in ("cc", "python"):
        shutil.copytree(ROOT / name, TREE / name)
    shutil.copy(ROOT / "CMakeLists.txt", TREE)
    cmake = Path(sys.executable).with_name("cmake")
    out = TREE / "out"
    target = "_engine" + sysconfig.get_config_var("EXT_SUFFIX").removesuffix(".so")
    subprocess.run(
        [cmake, "-S", TREE, "-B", out, "-G", "Ninja", "-DHPLACER_TENSORFLOWS=", *cache_of(native)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    texts = {"": (TREE / SOURCE).read_text(), **texts_without()}
    engines = {}
    for number, rule in enumerate(("", *rules)):
        (TREE / SOURCE).write_text(texts[rule])
        subprocess.run(
            [cmake, "--build", out, "--target", target], check=True, stdout=subprocess.DEVNULL
        )
        (module,) = out.glob("_engine*.so")
        engines[rule] = Path(shutil.copy(module, TREE / f"{number}{module.name}"))
        print(f"built without: {rule or 'nothing'}", file=sys.stderr, flush=True)
    return engines


def simulate_task(name: str, engine: Path, executed: Path) -> None:
    """In a process of its own: prints the steps of the task's placements as JSON."""
    spec = importlib.util.spec_from_file_location("hplacer_optimizer._engine", engine)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    from benchmarks.agreement import kept_of
    from hplacer_optimizer.problem.problem_file import load_problem_file
    from hplacer_optimizer.problem.simulator import simulate

    problem = load_problem_file(PROBLEMS / f"{name}.json.gz")
    made = kept_of(name, problem, executed)
    print(
        json.dumps(
            {label: simulate(problem, placement).makespan_ns for label, placement in made.items()}
        )
    )


def steps_ns_by(engine: Path, task: str, executed: Path) -> dict[str, int]:
    """What a process with the engine simulates, by placement."""
    command = [sys.executable, "-m", "benchmarks.launch_rules", "--simulate", task, str(engine)]
    command += ["--executed", str(executed)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    steps_ns: dict[str, int] = json.loads(done.stdout)
    return steps_ns


def cell_of(rows: Sequence[dict[str, Any]], simulated_ns: dict[str, int]) -> str:
    """Of one task: the median error, and how much longer plans of `auto` take than simulated."""
    ratios = {
        row["placement"]: row["step_ns"] / simulated_ns[row["placement"]]
        for row in rows
        if "error" not in row
    }
    error = np.median([abs(1 / ratio - 1) for ratio in ratios.values()])
    autos = [f"{ratio - 1:+.1%}" for label, ratio in ratios.items() if label.startswith("auto")]
    return f"{error:.1%}; {', '.join(autos)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the errors of the simulated steps, of all placements and of those of `auto`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", metavar="NAME", help="default: all run")
    parser.add_argument("--executed", type=Path, default=PROBLEMS, metavar="DIR", help="its output")
    parser.add_argument(
        "--list", action="store_true", help="tell the rules, once each is found in the simulator"
    )
    parser.add_argument("--simulate", nargs=2, help=argparse.SUPPRESS)  # a task, an engine
    options = parser.parse_args(argv)
    if options.simulate:
        simulate_task(options.simulate[0], Path(options.simulate[1]), options.executed)
        return 0
    if options.list:
        print("\n".join(texts_without()))
        return 0
    executed = json.loads((options.executed / "agreement.json").read_text())
    kept = [file.stem for file in options.executed.glob("placements/*.npz")]
    tasks = options.tasks or [name for name in executed if name in kept]
    lacking = [name for name in tasks if not (PROBLEMS / f"{name}.json.gz").exists()]
    if lacking:
        raise SystemExit(
            f"{PROBLEMS} lacks {', '.join(lacking)}: run benchmarks.agreement --simulate"
        )
    engines = build_engines(list(RULES))
    print("| without | " + " | ".join(tasks) + " |\n|---|" + "---|" * len(tasks))
    for rule, engine in engines.items():
        cells = [
            cell_of(executed[name], steps_ns_by(engine, name, options.executed)) for name in tasks
        ]
        print(f"| {rule or 'nothing'} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
