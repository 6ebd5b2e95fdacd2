"""What emulated GPUs do with known work: is virtual time right, and what does it cost to run?

Parts:

  micro     steps that were worked out by hand, in virtual time: on one core, on two, and with all
            cores busy
  computed  small sizes of the tasks, computed and only allocated: are virtual times the same?

    python -m benchmarks.emulation micro --runs 50
    python -m benchmarks.emulation computed

Every task is measured in a process of its own. benchmarks/agreement.py measures the large ones.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hplacer_optimizer import emulation
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.tasks import PAPER, Task, modern_tasks
from hplacer_optimizer.capture.loading import LoadedGraph, load_graph
from hplacer_optimizer.machines import full_device_name
from hplacer_optimizer.measuring.step_runner import StepRunner
from hplacer_optimizer.measuring.target import LOCAL, Target
from hplacer_optimizer.planners import Budget, get_planner
from hplacer_optimizer.problem.simulator import simulate
from hplacer_optimizer.support import child_process
from testbed.micro_graphs import GRAPHS

TASKS = {task.name: task for task in (*PAPER, *modern_tasks(("8xa100",)))}
SMALL: dict[str, dict[str, int]] = {  # sizes that two cores compute in seconds
    "nmt_2": {"layers": 2, "steps": 5, "batch_size": 16, "hidden": 128, "vocabulary": 1000},
    "rnnlm": {"steps": 5, "batch_size": 16, "hidden": 128, "vocabulary": 1000},
}
WARM_UP, STEPS = 3, 10
_LEAST_BYTES = 4096  # that a kernel reads and writes if it only allocates
_ROW = "ROW "  # what a line with a row begins with
_MOVED = (0.02, 0.1)  # shares of units that placements of random moves send elsewhere


# ---- placements ----


def placements(problem: Problem, planning_s: float, seed: int = 0) -> dict[str, NDArray[np.int32]]:
    """TensorFlow's, stripes over two and over all GPUs, random moves, the plan of `auto`."""
    gpus = gpus_of(problem)
    found = simple_placements(problem)
    for share in _MOVED[: 2 if len(gpus) == 2 else 1]:  # five placements on every machine
        found[f"{share:.0%} random moves"] = random_moves(problem, share, gpus, seed)
    result = get_planner("auto").plan(problem, budget=Budget(seconds=planning_s), seed=seed)
    found["auto"] = np.asarray(result.placement, np.int32)
    return found


def gpus_of(problem: Problem) -> list[int]:
    """Their numbers among the devices."""
    return [i for i, name in enumerate(problem.device_names) if "GPU" in name]


def simple_placements(problem: Problem) -> dict[str, NDArray[np.int32]]:
    """TensorFlow's, and stripes of the graph over two and over all GPUs."""
    gpus = gpus_of(problem)
    first_op = np.zeros(problem.num_units, np.int64)
    first_op[problem.units[::-1]] = np.arange(problem.num_ops)[::-1]
    rank = np.argsort(np.argsort(first_op))
    found = {}
    if problem.default_device is not None:
        found["TensorFlow's"] = np.asarray(problem.default_device, np.int32)
    for number in sorted({2, len(gpus)}):
        stripe = rank * number // problem.num_units
        found[f"{number} stripes"] = by_unit(problem, [gpus[i] for i in stripe])
    return found


def random_moves(
    problem: Problem, share: float, devices: Sequence[int], seed: int, *, home: int | None = None
) -> NDArray[np.int32]:
    """All on one device, the first by default, but for so many units, which are on any of them."""
    rng = np.random.default_rng(seed)
    is_moved = rng.random(problem.num_units) < share
    elsewhere = rng.choice(devices, problem.num_units)
    home = devices[0] if home is None else home
    return by_unit(problem, np.where(is_moved, elsewhere, home).tolist())


def by_unit(problem: Problem, wanted: Sequence[int]) -> NDArray[np.int32]:
    """Each unit where it is wanted, or else where it may be."""
    pointer, candidates = problem.candidate_ptr, problem.candidates
    chosen = []
    for unit, device in enumerate(wanted):
        allowed = candidates[pointer[unit] : pointer[unit + 1]].tolist()
        chosen.append(device if device in allowed else allowed[0])
    return np.array(chosen, np.int32)[problem.units]


# ---- in the process of a task ----


def step_runner_of(loaded: LoadedGraph) -> StepRunner:
    """What runs the graph's step on the devices of its problem."""
    names = [full_device_name(device) for device in loaded.problem.device_names]
    assert loaded.step is not None
    return StepRunner(loaded.step, Target(session=LOCAL, device_names=names))


def measure(
    runner: StepRunner,
    problem: Problem,
    name: str,
    placement: NDArray[np.int32],
    *,
    steps: int = STEPS,
) -> dict[str, Any]:
    """Steps under a placement, on devices that take what the problem says."""
    import tensorflow as tf

    row: dict[str, Any] = {"placement": name} | simulated_row(problem, placement)
    names = [full_device_name(device) for device in problem.device_names]
    gpus = [device.rpartition("device:")[2] for device in names if "GPU" in device]
    try:
        with runner.placed(placement) as step:
            step.warm_up(WARM_UP)
            for gpu in gpus:
                tf.config.experimental.reset_memory_stats(gpu)
            begin_s = time.perf_counter()
            times = step.time(steps)
            row["real_s"] = (time.perf_counter() - begin_s) / steps
            row["steps_ns"] = [round(seconds * 1e9) for seconds in times]
            row["peak_bytes"] = [
                tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus
            ]
    except tf.errors.OpError as error:
        row["error"] = f"{type(error).__name__}: {error.message.splitlines()[0][:200]}"
    row["process_peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return row


def simulated_row(problem: Problem, placement: NDArray[np.int32]) -> dict[str, Any]:
    """What the simulator says of a placement."""
    simulated = simulate(problem, placement)
    peaks = [int(size) for size in simulated.peak_bytes]
    return {"simulated_ns": simulated.makespan_ns, "simulated_peak_bytes": peaks}


def write_task(task: Task, sizes: dict[str, Any], path: str) -> None:
    """Its graph, by a process of its own."""
    command = "import sys, json; from hplacer_optimizer.workloads.graphs import write_graph\n"
    command += "write_graph(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))"
    arguments = [task.workload, path, json.dumps({**task.parameters, **sizes})]
    environment = child_process.environment(**child_process.without_gpus())
    subprocess.run([sys.executable, "-c", command, *arguments], check=True, env=environment)


def load_task(task: Task, sizes: dict[str, Any], *, compute: bool) -> LoadedGraph:
    """The task's graph; from now on this process has the GPUs of its machine, emulated."""
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "graph.meta"))
        write_task(task, sizes, path)
        return load_file(path, task.machine, compute=compute)


def task_parser(text: str) -> argparse.ArgumentParser:
    """Options of a benchmark that runs each task in a process of its own, with --task."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME")
    parser.add_argument("--small", action="store_true", help="small sizes, where there are any")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)  # one, as JSON
    return parser


def load_data_sheet_task(name: str, sizes: dict[str, Any]) -> LoadedGraph:
    """A task's graph, only allocating; the papers' tasks on their machines as in data sheets."""
    task = TASKS[name]
    task = replace(task, machine=task.machine.replace("papers-", "1cpu-"))
    return load_task(task, sizes, compute=False)


def load_file(path: str, machine: str, *, compute: bool) -> LoadedGraph:
    """A file's graph; from now on this process has the GPUs of the machine, emulated."""
    loaded = load_graph(path, machine=machine, keep_graph=True)
    emulation.enable(loaded.machine, compute=compute)
    import tensorflow as tf

    tf.config.list_logical_devices()
    assert loaded.step is not None
    emulation.charge(
        loaded.problem,
        loaded.step.node_names,
        loaded.step.node_op,
        loaded.captured.is_repeated,
    )
    if not compute:  # but for labels, which TensorFlow checks on a CPU
        emulation.allocate_only(least_bytes=_LEAST_BYTES)
    return loaded


def run_task(task: Task, sizes: dict[str, Any], compute: bool, planning_s: float) -> None:
    """Prints a line of JSON for each placement."""
    loaded = load_task(task, sizes, compute=compute)
    runner = step_runner_of(loaded)
    for name, placement in placements(loaded.problem, planning_s).items():
        print_row(measure(runner, loaded.problem, name, placement))


def print_row(row: dict[str, Any]) -> None:
    """For `rows_told`."""
    print(_ROW + json.dumps(row), flush=True)


# ---- in the process of the benchmark ----


def rows_of(task: str, *, compute: bool, planning_s: float) -> Iterator[dict[str, Any]]:
    """What the process of a small task tells."""
    arguments = ["benchmarks.emulation", "task", task, "--planning-s", str(planning_s)]
    return rows_told([*arguments, "--small", *["--compute"] * compute])


def rows_told(arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What `print_row` prints in a process of its own, of a module with arguments."""
    command = [sys.executable, "-m", *arguments]
    quiet = child_process.environment(HPLACER_DISABLE="1", TF_CPP_MIN_LOG_LEVEL="3")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=quiet) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(_ROW):
                yield json.loads(line.removeprefix(_ROW))
    if process.returncode == -signal.SIGINT:  # Ctrl-C is for all
        raise KeyboardInterrupt
    if process.returncode:
        print(f"{' '.join(arguments)}: exit code {process.returncode}", file=sys.stderr)


def run_computed(planning_s: float) -> int:
    """Compares computed and only allocated steps; 1 if the medians differ."""
    worst = 0.0
    for name in SMALL:
        pairs = zip(
            rows_of(name, compute=True, planning_s=planning_s),
            rows_of(name, compute=False, planning_s=planning_s),
            strict=True,
        )
        for computed, allocated in pairs:
            one, other = (float(np.median(row["steps_ns"])) for row in (computed, allocated))
            worst = max(worst, abs(other / one - 1))
            print(
                f"{name}, {computed['placement']}: computed {one / 1e6:.3f} ms, only allocated "
                f"{other / 1e6:.3f} ms; really {computed['real_s']:.2f} and "
                f"{allocated['real_s']:.2f} s"
            )
    print(f"largest difference: {worst:.2%}")
    return int(worst > 0.03)


def run_micro(runs: int) -> int:
    """Runs the graphs that were worked out by hand; 1 if a step differs."""
    wrong = 0
    cores = sorted(os.sched_getaffinity(0))
    for label, own, busy in (
        ("one core", cores[:1], 0),
        (f"{len(cores)} cores", cores, 0),
        (f"{len(cores)} busy cores", cores, len(cores)),
    ):
        with _busy(busy):
            done = subprocess.run(
                [
                    *("taskset", "-c", ",".join(map(str, own)), sys.executable),
                    *("-m", "testbed.micro_graphs", "--runs", str(runs)),
                ],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env=child_process.environment(TF_CPP_MIN_LOG_LEVEL="3"),
            )
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        different = [row["graph"] for row in rows if {*row["times"]} != {row["expected"]}]
        wrong += len(different) + (len(rows) != len(GRAPHS))
        print(
            f"{label}: {len(rows)} graphs, {runs} steps each: {len(different)} not as worked out "
            f"{different or ''}",
            flush=True,
        )
    return int(wrong > 0)


@contextlib.contextmanager
def _busy(number: int) -> Iterator[None]:
    """So many processes that never rest."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("micro", "computed", "task"))
    parser.add_argument("task", nargs="?", choices=TASKS, help="of the part `task`: one, as JSON")
    parser.add_argument("--runs", type=int, default=50, help="steps of each micro graph")
    parser.add_argument("--planning-s", type=float, default=10.0, help="of `auto`, default: 10")
    parser.add_argument("--compute", action="store_true", help="of `task`: compute in earnest")
    parser.add_argument("--small", action="store_true", help="of `task`: a small size")
    options = parser.parse_args(argv)
    if options.part == "micro":
        return run_micro(options.runs)
    if options.part == "computed":
        return run_computed(options.planning_s)
    sizes = SMALL.get(options.task, {}) if options.small else {}
    run_task(TASKS[options.task], sizes, options.compute, options.planning_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
